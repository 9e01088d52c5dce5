"""TRL learns by GRPO: the same sizes, generation by transformers, one step on each set of answers."""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from datasets import Dataset
from language import GROUP, LLAMA, NEW, PROMPT, VOCABULARY
from shared import Stopwatch, work
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def tokenizer() -> PreTrainedTokenizerFast:
    """A word an id, so that nothing is lost between ids and text; ``w1`` ends an answer."""
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="w0", eos_token="w1", padding_side="left")


def even(completion_ids, **_) -> list[float]:
    """The share of ids that are even."""
    return [float(np.mean(np.array(ids) % 2 == 0)) if len(ids) else 0.0 for ids in completion_ids]


class Watched(TrainerCallback):
    """Tells the clock of every update."""

    def __init__(self, watch: Stopwatch):
        self.watch = watch

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = self.watch.at(state.global_step)
        return control


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    config = LlamaConfig(**LLAMA, pad_token_id=0, eos_token_id=1)
    updates = job.begin + job.steps
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (updates * job.batch // GROUP, PROMPT))
    asked = Dataset.from_dict({"prompt": [" ".join(f"w{i}" for i in row) for row in ids]})
    with tempfile.TemporaryDirectory() as folder:
        how = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=job.batch, num_generations=GROUP, max_completion_length=NEW,
            beta=0.0, learning_rate=job.learning_rate, lr_scheduler_type="constant", max_steps=updates, use_cpu=True,
            bf16=False, gradient_checkpointing=False, logging_strategy="no", save_strategy="no", report_to="none",
            disable_tqdm=True,
        )  # fmt: skip
        GRPOTrainer(
            LlamaForCausalLM(config).to(getattr(torch, job.dtype)), even, how, train_dataset=asked,
            processing_class=tokenizer(), callbacks=[Watched(watch)],
        ).train()  # fmt: skip
    watch.answer()


if __name__ == "__main__":
    main()

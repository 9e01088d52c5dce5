"""TRL: GRPO with the same sizes, generation by transformers, one step on each set of responses."""

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
    """One word per token, so that tokens and text convert without loss; ``w1`` ends a response."""
    library_tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    library_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=library_tokenizer, pad_token="w0", eos_token="w1", padding_side="left"
    )


def share_of_even_tokens(completion_ids, **_) -> list[float]:
    """The share of even tokens in each response."""
    return [float(np.mean(np.array(ids) % 2 == 0)) if len(ids) else 0.0 for ids in completion_ids]


class StopwatchCallback(TrainerCallback):
    """Passes every update to the stopwatch."""

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
    tokens = np.random.default_rng(0).integers(2, VOCABULARY, (updates * job.batch // GROUP, PROMPT))
    prompts = Dataset.from_dict({"prompt": [" ".join(f"w{i}" for i in row) for row in tokens]})
    with tempfile.TemporaryDirectory() as folder:
        training_config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=job.batch,
            num_generations=GROUP,
            max_completion_length=NEW,
            beta=0.0,
            learning_rate=job.learning_rate,
            lr_scheduler_type="constant",
            max_steps=updates,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        GRPOTrainer(
            LlamaForCausalLM(config).to(getattr(torch, job.dtype)),
            share_of_even_tokens,
            training_config,
            train_dataset=prompts,
            processing_class=tokenizer(),
            callbacks=[StopwatchCallback(watch)],
        ).train()
    watch.print_result()


if __name__ == "__main__":
    main()

"""A reward model's training, against TRL's RewardTrainer on the same language model and pairs in the same order."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.language.hf_weights import load_pretrained
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.methods.language.rm import RM, dialogue_rewards

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]
VOCABULARY, SIZE, BATCH, NUM_PAIRS, PAD = 50, 32, 4, 40, 0
LEARNING_RATE, CENTER = 1e-3, 0.05


def pairs():
    """Prompts, and two responses of different lengths; the better one has more large tokens."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(NUM_PAIRS):
        prompt = rng.integers(2, VOCABULARY, rng.integers(2, 6))
        first, second = (rng.integers(2, VOCABULARY, rng.integers(1, 7)) for _ in range(2))
        better = first.mean() > second.mean()
        rows.append((prompt, first if better else second, second if better else first))
    return rows


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=SIZE, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=PAD, bos_token_id=1, eos_token_id=1, initializer_range=0.2,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def train_theirs(checkpoint, path, rows):
    """TRL's model after an epoch, and its head, which is not trained: ours moves by other steps in its units."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=1, dtype=torch.float32)
    model.score.weight.requires_grad_(False)
    model.score.weight.data.copy_(torch.tensor(np.random.default_rng(1).normal(0, 0.2, (1, SIZE)), dtype=torch.float32))

    class InOrder(RewardTrainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    columns = {
        "chosen_ids": [np.concatenate([prompt, chosen]).tolist() for prompt, chosen, _ in rows],
        "rejected_ids": [np.concatenate([prompt, rejected]).tolist() for prompt, _, rejected in rows],
    }
    settings = RewardConfig(
        str(path), per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, center_rewards_coefficient=CENTER,
        report_to="none", use_cpu=True, save_strategy="no", bf16=False, gradient_checkpointing=False,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = InOrder(
        model, settings, train_dataset=Dataset.from_dict(columns), processing_class=whitespace_tokenizer()
    )  # fmt: skip
    trainer.train()
    model.eval()

    def reward(ids):
        tensor = torch.tensor([list(map(int, ids))])
        with torch.no_grad():
            return float(model(input_ids=tensor, attention_mask=torch.ones_like(tensor)).logits)

    head = model.score.weight.detach().numpy()[0]
    return [[reward(np.concatenate([prompt, response])) for response in sides] for prompt, *sides in rows], head


def whitespace_tokenizer():
    """The trainer wants a tokenizer, though the pairs are tokens already."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": PAD, "<end>": 1} | {f"w{i}": i for i in range(2, VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<end>")), pad_token="<pad>", eos_token="<end>"
    )


def as_dialogues(rows):
    """Even rows the better responses, odd rows the worse ones."""

    def pad(tokens, size):
        return np.pad(tokens, (0, size - len(tokens)), constant_values=-1)

    prompts = np.stack([pad(prompt, 6) for prompt, *_ in rows for _ in range(2)])
    responses = np.stack([pad(response, 7) for _, *sides in rows for response in sides])
    alive = np.ones(len(prompts), bool)
    return single_turn_dialogues(jnp.asarray(prompts), jnp.asarray(responses), jnp.asarray(alive))


def test_rewards_after_an_epoch_are_those_of_trl(checkpoint, tmp_path):
    rows = pairs()
    theirs, head = train_theirs(checkpoint, tmp_path, rows)
    scorer = LMWithValueHead(load_pretrained(str(checkpoint)), jnp.asarray(head * SIZE**0.5), jnp.zeros(()))
    method, optimizer = RM(center_coef=CENTER), Adam(LEARNING_RATE, 1.0)
    before = np.asarray(dialogue_rewards(scorer, as_dialogues(rows)))

    @jax.jit
    def step(model, opt_state, batch):
        def loss(model):
            return method._loss(dataclasses.replace(scorer, model=model), batch)

        return gradient_step(optimizer, loss, model, opt_state)

    model, opt_state = scorer.model, optimizer.init(scorer.model)
    for start in range(0, NUM_PAIRS, BATCH):
        model, opt_state, _, _ = step(model, opt_state, as_dialogues(rows[start : start + BATCH]))
    rewards = np.asarray(dialogue_rewards(dataclasses.replace(scorer, model=model), as_dialogues(rows)))
    assert np.abs(rewards - before).max() > 0.1, "nothing was learned"
    np.testing.assert_allclose(rewards.reshape(-1, 2), theirs, atol=2e-3)

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
LEARNING_RATE, CENTER = 3e-3, 0.05
NUM_TRAINED, NUM_HELD_OUT = 2_000, 1_000


def pairs(count, seed=0):
    """Prompts, and two responses of different lengths; the better one ends with the greater token."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        prompt = rng.integers(2, VOCABULARY, rng.integers(2, 6))
        first, second = (rng.integers(2, VOCABULARY, rng.integers(1, 7)) for _ in range(2))
        better = first[-1] > second[-1]
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


def train_theirs(checkpoint, path, rows, batch=BATCH, *, train_head):
    """TRL's model after an epoch as a function from tokens to reward, and the head that it started with."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=1, dtype=torch.float32)
    head = np.random.default_rng(1).normal(0, 0.2, (1, SIZE)).astype("float32")
    model.score.weight.requires_grad_(train_head)
    model.score.weight.data.copy_(torch.tensor(head))

    class InOrder(RewardTrainer):
        def _get_train_sampler(self, *args):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    columns = {
        "chosen_ids": [np.concatenate([prompt, chosen]).tolist() for prompt, chosen, _ in rows],
        "rejected_ids": [np.concatenate([prompt, rejected]).tolist() for prompt, _, rejected in rows],
    }
    settings = RewardConfig(
        str(path), per_device_train_batch_size=batch, num_train_epochs=1, learning_rate=LEARNING_RATE,
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

    return reward, head[0]


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


def train_ours(checkpoint, head, rows, batch=BATCH, *, train_head):
    """Our model after an epoch; values are divided by the root of the head's size, so it is multiplied by that."""
    method, optimizer = RM(center_coef=CENTER), Adam(LEARNING_RATE, 1.0)
    scorer = LMWithValueHead(load_pretrained(str(checkpoint)), jnp.asarray(head * SIZE**0.5), jnp.zeros(()))
    trained = scorer if train_head else scorer.model
    opt_state = optimizer.init(trained)

    @jax.jit
    def step(trained, opt_state, dialogues):
        def loss(trained):
            return method._loss(trained if train_head else dataclasses.replace(scorer, model=trained), dialogues)

        return gradient_step(optimizer, loss, trained, opt_state)[:2]

    for start in range(0, len(rows), batch):
        trained, opt_state = step(trained, opt_state, as_dialogues(rows[start : start + batch]))
    return scorer, trained if train_head else dataclasses.replace(scorer, model=trained)


def test_rewards_after_an_epoch_are_those_of_trl(checkpoint, tmp_path):
    """With heads that are not trained: ours would move by other steps in TRL's units."""
    rows = pairs(NUM_PAIRS)
    reward, head = train_theirs(checkpoint, tmp_path, rows, train_head=False)
    theirs = [[reward(np.concatenate([prompt, response])) for response in sides] for prompt, *sides in rows]
    before, after = (np.asarray(dialogue_rewards(scorer, as_dialogues(rows))).reshape(-1, 2)
                     for scorer in train_ours(checkpoint, head, rows, train_head=False))  # fmt: skip
    assert np.abs(after - before).max() > 0.1, "nothing was learned"
    np.testing.assert_allclose(after, theirs, atol=2e-3)


def test_accuracy_after_two_thousand_pairs_is_that_of_trl(checkpoint, tmp_path):
    rows, held_out = pairs(NUM_TRAINED), pairs(NUM_HELD_OUT, seed=1)
    reward, head = train_theirs(checkpoint, tmp_path, rows, 8, train_head=True)
    theirs = np.array([[reward(np.concatenate([prompt, x])) for x in sides] for prompt, *sides in held_out])
    _, scorer = train_ours(checkpoint, head, rows, 8, train_head=True)
    ours = np.asarray(dialogue_rewards(scorer, as_dialogues(held_out))).reshape(-1, 2)
    accuracies = [np.mean(rewards[:, 0] > rewards[:, 1]) for rewards in (ours, theirs)]
    assert accuracies[0] > 0.75 and accuracies[0] > accuracies[1] - 0.01, accuracies

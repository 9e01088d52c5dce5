"""Pairs of attempts, and their loss, against a construction attempt by attempt in plain Python."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, LENGTH, WIDTH
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.records import Transition, View
from thespis.data.feeds import Episodes
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.learners.language.preference_losses import SigmoidLoss, SPPOLoss
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.papers.agent_rlvr.attempt_pairs import AttemptPreferences, pair_attempts, pool_attempts
from thespis.training.components import with_array_leaves

SIZE, GROUPS, BETA = 4, 8, 0.5
ROWS = SIZE * GROUPS
MODELS = [jax.jit(init_decoder, static_argnums=0)(DecoderConfig(9, 32, 1, 1, 1, 32, 96), quick_key(i)) for i in (0, 1)]
MODEL, REFERENCE = MODELS


def random_dialogues(num_turns: int) -> Dialogues:
    """Dialogues of one or two turns, responses of one or two tokens, a random reward for each; in some groups none."""
    rng = np.random.default_rng(num_turns)
    transcript = np.full((ROWS, LENGTH), -1)
    starts, responses = np.zeros((num_turns + 1, ROWS), int), np.full((num_turns, ROWS, WIDTH), -1)
    for row in range(ROWS):
        tokens = [row // SIZE % 7, 8]
        for turn in range(num_turns):
            starts[turn, row] = len(tokens)
            response = rng.integers(0, 8, rng.integers(1, WIDTH + 1))
            responses[turn, row, : len(response)] = response
            tokens += [*map(int, response), 8]
        starts[-1, row] = len(tokens)
        transcript[row, : len(tokens)] = tokens
    reward = (rng.random((num_turns, ROWS)) < 0.4).astype("float32")
    reward[0, :SIZE], reward[:, SIZE : 2 * SIZE] = 0.0, 0.0
    alive = np.ones((num_turns, ROWS), bool)
    fields = (transcript, starts, responses, alive, reward, np.zeros(ROWS, bool))
    dtypes = {"i": "int32", "f": "float32", "b": "bool"}
    return Dialogues(*(jnp.asarray(x.astype(dtypes[x.dtype.kind])) for x in fields))


def make(num_turns: int, retry_prompt) -> AttemptPreferences:
    feed = Episodes(max_steps=num_turns, group_size=SIZE, num_envs=ROWS)
    method = AttemptPreferences(model="blank", feed=feed, retry_prompt=retry_prompt, loss_type=SigmoidLoss(BETA))
    return with_array_leaves(method)


def spoken(row, start: int) -> list[int]:
    return [int(token) for token in row[:start]]


def attempts_of(dialogues: Dialogues, group: int, retry_prompt: str) -> list[tuple[bool, list[int], list[int], bool]]:
    """Whether it is a retry, what is read, the response, and whether it is right, of each attempt of a group."""
    attempts = []
    for row in range(group * SIZE, (group + 1) * SIZE):
        starts, reward = np.asarray(dialogues.response_starts[:, row]), np.asarray(dialogues.reward[:, row])
        texts = [[int(x) for x in response if x >= 0] for response in np.asarray(dialogues.responses[:, row])]
        transcript = np.asarray(dialogues.transcript[row])
        attempts.append((False, spoken(transcript, starts[0]), texts[0], bool(reward[0] > 0)))
        if len(texts) == 2 and reward[0] <= 0:
            prompt = spoken(transcript, starts[0 if retry_prompt == "task" else 1])
            attempts.append((True, prompt, texts[1], bool(reward[1] > 0)))
    return attempts


@jax.jit
def log_table(model, tokens, positions):
    return jax.nn.log_softmax(model.logits(model(tokens[None], positions[None])))[0]


def log_likelihood(model, prompt: list[int], response: list[int]) -> float:
    tokens = np.zeros(LENGTH, "int32")
    tokens[: len(prompt) + len(response)] = prompt + response
    positions = np.where(np.arange(LENGTH) < len(prompt) + len(response), np.arange(LENGTH), -1).astype("int32")
    table = np.asarray(log_table(model, tokens, positions))
    return float(sum(table[len(prompt) + i - 1, token] for i, token in enumerate(response)))


@pytest.mark.parametrize("num_turns", [1, 2])
@pytest.mark.parametrize("retry_prompt", ["task", "guidance"])
def test_the_loss_pair_by_pair(num_turns, retry_prompt):
    method, dialogues = make(num_turns, retry_prompt), random_dialogues(num_turns)
    unused = jnp.zeros(dialogues.responses.shape)
    view = View(dialogues.responses)
    alive = dialogues.alive
    steps = Transition(view, dialogues.responses, dialogues.reward, alive, alive, view, alive)
    batch = OfflineBatch(dialogues, unused, (), steps, DIALOGUE_SPEC, REFERENCE, KEY)
    loss, metrics = jax.jit(lambda model: method.compute_loss(model, batch))(MODEL)
    losses, num_retries, num_right_retries = [], 0, 0
    for group in range(GROUPS):
        attempts = attempts_of(dialogues, group, retry_prompt)
        right = sorted((a for a in attempts if a[3]), key=lambda a: not a[0])
        wrong = sorted((a for a in attempts if not a[3]), key=lambda a: not a[0])[::-1]
        num_retries += sum(a[0] for a in attempts)
        num_right_retries += sum(a[0] and a[3] for a in attempts)
        for chosen, rejected in zip(right, wrong, strict=False):
            ratios = [
                log_likelihood(MODEL, prompt, response) - log_likelihood(REFERENCE, prompt, response)
                for _, prompt, response, _ in (chosen, rejected)
            ]
            losses.append(math.log1p(math.exp(-BETA * (ratios[0] - ratios[1]))))
    assert len(losses) > 6
    np.testing.assert_allclose(loss, np.mean(losses), rtol=2e-4)
    assert metrics["pairs"] == len(losses)
    np.testing.assert_allclose(metrics["retry_success"], num_right_retries / max(num_retries, 1), rtol=1e-5)
    np.testing.assert_allclose(metrics["first_success"], np.mean(np.asarray(dialogues.reward[0]) > 0), rtol=1e-5)


def test_all_groups_of_six_attempts():
    """As many pairs as right or wrong attempts, each attempt in one; a right one is always preferred."""
    states = list(itertools.product(("right", "wrong", "none"), repeat=6))
    is_right = jnp.asarray([[x == "right" for x in state] for state in states])
    is_attempt = jnp.asarray([[x != "none" for x in state] for state in states])
    better, worse, is_pair = map(np.asarray, jax.jit(jax.vmap(pair_attempts))(is_right, is_attempt))
    for state, first, second, counts in zip(states, better, worse, is_pair, strict=True):
        pairs = [(int(i), int(j)) for i, j, counted in zip(first, second, counts, strict=True) if counted]
        rights, wrongs = ([i for i, x in enumerate(state) if x == kind] for kind in ("right", "wrong"))
        assert pairs == list(zip(rights, wrongs[::-1], strict=False))


def test_three_turns_and_other_losses_are_refused():
    empty = Dialogues.empty(4, DIALOGUE_SPEC, 3)
    with pytest.raises(UserError, match="max_steps=2"):
        pool_attempts(empty, 2, "task")
    with pytest.raises(ValueError, match="must order pairs"):
        AttemptPreferences(loss_type=SPPOLoss(win_rates=True))

"""Rollout transforms for dialogues: success replay, baselines, progress rewards, shared ratios, against loops."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.policy_losses import (
    ClippedSurrogate,
    DialogueLevelRatio,
    FirstTurnKL,
    TokenLevelRatio,
    TurnLevelRatio,
)
from thespis.learners.language.rollout_transforms import (
    MovingAverageBaseline,
    PlayerBaseline,
    SuccessReplay,
)
from thespis.nets.decoder import DecoderConfig, init_decoder

TIME, GROUP, LENGTH, WIDTH = 3, 2, 12, 2
SPEC = DialogueSpec(LENGTH, 3, WIDTH, TIME, (0,))
KEY = quick_key(7)
MODEL = jax.jit(init_decoder, static_argnums=0)(DecoderConfig(9, 32, 1, 1, 1, 32, 96), quick_key(0))


def make_dialogues(seed: int, prompts: list[int], final_rewards: list[float]) -> SampledDialogues:
    """Groups of two dialogues with the same prompt of two tokens, rewarded at the end of two turns."""
    rng, rows = np.random.default_rng(seed), GROUP * len(prompts)
    prompt = np.repeat(np.array(prompts), GROUP)
    transcript = rng.integers(0, 9, (rows, LENGTH))
    transcript[:, 0], transcript[:, 1], transcript[:, 9:] = prompt, 7, -1
    starts = np.repeat(np.array([2, 5, 8, 9])[:, None], rows, axis=1)
    alive = np.repeat(np.array([True, True, False])[:, None], rows, axis=1)
    reward = np.zeros((TIME, rows))
    reward[1], reward[2] = final_rewards, 5.0  # rewards after the end do not count
    responses = rng.integers(0, 9, (TIME, rows, WIDTH))
    log_probs = rng.normal(size=responses.shape)
    fields = transcript, starts, responses, alive, reward, np.zeros(rows, bool), log_probs
    dtypes = {"f": "float32", "i": "int32", "b": "bool"}
    return SampledDialogues(*jax.device_put(tuple(x.astype(dtypes[x.dtype.kind]) for x in fields)))


def init_and_step(transform: Any) -> tuple[PyTree, Callable[..., Any]]:
    """A transform's initial state and its compiled step."""
    state = jax.jit(lambda: transform.init(MODEL, SPEC, TIME, KEY))()
    return state, jax.jit(lambda state, dialogues: transform(state, dialogues, GROUP, KEY))


def returns_of(dialogues: SampledDialogues) -> np.ndarray:
    """Return of each dialogue."""
    return np.where(dialogues.alive, dialogues.reward, 0.0).sum(axis=0)


def rows_equal(dialogues: SampledDialogues, row: int, other_dialogues: SampledDialogues, other_row: int) -> bool:
    dialogues, other_dialogues = jax.tree.map(np.asarray, (dialogues, other_dialogues))
    pairs = [
        (dialogues.transcript[row], other_dialogues.transcript[other_row]),
        (dialogues.response_starts[:, row], other_dialogues.response_starts[:, other_row]),
    ]
    pairs += [
        (dialogues.responses[:, row], other_dialogues.responses[:, other_row]),
        (dialogues.log_probs[:, row], other_dialogues.log_probs[:, other_row]),
    ]
    pairs += [
        (dialogues.reward[:, row], other_dialogues.reward[:, other_row]),
        (dialogues.alive[:, row], other_dialogues.alive[:, other_row]),
    ]
    return all((a == b).all() for a, b in pairs)


def test_failed_groups_recall_the_latest_success_of_their_prompt():
    start, step = init_and_step(SuccessReplay(num_slots=64))
    first = make_dialogues(0, [3, 4, 5], [1, 0, 0, 0, 1, 1])
    state, result, metrics = step(start, first)
    assert all(rows_equal(result, row, first, row) for row in range(6)) and metrics["recalled"] == 0
    second = make_dialogues(1, [3, 4, 5], [0, 0, 0, 0, 0, 1])
    state, result, metrics = step(state, second)
    assert rows_equal(result, 0, first, 0), "prompt 3 has failed, and was solved by row 0"
    assert all(rows_equal(result, row, second, row) for row in range(1, 6)), (
        "prompt 4 was never solved, prompt 5 is solved in this batch"
    )
    assert metrics["recalled"] == pytest.approx(1 / 3)
    third = make_dialogues(2, [5, 6, 3], [0, 0, 0, 0, 0, 0])
    _, result, _ = step(state, third)
    assert rows_equal(result, 0, second, 5) and rows_equal(result, 4, first, 0)
    assert all(rows_equal(result, row, third, row) for row in (1, 2, 3, 5))
    before, after = (jax.tree.map(lambda x: (x.shape, x.dtype), replay.dialogues) for replay in (start, state))
    assert before == after


def test_prompts_that_share_a_slot_are_not_mixed_up():
    state, step = init_and_step(SuccessReplay(num_slots=1))
    state, _, _ = step(state, make_dialogues(0, [3, 4], [1, 0, 0, 0]))
    later = make_dialogues(1, [4, 3], [0, 0, 0, 0])
    _, result, _ = step(state, later)
    assert rows_equal(result, 0, later, 0) and rows_equal(result, 2, make_dialogues(0, [3, 4], [1, 0, 0, 0]), 0)


def test_moving_average_of_earlier_batches_is_subtracted():
    returns = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    state, step = init_and_step(MovingAverageBaseline())
    for number, rewards in enumerate(returns):
        dialogues = make_dialogues(number, [3, 4], rewards)
        state, result, _ = step(state, dialogues)
        mean = np.mean([np.mean(r) for r in returns[:number]]) if number else 0.0
        np.testing.assert_allclose(returns_of(result), np.array(rewards) - mean, rtol=1e-6)
        np.testing.assert_allclose(result.reward[0], 0.0)


def expected_ratios(ratio_level, log_ratio):
    """Ratios by loops: of each token, or the product over its response or its dialogue."""
    ratios = np.zeros_like(log_ratio)
    for t, r, i in itertools.product(*map(range, log_ratio.shape)):
        by_level = {
            TokenLevelRatio: log_ratio[t, r, i],
            TurnLevelRatio: log_ratio[t, r].sum(),
            DialogueLevelRatio: log_ratio[:, r].sum(),
        }
        ratios[t, r, i] = np.exp(by_level[type(ratio_level)])
    return ratios


@pytest.mark.parametrize(
    "ratio_level", [TokenLevelRatio(), TurnLevelRatio(), DialogueLevelRatio()], ids=lambda x: type(x).__name__
)
def test_tokens_that_share_a_ratio_are_clipped_together(ratio_level):
    rng = np.random.default_rng(3)
    log_ratio = rng.normal(size=(3, 4, 2)) * 0.1
    advantage = np.broadcast_to(rng.normal(size=(1, 4, 1)), log_ratio.shape)
    objective = ClippedSurrogate(0.1, 0.1, ratio_level)

    def loss(x, advantage):
        return objective(x, x, advantage).sum()

    gradient = jax.jit(jax.grad(loss))(log_ratio.astype("float32"), advantage.astype("float32"))
    ratio = expected_ratios(ratio_level, log_ratio)
    unclipped = np.where(advantage > 0, ratio < 1.1, ratio > 0.9)
    assert unclipped.any() and not unclipped.all()
    np.testing.assert_allclose(gradient, np.where(unclipped, -ratio * advantage, 0.0), rtol=1e-4, atol=1e-6)


def test_first_turn_kl_is_larger_in_the_first_stage():
    rng = np.random.default_rng(0)
    log_probs, reference_log_probs = rng.normal(size=(2, 2, 3, 2)).astype("float32")
    kl_penalty = FirstTurnKL(0.01, 0.2, num_stage1_updates=5)
    penalty = jax.jit(
        lambda batch: kl_penalty(
            jnp.asarray(log_probs), jnp.zeros(log_probs.shape), jnp.asarray(reference_log_probs), batch
        )
    )
    early, late = (np.asarray(penalty(np.int32(i))) for i in (4, 5))
    np.testing.assert_allclose(late, 0.01 * (log_probs - reference_log_probs), rtol=1e-5)
    np.testing.assert_allclose(early[0], 0.2 * (log_probs - reference_log_probs)[0], rtol=1e-5)
    np.testing.assert_array_equal(early[1], late[1])


def test_players_have_separate_baselines():
    """Two dialogues of three players, the last of whom has no turn in one; baselines are subtracted at last turns."""
    spec = dataclasses.replace(SPEC, num_players=3)
    alive = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)
    returns = np.array([[1.0, -2.0, 0.0], [3.0, 0.5, 7.0]], "float32")
    responses = np.where(alive[..., None], 3, -1).astype("int32")
    last = np.array([[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)
    reward = np.where(last, returns.reshape(-1), 0.0).astype("float32")
    tokens, starts, truncated = np.zeros((6, 8), "int32"), np.zeros((4, 6), "int32"), np.zeros(6, bool)
    dialogues = SampledDialogues(
        *jax.device_put((tokens, starts, responses, alive, reward, truncated, np.zeros(responses.shape, "float32")))
    )
    count = np.array([2, 2, 1])
    for per_player in (True, False):
        transform = PlayerBaseline(0.9, per_player)
        init_state = lambda transform=transform: transform.init(MODEL, spec, 3, KEY) + 1.0  # noqa: E731
        baseline, result, _ = jax.jit(
            lambda transform=transform, init_state=init_state: transform(init_state(), dialogues, 1, KEY)
        )()
        counts = count if per_player else count.sum()
        total = returns.sum(axis=0) if per_player else returns.sum()
        expected = 0.9**counts + (1 - 0.9**counts) * total / counts
        np.testing.assert_allclose(baseline, np.broadcast_to(expected, 3), rtol=1e-5)
        np.testing.assert_allclose(
            result.reward, np.where(last, returns.reshape(-1) - np.tile(baseline, 2), 0.0), rtol=1e-5, atol=1e-6
        )

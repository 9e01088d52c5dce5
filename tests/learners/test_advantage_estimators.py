"""Advantage estimators of dialogues against sums written out; later rewards and padding must not change them."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.language.advantage_estimators import (
    GroupMean,
    GroupNormalized,
    LeaveOneOut,
    NoBaseline,
    RewardToGo,
    TokenGAE,
    TrajectoryReturn,
    TurnBatch,
    TurnGAE,
)

TIME, ROWS, WIDTH = 5, 4, 3


@functools.cache
def compiled(estimator):
    return jax.jit(lambda batch, value: estimator(batch, value))


def estimate(estimator, batch, value):
    """Advantages, targets and masks of an estimator, as numpy arrays."""
    value = None if value is None else jnp.asarray(value)
    return jax.tree.map(np.asarray, compiled(estimator)(batch, value))


def make_turn_batch(reward, alive, truncated, response_mask, *counts: int) -> TurnBatch:
    return TurnBatch(*map(jnp.asarray, (reward, alive, truncated, response_mask)), *counts)


def random_turns(seed: int = 0, group: int = 2) -> TurnBatch:
    """Dialogues of 2 to 5 turns, responses of 1 to 3 tokens; the last row is truncated."""
    rng = np.random.default_rng(seed)
    length = np.array([2, 5, 3, 5])
    alive = np.arange(TIME)[:, None] < length
    count = rng.integers(1, WIDTH + 1, (TIME, ROWS))
    response_mask = (np.arange(WIDTH) < count[..., None]) & alive[..., None]
    reward = rng.normal(size=(TIME, ROWS)).astype("float32")
    truncated = np.array([False, False, False, True])
    return make_turn_batch(reward, alive, truncated, response_mask, group)


def random_values(seed: int = 1):
    return np.random.default_rng(seed).normal(size=(TIME + 1, ROWS, WIDTH)).astype("float32")


ESTIMATORS = {
    "whole": TrajectoryReturn(LeaveOneOut()),
    "to go": RewardToGo(LeaveOneOut(), 0.9),
    "turn critic": TurnGAE(0.8, 0.9),
    "token critic": TokenGAE(0.8, 0.97),
}


def plain_advantages(
    batch: TurnBatch, row: int, value: np.ndarray, discount: float, gae_lambda: float, token: bool
) -> list:
    """Generalized advantages of one row, summed term by term over its turns or its tokens."""
    reward, response_mask = np.asarray(batch.reward)[:, row], np.asarray(batch.response_mask)[:, row]
    positions = [(t, i) for t in range(TIME) for i in range(WIDTH) if response_mask[t, i] and (token or i == 0)]
    rewards = [reward[t] if not token or not response_mask[t, i + 1 :].any() else 0.0 for t, i in positions]
    state_values = [float(value[t, row, i]) for t, i in positions]
    state_values.append(float(value[-1, row, 0]) if bool(np.asarray(batch.truncated)[row]) else 0.0)
    advantages = []
    for k in range(len(positions)):
        total = 0.0
        for j in range(k, len(positions)):
            total += (discount * gae_lambda) ** (j - k) * (
                rewards[j] + discount * state_values[j + 1] - state_values[j]
            )
        advantages.append((positions[k], total))
    return advantages


@pytest.mark.parametrize("name", ["turn critic", "token critic"])
def test_gae_matches_its_sum(name):
    batch, value = random_turns(), random_values()
    estimator = ESTIMATORS[name]
    result = estimate(estimator, batch, value)
    for row in range(ROWS):
        expected = plain_advantages(
            batch, row, np.asarray(value), estimator.discount, estimator.gae_lambda, name == "token critic"
        )
        for (t, i), advantage in expected:
            np.testing.assert_allclose(result.advantage[t, row, i], advantage, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(result.target[t, row, i], advantage + value[t, row, i], rtol=1e-4, atol=1e-5)
            assert bool(result.value_mask[t, row, i])
    assert not result.value_mask[~np.asarray(batch.response_mask)].any()


def test_rewards_of_tokens_come_with_their_tokens_and_the_rest_with_the_last():
    """Against sums over tokens; estimators that know turns only see the sum, which is the turn's reward."""
    batch, value, rng = random_turns(), random_values(), np.random.default_rng(5)
    mask, reward = np.asarray(batch.response_mask), np.asarray(batch.reward)
    earned = rng.normal(size=mask.shape).astype("float32")
    dense = dataclasses.replace(batch, token_rewards=jnp.asarray(earned))
    result = estimate(ESTIMATORS["token critic"], dense, value)
    discount, decay = 0.97, 0.8 * 0.97
    for row in range(ROWS):
        places = [(t, i) for t in range(TIME) for i in range(WIDTH) if mask[t, row, i]]
        rewards = [
            earned[t, row, i] + (0.0 if mask[t, row, i + 1 :].any() else reward[t, row] - earned[t, row, : i + 1].sum())
            for t, i in places
        ]
        values = [value[t, row, i] for t, i in places] + [value[-1, row, 0] if row == ROWS - 1 else 0.0]
        errors = [rewards[k] + discount * values[k + 1] - values[k] for k in range(len(places))]
        for k, (t, i) in enumerate(places):
            expected = sum(decay ** (j - k) * errors[j] for j in range(k, len(places)))
            np.testing.assert_allclose(result.advantage[t, row, i], expected, rtol=1e-4, atol=1e-5)
    for name in ("whole", "to go", "turn critic"):
        sums = estimate(ESTIMATORS[name], batch, value), estimate(ESTIMATORS[name], dense, value)
        np.testing.assert_array_equal(sums[0].advantage, sums[1].advantage)


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        (NoBaseline(), lambda own, other: own),
        (GroupMean(), lambda own, other: own - (own + other) / 2),
        (LeaveOneOut(), lambda own, other: own - other),
        (GroupNormalized(), lambda own, other: (own - other) / 2 / (abs(own - other) / 2**0.5 + 1e-4)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_group_baselines(baseline, expected):
    batch = random_turns()
    reward = np.where(batch.alive, batch.reward, 0.0)
    returns_advantage = estimate(TrajectoryReturn(baseline), batch, None).advantage
    to_go_advantage = estimate(RewardToGo(baseline, 0.9), batch, None).advantage
    for row in range(ROWS):
        partner = row ^ 1
        for t in range(TIME):
            mask = np.asarray(batch.response_mask)[t, row]
            np.testing.assert_allclose(
                returns_advantage[t, row, mask], expected(reward[:, row].sum(), reward[:, partner].sum()), rtol=1e-4
            )
            weight = 0.9 ** np.arange(TIME - t)
            own, other = ((weight * reward[t:, r]).sum() for r in (row, partner))
            np.testing.assert_allclose(to_go_advantage[t, row, mask], expected(own, other), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["to go", "turn critic", "token critic"])
def test_rewards_change_no_later_advantage(name):
    batch, value, row, turn = random_turns(), random_values(), 1, 2
    before, reward = estimate(ESTIMATORS[name], batch, value).advantage, np.array(batch.reward)
    reward[turn, row] += 1.0
    changed = dataclasses.replace(batch, reward=jnp.asarray(reward))
    moved = estimate(ESTIMATORS[name], changed, value).advantage != before
    mask = np.asarray(batch.response_mask)
    assert moved[: turn + 1, row][mask[: turn + 1, row]].all()
    assert not moved[turn + 1 :, row].any()
    assert name == "to go" or not np.delete(moved, row, axis=1).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_padding_changes_nothing(name):
    batch, value = random_turns(), random_values()
    result = estimate(ESTIMATORS[name], batch, value)
    reward = np.where(batch.alive, batch.reward, np.float32(1e6))
    changed_value = np.where(batch.response_mask, value[:-1], np.float32(-1e6))
    changed_result = estimate(
        ESTIMATORS[name],
        dataclasses.replace(batch, reward=jnp.asarray(reward)),
        np.concatenate([changed_value, value[-1:]]),
    )
    for name_ in ("advantage", "target"):
        first, second = (
            np.asarray(getattr(x, name_))[result.value_mask | np.asarray(batch.response_mask)]
            for x in (result, changed_result)
        )
        if name_ == "target":
            first, second = (
                np.asarray(getattr(x, name_))[np.asarray(result.value_mask)] for x in (result, changed_result)
            )
        assert first.tobytes() == second.tobytes()


def test_leave_one_out_baselines_are_unbiased():
    """Two responses, all outcomes enumerated: E[grad log p * (own reward - other reward)] is the true gradient."""
    reward = np.array([1.0, 3.0])
    logit = 0.3

    def expected_gradient(estimator):
        p = 1 / (1 + np.exp(-logit))
        probs, slope = np.array([p, 1 - p]), np.array([1 - p, -p])
        total = 0.0
        for a in range(2):
            for b in range(2):
                rewards = np.asarray([[reward[a], reward[b]]], "float32")
                response_mask = np.ones((1, 2, 1), bool)
                batch = make_turn_batch(rewards, np.ones((1, 2), bool), np.zeros(2, bool), response_mask, 2)
                advantage = estimate(estimator, batch, None).advantage
                total += (
                    probs[a] * probs[b] * 0.5 * float(slope[a] * advantage[0, 0, 0] + slope[b] * advantage[0, 1, 0])
                )
        return total

    p = 1 / (1 + np.exp(-logit))
    truth = p * (1 - p) * (reward[0] - reward[1])
    for baseline in (NoBaseline(), LeaveOneOut()):
        np.testing.assert_allclose(expected_gradient(TrajectoryReturn(baseline)), truth, rtol=1e-5)
    np.testing.assert_allclose(expected_gradient(TrajectoryReturn(GroupMean())), truth / 2, rtol=1e-5)


def test_players_are_compared_within_their_role():
    """Rows are two groups of two dialogues, each seen by three players."""
    rng = np.random.default_rng(3)
    returns = rng.normal(size=(4, 3)).astype("float32")
    reward = returns.reshape(1, -1)
    shape = (1, 12)
    batch = make_turn_batch(reward, np.ones(shape, bool), np.zeros(12, bool), np.ones((*shape, 2), bool), 2, 3)
    advantage = estimate(TrajectoryReturn(GroupMean()), batch, None).advantage[0, :, 0].reshape(2, 2, 3)
    grouped = returns.reshape(2, 2, 3)
    np.testing.assert_allclose(advantage, grouped - grouped.mean(axis=1, keepdims=True), atol=1e-6)


def test_turns_of_other_players_are_skipped():
    """Turns of other players between two own turns do not change the advantages."""
    rng = np.random.default_rng(4)
    reward, value = rng.normal(size=(3, 2)).astype("float32"), rng.normal(size=(4, 2, 1)).astype("float32")
    dense = make_turn_batch(reward, np.ones((3, 2), bool), np.zeros(2, bool), np.ones((3, 2, 1), bool), 2)
    alive = np.array([True, False, True, False, True, False])
    wide_reward, wide_value = np.zeros((6, 2), "float32"), rng.normal(size=(7, 2, 1)).astype("float32")
    wide_reward[alive], wide_value[:-1][alive] = reward, value[:-1]
    alive_rows = np.broadcast_to(alive[:, None], (6, 2))
    wide = make_turn_batch(wide_reward, alive_rows, np.zeros(2, bool), alive_rows[..., None], 2)
    for estimator in (RewardToGo(GroupMean(), 0.8), TurnGAE(0.8, 0.9)):
        np.testing.assert_allclose(
            estimate(estimator, wide, wide_value).advantage[alive],
            estimate(estimator, dense, value).advantage,
            rtol=1e-5,
        )

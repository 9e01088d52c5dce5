"""Negative-aware fine-tuning (NFT): gradients against the paper's loss by finite differences, and against GRPO."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.language.advantage_estimators import GroupMean, GroupNormalized, TrajectoryReturn, TurnBatch
from thespis.learners.language.nft import FailureWeight, NegativeAwareLoss, OddsWeight, nft_loss
from thespis.learners.language.policy_losses import ClippedSurrogate

MEMBERS, LENGTH, NUM_TOKENS = 5, 3, 4
CORRECT = np.array([[1, 0, 0, 1, 0], [1, 1, 1, 1, 0]], bool)
"""Whether responses are correct: two prompts with five responses each."""
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, NUM_TOKENS, (CORRECT.size, LENGTH))
LOGITS = RNG.normal(size=(LENGTH, NUM_TOKENS))


def log_probs(logits):
    normalized = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return normalized[np.arange(LENGTH), TOKENS]


def paper_loss(logits, weight_of, floor=1.0, negatives=1.0):
    """The paper's loss by loops, summed over tokens and responses."""
    total, ratio = 0.0, np.exp(log_probs(logits) - log_probs(LOGITS))
    for row, correct in enumerate(CORRECT.ravel()):
        rate = CORRECT[row // MEMBERS].mean()
        for token_ratio in ratio[row]:
            implied = max((1 - rate * token_ratio) / (1 - rate), floor)
            total += weight_of(rate) * (-np.log(token_ratio) if correct else -negatives * np.log(implied))
    return total


def finite_differences(loss, point, step=1e-5):
    gradient = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        offset = np.zeros_like(point)
        offset[index] = step
        gradient[index] = (loss(point + offset) - loss(point - offset)) / (2 * step)
    return gradient


@functools.cache
def advantages(baseline):
    @jax.jit
    def compute(rewards):
        mask = jnp.ones((1, CORRECT.size, LENGTH), bool)
        return TrajectoryReturn(baseline)(
            TurnBatch(rewards, mask[..., 0], ~mask[0, :, 0], mask, MEMBERS), None
        ).advantage

    return np.asarray(compute(CORRECT.ravel()[None].astype("float32")))


def gradient(objective, advantage, point=LOGITS):
    def loss(logits, advantage):
        log_probs_now = jax.nn.log_softmax(logits)[jnp.arange(LENGTH), TOKENS]
        old_log_probs = jnp.asarray(log_probs(LOGITS), "float32")
        return objective(log_probs_now[None], (log_probs_now - old_log_probs)[None], advantage).sum()

    return np.asarray(jax.jit(jax.grad(loss))(point.astype("float32"), advantage.astype("float32")))


def test_on_policy_gradient_equals_grpo():
    """Theorem of Chen et al. 2025: with the root of the odds as weight, NFT equals GRPO with population deviations."""
    # from the sample to the population deviation
    scaled = advantages(GroupNormalized()) * (MEMBERS / (MEMBERS - 1)) ** 0.5
    aware = gradient(NegativeAwareLoss(OddsWeight()), advantages(GroupMean()))
    np.testing.assert_allclose(aware, gradient(ClippedSurrogate(), scaled), rtol=2e-3, atol=2e-3)
    assert np.abs(aware).max() > 0.1
    plain = gradient(NegativeAwareLoss(FailureWeight()), advantages(GroupMean()))
    np.testing.assert_allclose(plain, gradient(ClippedSurrogate(), advantages(GroupMean())), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("weighting", "weight_of"),
    [
        (OddsWeight(), lambda rate: ((1 - rate) / rate) ** 0.5),
        (FailureWeight(), lambda rate: 1 - rate),
    ],
    ids=["odds", "failures"],
)
@pytest.mark.parametrize("negatives", [1.0, 0.0])
def test_gradient_matches_the_papers_loss(weighting, weight_of, negatives):
    """Also off-policy, where no implied ratio is below the floor."""
    point = LOGITS + 0.05 * RNG.normal(size=LOGITS.shape)
    ratio = np.exp(log_probs(point) - log_probs(LOGITS)).reshape(2, MEMBERS, LENGTH)
    rate = CORRECT.mean(axis=1)[:, None, None]
    floor = 0.5
    assert ((1 - rate * ratio) / (1 - rate) > floor).all()
    objective = NegativeAwareLoss(weighting, negatives, floor)
    expected = finite_differences(lambda x: paper_loss(x, weight_of, floor, negatives), point)
    np.testing.assert_allclose(gradient(objective, advantages(GroupMean()), point), expected, rtol=1e-3, atol=1e-3)


def test_gradient_passes_straight_through_below_the_floor():
    value_and_grad = jax.jit(jax.value_and_grad(lambda x: nft_loss(x, jnp.array([False]), jnp.array([0.6]), 0.9).sum()))
    value, gradient = value_and_grad(np.array([0.3], "float32"))
    assert value == pytest.approx(-np.log(0.9), abs=1e-6)
    assert gradient.item() == pytest.approx(0.6 * np.exp(0.3) / 0.4 / 0.9, rel=1e-5)
    assert np.isfinite(value_and_grad(np.array([80.0], "float32"))[1]).all()


def test_groups_with_equal_rewards_have_no_gradient():
    @jax.jit
    def gradient(reward):
        mask = jnp.ones((1, 2, 1), bool)
        turns = TurnBatch(jnp.full((1, 2), reward), mask[..., 0], ~mask[0, :, 0], mask, 2)
        advantage = TrajectoryReturn(GroupMean())(turns, None).advantage
        return jax.grad(lambda x: NegativeAwareLoss()(x, x, advantage).sum())(jnp.zeros(advantage.shape))

    for reward in (0.0, 1.0):
        assert not np.asarray(gradient(reward)).any()

"""Learning from wrong answers: the theorem of its paper, against the formula written out and numeric slopes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.baselines import Mean, Scaled
from thespis.learners.credit import Turns, Whole
from thespis.learners.negatives import ByFailures, ByOdds, NegativeAware
from thespis.learners.utterances import Clipped
from thespis.objectives.negatives import negative_aware

MEMBERS, IDS, WORDS = 5, 3, 4
RIGHT = np.array([[1, 0, 0, 1, 0], [1, 1, 1, 1, 0]], bool)
"""Two questions, five answers each."""
RNG = np.random.default_rng(0)
SAID = RNG.integers(0, WORDS, (RIGHT.size, IDS))
LOGITS = RNG.normal(size=(IDS, WORDS))


def log_probs(logits):
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logs[np.arange(IDS), SAID]


def written_out(logits, weigh, floor=1.0, negatives=1.0):
    """The paper's loss by loops: ids of an answer are summed, answers too."""
    total, ratio = 0.0, np.exp(log_probs(logits) - log_probs(LOGITS))
    for row, right in enumerate(RIGHT.ravel()):
        rate = RIGHT[row // MEMBERS].mean()
        for one in ratio[row]:
            implied = max((1 - rate * one) / (1 - rate), floor)
            total += weigh(rate) * (-np.log(one) if right else -negatives * np.log(implied))
    return total


def slopes(loss, at, by=1e-5):
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        away = np.zeros_like(at)
        away[place] = by
        found[place] = (loss(at + away) - loss(at - away)) / (2 * by)
    return found


@functools.cache
def advantages(baseline):
    @jax.jit
    def told(rewards):
        real = jnp.ones((1, RIGHT.size, IDS), bool)
        return Whole(baseline)(Turns(rewards, real[..., 0], ~real[0, :, 0], real, MEMBERS), None).advantage

    return np.asarray(told(RIGHT.ravel()[None].astype("float32")))


def gradient(objective, advantage, at=LOGITS):
    def loss(logits, advantage):
        logs = jax.nn.log_softmax(logits)[jnp.arange(IDS), SAID]
        before = jnp.asarray(log_probs(LOGITS), "float32")
        return objective(logs[None], (logs - before)[None], advantage).sum()

    return np.asarray(jax.jit(jax.grad(loss))(at.astype("float32"), advantage.astype("float32")))


def test_on_what_was_sampled_its_gradient_is_that_of_grpo():
    """Theorem of Chen et al. 2025: with the root of the odds as weight, GRPO over the deviation of a whole group."""
    spread = advantages(Scaled()) * (MEMBERS / (MEMBERS - 1)) ** 0.5  # which is not that of a sample of it
    aware = gradient(NegativeAware(ByOdds()), advantages(Mean()))
    np.testing.assert_allclose(aware, gradient(Clipped(), spread), rtol=2e-3, atol=2e-3)
    assert np.abs(aware).max() > 0.1
    plain = gradient(NegativeAware(ByFailures()), advantages(Mean()))
    np.testing.assert_allclose(plain, gradient(Clipped(), advantages(Mean())), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("weighting", "weigh"), [
    (ByOdds(), lambda rate: ((1 - rate) / rate) ** 0.5), (ByFailures(), lambda rate: 1 - rate),
], ids=["odds", "failures"])  # fmt: skip
@pytest.mark.parametrize("negatives", [1.0, 0.0])
def test_it_is_the_paper_s_loss(weighting, weigh, negatives):
    """Away from what was sampled too, where no implied ratio is below the floor."""
    at = LOGITS + 0.05 * RNG.normal(size=LOGITS.shape)
    ratio = np.exp(log_probs(at) - log_probs(LOGITS)).reshape(2, MEMBERS, IDS)
    rate = RIGHT.mean(axis=1)[:, None, None]
    floor = 0.5
    assert ((1 - rate * ratio) / (1 - rate) > floor).all()
    objective = NegativeAware(weighting, negatives, floor)
    wanted = slopes(lambda x: written_out(x, weigh, floor, negatives), at)
    np.testing.assert_allclose(gradient(objective, advantages(Mean()), at), wanted, rtol=1e-3, atol=1e-3)


def test_below_the_floor_the_slope_goes_straight_through():
    told = jax.jit(jax.value_and_grad(lambda x: negative_aware(x, jnp.array([False]), jnp.array([0.6]), 0.9).sum()))
    found, slope = told(np.array([0.3], "float32"))
    assert found == pytest.approx(-np.log(0.9), abs=1e-6)
    assert slope.item() == pytest.approx(0.6 * np.exp(0.3) / 0.4 / 0.9, rel=1e-5)
    assert np.isfinite(told(np.array([80.0], "float32"))[1]).all()


def test_a_question_that_all_answer_alike_teaches_nothing():
    @jax.jit
    def slope(right):
        real = jnp.ones((1, 2, 1), bool)
        turns = Turns(jnp.full((1, 2), right), real[..., 0], ~real[0, :, 0], real, 2)
        told = Whole(Mean())(turns, None).advantage
        return jax.grad(lambda x: NegativeAware()(x, x, told).sum())(jnp.zeros(told.shape))

    for right in (0.0, 1.0):
        assert not np.asarray(slope(right)).any()

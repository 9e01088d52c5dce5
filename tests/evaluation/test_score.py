"""Realised returns with the critic's entropy bonus, against a hand calculation and the values of trained critics."""

import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.records import Critique, Transition, View
from thespis.evaluation.calibration import realized_returns
from thespis.evaluation.score import _critic_rewards
from thespis.evidence.measures import overestimation
from thespis.learners.off_policy.temperature import FixedTemperature


def test_an_entropy_bonus_counts_in_the_steps_before_it():
    """``G_t = r_t + d (b_(t+1) + G_(t+1))`` by hand, in an episode of three steps that terminates."""
    reward, bonus = np.array([1.0, 2.0, 3.0]), jnp.array([10.0, 20.0, 30.0, 99.0])  # one more than the steps: padding
    end = np.array([False, False, True])
    view = View(np.zeros((3, 1)))
    steps = Transition(view, np.zeros(3), reward, end, ~np.ones(3, bool), view, np.zeros(3, bool))
    second = 2 + 0.5 * (30 + 3)
    expected = [1 + 0.5 * (20 + second), second, 3]

    def returns(critique):
        return realized_returns(_critic_rewards(steps, critique, 0.5), end, end, 0.5)

    np.testing.assert_allclose(returns(Critique(entropy_bonus=bonus)), expected)
    np.testing.assert_allclose(returns(Critique()), [1 + 0.5 * (2 + 0.5 * 3), 2 + 0.5 * 3, 3])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sac", "sac-v"])
def test_soft_values_agree_with_soft_returns(method, tmp_path):
    """With a temperature of 1, the entropy bonus is far larger than the tolerance: plain returns would differ."""
    configured = {"sac": thespis.SAC, "sac-v": thespis.SACV}[method](
        hidden_sizes=(32,), learning_rate=3e-3, discount=0.9, temperature=FixedTemperature(1.0), tau=0.02
    )
    run = thespis.train(configured, "probe:ending-continuous", steps=3_000, seeds=2, out=tmp_path / "run")
    assert np.abs(overestimation().compute(run)).max() < 0.1

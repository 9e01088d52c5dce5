"""Measure of how monotonic a training was, on learning curves whose falls are known."""

import numpy as np
import pytest

import thespis
from thespis.data.feeds import Rollouts
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.online.ppo import PPO
from thespis.papers.decentralized_policy_optimization.measures import fall_below_maximum, largest_fall


@pytest.mark.parametrize(
    ("returns", "fall"),
    [
        ([1.0, 3.0, 2.0, 5.0, 1.5, 4.0], 3.5),
        ([np.nan, -2.0, -1.0, np.nan, 0.0, 0.5], 0.0),
        ([5.0, 4.0, 9.0, 8.5], 1.0),
    ],
)
def test_fall_of_known_curves(returns, fall):
    assert fall_below_maximum(np.array(returns)) == fall


def test_measure_reads_each_seed(tmp_path):
    method = IPPO(PPO(hidden_sizes=(4,), num_epochs=1, minibatch_size=8, feed=Rollouts(num_steps=4, num_envs=2)))
    env = "thespis.papers.bayesian_joint_policy.envs:ClimbingGame"
    run = thespis.train(
        method, env, steps=96, seeds=[0, 1], episodes=1, preset=None, evaluate_every=0, out=tmp_path / "run"
    )
    table, falls = run.metrics(), []
    for seed in (0, 1):
        best, worst = -np.inf, 0.0
        for value in table["episode_return"][table["seed"] == seed]:
            if np.isfinite(value):
                best = max(best, value)
                worst = max(worst, best - value)
        falls.append(worst)
    np.testing.assert_allclose(largest_fall().compute(run), falls)

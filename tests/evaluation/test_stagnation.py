"""Runs that learned nothing are told from those that did, on curves with known changes."""

import numpy as np
import pytest

import thespis
from thespis.data.feeds import Rollouts
from thespis.evaluation.stagnation import describe_stagnation


def metrics(*curves):
    return {
        "seed": np.repeat(np.arange(len(curves)), [len(curve) for curve in curves]).astype(float),
        "episode_return": np.concatenate([np.asarray(curve, float) for curve in curves]),
    }


def noise(seed, size=100):
    return np.random.default_rng(seed).normal(size=size)


@pytest.mark.parametrize("env", ["gymnax:CartPole-v1", "object:drift:Drift"])
def test_a_return_that_never_moves_is_reported(env):
    text = describe_stagnation(metrics(-1200 + noise(0), -1210 + noise(1)), env)
    assert "the return did not move" in text and text.endswith(f"thespis doctor {env.removeprefix('object:')}")
    text = describe_stagnation(metrics(np.zeros(50), np.zeros(50)), env)
    assert "every episode returned 0, from the first to the last" in text and "--feedback rnd" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "curves",
    [
        [noise(0), np.linspace(0, 4, 100) + noise(1)],  # one seed learns
        [np.concatenate([np.zeros(33), np.ones(34), np.zeros(33)]) + 0.3 * noise(2)],  # learned and forgotten
        [np.zeros(11)],  # too short
        [np.full(50, np.nan)],
        [],
    ],
)
def test_other_runs_are_not(curves):
    assert describe_stagnation(metrics(*curves) if curves else metrics([]), None) == ""


@pytest.mark.long
def test_the_report_comes_at_the_end_of_a_run(tmp_path):
    events = []
    method = thespis.PPO(hidden_sizes=(4,), num_epochs=1, learning_rate=0.0, feed=Rollouts(num_steps=16, num_envs=2))
    options = {"steps": 512, "report_every": 32, "episodes": 1, "out": tmp_path / "run", "callbacks": [events.append]}
    thespis.train(method, env="probe:constant", **options)
    warnings = [event.data["message"] for event in events if event.kind == "warning"]
    assert len(warnings) == 1 and "every episode returned 10, from the first to the last" in warnings[0]
    assert events[-1].kind == "done"

"""Learning from preferences: SAC solves Pendulum without seeing its reward."""

import csv

import pytest

import thespis
from thespis.data.feeds import Replay
from thespis.feedback.preference_reward import PreferenceReward


@pytest.mark.slow
def test_sac_solves_pendulum_from_at_most_1000_comparisons(tmp_path):
    """Random play returns about -1,280, SAC with the true reward about -150."""
    method = thespis.SAC(hidden_sizes=(64, 64), learning_rate=1e-3, feed=Replay(batch_size=128, learning_starts=500))
    feedback = PreferenceReward(query_interval=300)
    run = thespis.train(
        method, env="Pendulum-v1", feedback=feedback, steps=8_000, seeds=2, episodes=10, out=tmp_path / "run"
    )
    assert run.final_scores["greedy"]["iqm"] > -350
    with open(tmp_path / "run" / "metrics.csv") as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["feedback_comparisons"]) == 1_000 and float(last["feedback_reward_correlation"]) > 0.8

"""Measures of flight: the strict return against one computed from what critics observe, and the share of crashes."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.data.feeds import Replay
from thespis.envs.host.wrapper import HostWrapper
from thespis.evaluation.rollout import play_episodes
from thespis.evaluation.run import Run
from thespis.evidence.benches.flight import ENV
from thespis.methods.online.td3 import TD3
from thespis.papers.learning_to_fly import measures
from thespis.papers.learning_to_fly.planar import PlanarQuadrotor


class ScoresOnlyRun(Run):
    """A run with the final scores of two seeds, and no files."""

    def __init__(self):
        self.path = "nowhere"

    @property
    def config(self):
        return {"env": ENV}

    @property
    def final_scores(self):
        return {"greedy": {"scores": [[150.0, 150.0], [180.0, 190.0]]}}


@pytest.mark.slow
def test_flights_are_judged_by_the_final_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(measures, "NUM_EPISODES", 2)
    feed = Replay(batch_size=4, learning_starts=8, buffer_size=64)
    run = thespis.train(TD3(hidden_sizes=(8,), feed=feed), ENV, steps=12, seeds=2, episodes=1, out=tmp_path / "td3")
    flights = measures.planar_strict_flights(run)
    envs = HostWrapper(PlanarQuadrotor(), 4)
    played = play_episodes(run.method, run.states, envs, [0, 1], Mode.EXPLOIT, num_kept=2, stream="strict")
    for seed in range(2):
        for number, steps in enumerate(played.episodes[seed]):
            x, z, cos, _, vx, vz = np.asarray(steps.privileged, np.float64)[:, :6].T
            effort = np.sum((np.clip(steps.action, -1, 1) - (np.sqrt(2) - 1)) ** 2, axis=1)
            cost = 40 * (x**2 + z**2) + 5 * (1 - cos) / 2 + vx**2 + vz**2 + effort
            rewards = np.where(steps.terminated, 0.0, 2 - cost / 2)
            assert flights.episode_lengths[seed, number] == len(rewards)
            assert flights.episode_returns[seed, number] == pytest.approx(rewards.sum(), rel=1e-3)


def test_what_the_final_weights_take_is_a_share_of_the_highest_return(monkeypatch):
    flights = SimpleNamespace(episode_returns=np.array([[60.0, 40.0], [180.0, 180.0]]))
    monkeypatch.setattr(measures, "planar_strict_flights", lambda run, random_play=False: flights)
    np.testing.assert_allclose(measures.strictness_loss().compute(ScoresOnlyRun()), [0.5, 0.025])


def test_final_weights_leave_the_rest_of_a_flight_as_it_is():
    flight = PlanarQuadrotor().spec.params
    strict = measures.with_final_weights(flight)
    weights = {f.name: float(getattr(strict.reward, f.name)) for f in dataclasses.fields(strict.reward)}
    assert (weights["position"], weights["velocity"], weights["action"]) == (40.0, 1.0, 1.0)
    changed = jax.tree.map(lambda a, b: bool(a != b), flight, strict)
    assert sum(jax.tree.leaves(changed)) == 3

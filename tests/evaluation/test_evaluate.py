"""Evaluation: requested mode, whole episodes, statistics over training seeds, reset of the actor's memory."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import HostEnvAdapter, Walk

from thespis.core.contracts import Mode
from thespis.core.records import Critique, Report
from thespis.core.spaces import Discrete
from thespis.data.feeds import Rollouts
from thespis.evaluation.actor import Actor
from thespis.evaluation.rollout import RolloutResult, play_episodes
from thespis.evaluation.score import summarize_returns
from thespis.evaluation.statistics import bootstrap_interval, iqm

SPEC = Walk(Discrete(4)).spec


class ModeReporter(eqx.Module):
    """Its first action is the index of the mode, later ones are the number of steps since the start of the episode."""

    feed: ClassVar[Rollouts] = Rollouts(2)
    name: ClassVar[str] = "telling"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return jnp.zeros(())

    def policy(self, state, mode):
        return jnp.int32(list(Mode).index(mode))

    def init_memory(self, policy, n):
        return jnp.zeros(n, "int32")

    def act(self, policy, memory, view, key):
        return jnp.where(memory == 0, policy, memory % 4).astype("int32"), memory + 1, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


@pytest.mark.parametrize("mode", list(Mode))
def test_an_actor_plays_in_the_requested_mode(mode):
    result = play_episodes(
        ModeReporter(), jnp.zeros(1), HostEnvAdapter(Walk(Discrete(4)), 2, [0]), [0], mode, num_kept=1, max_steps=20
    )
    (episode,) = result.episodes[0]
    assert episode.action[0] == list(Mode).index(mode)


def test_an_episode_ends_at_its_time_limit():
    """Rewards after the end do not count, whether it was terminated or truncated."""
    env = HostEnvAdapter(Walk(Discrete(4), limit=3, risk=0.1), 30, [0, 1])
    result = play_episodes(ModeReporter(), jnp.zeros(2), env, [0, 1], Mode.SAMPLE, num_kept=30, max_steps=20)
    assert result.episode_lengths.max() == 3 and result.episode_lengths.min() < 3
    for seed, episodes in enumerate(result.episodes):
        for index, steps in enumerate(episodes):
            assert len(steps.reward) == result.episode_lengths[seed, index] and (steps.terminated | steps.truncated)[-1]
            assert result.episode_returns[seed, index] == pytest.approx(steps.reward.sum(), abs=1e-5)


def test_scores_are_statistics_over_seeds():
    """Six seeds with different means and nearly equal episodes: more episodes do not narrow the interval."""
    rng = np.random.default_rng(0)
    means = np.array([1.0, 5.0, 9.0, 2.0, 7.0, 4.0])
    returns = means[:, None] + rng.normal(scale=0.01, size=(6, 50))
    summary = summarize_returns(RolloutResult(returns, np.ones((6, 50), int), []))
    assert (
        summary["iqm"] == pytest.approx(iqm(returns.mean(axis=1)))
        and summary["seeds"] == 6
        and summary["episodes"] == 50
    )
    assert summary["interval"] == bootstrap_interval(returns.mean(axis=1))


def test_reset_clears_the_memory_of_an_actor():
    actor = Actor(ModeReporter(), jnp.zeros(()), SPEC, greedy=True)
    obs = np.zeros(3, "float32")
    first = list(Mode).index(Mode.EXPLOIT)
    assert [int(actor(obs)) for _ in range(4)] == [first, 1, 2, 3]
    actor.reset()
    assert [int(actor(obs)) for _ in range(2)] == [first, 1]
    assert jax.tree.leaves(actor._memory)[0].shape == (1,)

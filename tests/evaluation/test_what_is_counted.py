"""What an evaluation counts: the mode that was asked for, whole episodes, training seeds; and that it forgets."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import AsHost, Walk

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Critique, Report
from thespis.core.spaces import Discrete
from thespis.evaluation.acting import Actor
from thespis.evaluation.play import Played, play
from thespis.evaluation.score import summary
from thespis.evaluation.statistics import interval, iqm

SPEC = Walk(Discrete(4)).spec


class Telling(eqx.Module):
    """Its action is the number of the mode that it plays in, then how many steps of the episode it has acted in."""

    feed: ClassVar[Rollouts] = Rollouts(2)
    name: ClassVar[str] = "telling"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return jnp.zeros(())

    def policy(self, state, mode):
        return jnp.int32(list(Mode).index(mode))

    def begin(self, policy, n):
        return jnp.zeros(n, "int32")

    def act(self, policy, memory, view, key):
        return jnp.where(memory == 0, policy, memory % 4).astype("int32"), memory + 1, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


@pytest.mark.parametrize("mode", list(Mode))
def test_an_actor_plays_in_the_mode_that_was_asked_for(mode):
    found = play(Telling(), jnp.zeros(1), AsHost(Walk(Discrete(4)), 2, [0]), [0], mode, keep=1, longest=20)
    (episode,) = found.kept[0]
    assert episode.action[0] == list(Mode).index(mode)


def test_an_episode_ends_at_its_time_limit():
    """Rewards of what follows are not in it, whichever way it ended."""
    world = AsHost(Walk(Discrete(4), limit=3, risk=0.1), 30, [0, 1])
    found = play(Telling(), jnp.zeros(2), world, [0, 1], Mode.SAMPLE, keep=30, longest=20)
    assert found.lengths.max() == 3 and found.lengths.min() < 3
    for row, episodes in enumerate(found.kept):
        for at, steps in enumerate(episodes):
            assert len(steps.reward) == found.lengths[row, at] and (steps.terminated | steps.truncated)[-1]
            assert found.returns[row, at] == pytest.approx(steps.reward.sum(), abs=1e-5)


def test_a_score_is_one_of_seeds():
    """Six seeds far apart, whose episodes are all alike: many episodes make nothing surer."""
    rng = np.random.default_rng(0)
    means = np.array([1.0, 5.0, 9.0, 2.0, 7.0, 4.0])
    returns = means[:, None] + rng.normal(scale=0.01, size=(6, 50))
    told = summary(Played(returns, np.ones((6, 50), int), []))
    assert told["iqm"] == pytest.approx(iqm(returns.mean(axis=1))) and told["seeds"] == 6 and told["episodes"] == 50
    assert told["interval"] == interval(returns.mean(axis=1))


def test_a_reset_actor_has_forgotten():
    actor = Actor(Telling(), jnp.zeros(()), SPEC, greedy=True)
    seen = np.zeros(3, "float32")
    first = list(Mode).index(Mode.EXPLOIT)
    assert [int(actor(seen)) for _ in range(4)] == [first, 1, 2, 3]
    actor.reset()
    assert [int(actor(seen)) for _ in range(2)] == [first, 1]
    assert jax.tree.leaves(actor._memory)[0].shape == (1,)

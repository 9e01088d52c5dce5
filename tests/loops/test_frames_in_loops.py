"""Training on stacks of which each frame is kept once: the same learner, bit for bit, as on stacks kept whole."""

from __future__ import annotations

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from worlds import AsHost, Stacks, Walk

from thespis.core.apart import together
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.laws import as_numpy, same_bits
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import Fixed
from thespis.data import frames
from thespis.envs import registry
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.parts import Parts
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint

SEEDS, ENVS = [0, 3], 3
WORLD = Stacks(Walk(Discrete(3), legal=True, limit=9, risk=0.05))
FEED = Replay(capacity=60, batch=6, warmup=9, every=2, updates=2, length=2, envs=ENVS)


def loop(kind: str, count: int, world=WORLD) -> CompiledLoop | HostLoop:
    parts = Parts(DQN(hidden=(8,), feed=dataclasses.replace(FEED, frames=count)), EnvironmentReward(), Fixed())
    if kind == "compiled":
        return CompiledLoop(parts, world, ENVS, SEEDS, 1000)
    return HostLoop(parts, AsHost(world, ENVS, SEEDS), ENVS, SEEDS, 1000)


@pytest.fixture
def room_to_spare(monkeypatch):
    """All starts of episodes fit, short as these are."""
    monkeypatch.setattr(frames, "SPARE", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compiled", pytest.param("host", marks=pytest.mark.slow)])
def test_learning_is_the_same_and_resumes(kind, room_to_spare, tmp_path):
    once, whole = loop(kind, 2), loop(kind, 0)
    ends = []
    for which in (once, whole):
        carry = which.advance(which.init(), 10)  # the ring of 20 rows is full
        checkpoint.save(tmp_path / "a.ckpt", which.snapshot(carry), {})
        snapshot = checkpoint.load(tmp_path / "a.ckpt", which.snapshot(carry))[0]
        carry = which.advance(carry, 15)
        ends.append(carry)
        again = which.advance(which.restore(snapshot)[0], 15)
        same_bits(as_numpy(again), as_numpy(carry), "resumed")
    learnt = [as_numpy((end.learner.method, end.tally, end.world.view)) for end in ends]
    same_bits(*learnt, "frames once, and whole")
    store = together(ends[0].learner.store)
    assert not np.any(store.torn)
    held = jax.vmap(frames.FrameRing.held, (0, None))(store, jnp.asarray(int(ends[0].ticks)))
    assert held.tolist() == [20, 20]


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_a_wrong_declaration_is_told_at_once(kind):
    world = Walk(Discrete(3), Box((3,)))  # three numbers, which are no stack of three
    wrong = loop(kind, 3, world)
    with pytest.raises(UserError, match=r"^feed.frames=3, but an observation is not .* set feed.frames=0"):
        wrong.advance(wrong.init(), 1)
    with pytest.raises(UserError, match=r"^feed.frames=4 needs observations \[4, ...\]"):
        loop(kind, 4, world)


def stacked_cartpole(padding: str):
    """Cart-poles as Gymnasium stacks them."""
    return lambda: FrameStackObservation(gymnasium.make("CartPole-v1"), 4, padding_type=padding)


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.slow
def test_stacks_of_gymnasium(padding):
    """Whichever way it fills the first stack of an episode."""
    ends = []
    for count in (4, 0):
        feed = dataclasses.replace(FEED, capacity=600, frames=count)
        parts = Parts(DQN(hidden=(8,), feed=feed), EnvironmentReward(), Fixed())
        which = HostLoop(parts, registry.host(stacked_cartpole(padding), ENVS), ENVS, [0], 1000)
        carry = which.advance(which.init(), 60)
        ends.append(as_numpy((carry.learner.method, carry.tally)))
        which.close()
    assert ends[0][1].episodes[0] > 5
    same_bits(*ends, "frames once, and whole")

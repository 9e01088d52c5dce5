"""Training on stacks of which each frame is kept once: the same learner, bit for bit, as on stacks kept whole."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import AsHost, Stacks, Walk

from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.laws import as_numpy, same_bits
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import Fixed
from thespis.data import frames
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.parts import Parts
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint

SEEDS, ENVS = [0, 3], 3
WORLD = Stacks(Walk(Discrete(3), limit=9, risk=0.05))
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


@pytest.mark.parametrize("kind", ["compiled", "host"])
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
    assert np.any(ends[0].learner.store.torn) == np.False_
    held = jax.vmap(frames.FrameRing.held, (0, None))(ends[0].learner.store, jnp.asarray(ends[0].ticks))
    assert held.tolist() == [20, 20]


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_a_wrong_declaration_is_told_at_once(kind):
    world = Walk(Discrete(3), Box((3,)))  # three numbers, which are no stack of three
    wrong = loop(kind, 3, world)
    with pytest.raises(UserError, match=r"^feed.frames=3, but an observation is not .* set feed.frames=0"):
        wrong.advance(wrong.init(), 1)
    with pytest.raises(UserError, match=r"^feed.frames=4 needs observations \[4, ...\]"):
        loop(kind, 4, world)

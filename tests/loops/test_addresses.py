"""What loops count, and the random keys that follow from it, told by a method that learns to count and no more."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import AsHost, Walk

from thespis.core.feeds import Logged, Replay
from thespis.core.keys import per_index, roots
from thespis.core.laws import as_numpy, same_bits
from thespis.core.records import Critique, Report, TimeStep
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete, random_action
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.acting import WorldsHere
from thespis.loops.clock import Clock
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.logged import LoggedLoop
from thespis.loops.pace import FixedLag
from thespis.loops.parts import Parts, kinds_of_rows, with_array_leaves
from thespis.loops.shares import Split
from thespis.runs import checkpoint

WORLD, ENVS, SEEDS, BLOCKS = Walk(Discrete(4)), 3, [0, 3], 5
FEED = Replay(capacity=90, batch=2, warmup=12, every=2, updates=3, envs=ENVS, lag=0)


class Counting(eqx.Module):
    """It keeps the numbers of its updates, plays at random, and remembers how many steps it has acted in."""

    feed: Replay | Logged = eqx.field(static=True, default=FEED)
    name: ClassVar[str] = "counting"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return jnp.full(40, -1), jnp.zeros((), "int32")

    def policy(self, state, mode):
        return ()

    def begin(self, policy, n):
        return jnp.zeros(n, "int32")

    def act(self, policy, memory, view, key):
        keys = per_index(key, len(memory))
        return jax.vmap(lambda k: random_action(WORLD.action, k, None))(keys), memory + 1, {"before": memory}

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        numbers, count = state
        return (numbers.at[count].set(batch.index), count + 1), Report({"index": batch.index.astype("float32")})


class Rising(eqx.Module):
    """A curriculum whose every block is harder than the one before."""

    name: ClassVar[str] = "rising"
    citations: ClassVar[tuple] = ()

    def init(self, spec, key):
        return jnp.zeros(())

    def draw(self, state, key, n):
        return {"push": jnp.full(n, state)}

    def update(self, state, outcomes, key):
        return state + 1.0, Report({})


def parts(method=None, curriculum=None):
    return Parts(method or Counting(), EnvironmentReward(), curriculum or Fixed())


def loop_of(kind):
    if kind == "compiled":
        return CompiledLoop(parts(), WORLD, ENVS, SEEDS, 1000)
    return HostLoop(parts(), AsHost(WORLD, ENVS, SEEDS), ENVS, SEEDS, 1000, FixedLag(0))


@pytest.fixture(scope="module")
def learners():
    """Of both loops, what was learnt and stored after some blocks."""
    found = {}
    for kind in ("compiled", "host"):
        loop = loop_of(kind)
        found[kind] = as_numpy(loop.learner(loop.advance(loop.init(), BLOCKS)))
    return found


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_every_update_has_a_number_of_its_own(learners, kind):
    """12 transitions are two blocks: the second one learns, and so do all that follow, three times each."""
    numbers, count = learners[kind].method
    assert count.tolist() == [3 * (BLOCKS - 1)] * 2
    np.testing.assert_array_equal(numbers[:, : count[0]], np.tile(np.arange(count[0]), (2, 1)))


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_memory_is_that_of_the_episode(learners, kind):
    steps = jax.tree.map(lambda x: x[:, : 2 * BLOCKS], learners[kind].store.steps)
    np.testing.assert_array_equal(steps.extras["before"], steps.view.observation[..., 1])
    np.testing.assert_array_equal(steps.next_view.observation[..., 1], steps.view.observation[..., 1] + 1)
    assert steps.first.sum() > 8


def test_both_loops_have_the_same_streams(learners):
    same_bits(learners["compiled"], learners["host"], "compiled equals host")
    steps = learners["compiled"].store.steps
    assert len(np.unique(steps.view.observation[steps.first][:, 0])) == steps.first.sum()  # all episodes differ


def test_a_curriculum_goes_on_where_it_stopped(tmp_path):
    loop = CompiledLoop(parts(curriculum=Rising()), WORLD, ENVS, SEEDS, 1000)
    straight = as_numpy(loop.snapshot(loop.advance(loop.init(), 4)))
    carry = loop.advance(loop.init(), 2)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    carry, lost = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.like())[0])
    assert lost == []
    same_bits(straight, as_numpy(loop.snapshot(loop.advance(carry, 2))), "resumed")
    assert np.unique(straight["carry"].world.params["push"]).size > 1


def test_a_dataset_goes_on_where_it_stopped(tmp_path):
    steps = jax.tree.map(lambda x: x[:, 0], random_steps(WORLD.spec, np.random.default_rng(1), 30, 1))
    loop = LoggedLoop(parts(Counting(Logged(batch=2))), WORLD.spec, steps, SEEDS)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    carry = loop.advance(loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.like())[0])[0], 3)
    numbers, count = as_numpy(loop.learner(carry).method)
    assert count.tolist() == [6, 6] and numbers[:, :6].tolist() == [list(range(6))] * 2 and loop.steps(carry) == 6


# -- host worlds -------------------------------------------------------------------------------------------


class Seeded(AsHost):
    """Worlds that keep the seeds they were begun with."""

    def start(self, seeds):
        self.seeds, n = list(seeds), len(seeds)
        no = np.zeros(n, bool)
        return TimeStep(np.zeros((n, 3), "float32"), np.zeros(n, "float32"), no, no)


def begun(envs, number=0, ticks=0, group=0, seeds=32):
    worlds = Seeded(WORLD, envs, list(range(seeds)))
    here = WorldsHere(with_array_leaves(parts()), worlds, envs, seeds, 1, number, group)
    here.begin(roots(list(range(seeds))), np.zeros((seeds, envs), "int32"), ticks)
    return np.array(worlds.seeds).reshape(seeds, envs)


def test_no_two_host_worlds_are_seeded_alike():
    """Of 32 seeds with 16 worlds each, nor where new episodes begin later."""
    first, later = begun(16), begun(16, ticks=8)
    assert len(np.unique([first, later])) == 2 * 512
    np.testing.assert_array_equal(first[:, :5], begun(5))  # whatever their number
    np.testing.assert_array_equal(first[:, 8:12], begun(4, number=2))  # and whoever holds them
    np.testing.assert_array_equal(begun(6, group=3), np.repeat(first[:, :2], 3, axis=1))


def test_workers_act_by_keys_of_their_own():
    """The same worlds with the same observations, acted in by two workers."""
    acted, kept, ready = [], with_array_leaves(parts()), roots([0])
    fixed = jax.tree.leaves((kept, (), ready))
    for number in (0, 1, 0):
        here = WorldsHere(kept, AsHost(WORLD, 16, [0]), 16, 1, 1, number)
        world = here.begin(ready, np.zeros((1, 16), "int32"), 0)
        rows = here.collect(fixed, world, np.int32(0), Clock("acting", "environment", "learning"))[1]
        acted.append(kinds_of_rows(kept, WORLD.spec)[0].unflatten(rows.stacked()).action)
    assert not np.array_equal(acted[0], acted[1]) and np.array_equal(acted[0], acted[2])


def test_every_worker_has_a_share_of_its_own():
    split, memory = Split(2, 2), np.arange(12).reshape(2, 6)
    shares = [split.memory(memory, i) for i in range(3)]
    np.testing.assert_array_equal(np.concatenate(shares, axis=1), memory)

"""Feeds and samplers from outside the package: they train in every loop they allow, and resume exactly."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from small_envs import HostEnvAdapter

from thespis.core.errors import UserError
from thespis.core.feeds import ReplaySampler, Store, WindowFeed
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, Transition
from thespis.curricula.fixed import FixedCurriculum
from thespis.data import reservoir
from thespis.data.feeds import Replay
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.dqn import DQN
from thespis.runs import checkpoint
from thespis.runs.config import apply_settings, from_config, to_config
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag

ENVS, SEEDS = 3, [0, 4]


class ReservoirState(eqx.Module):
    """Transitions ``[slot]``, the number of those ever offered, and the key of the next draw."""

    steps: Transition
    num_offered: jax.Array


@dataclasses.dataclass(frozen=True)
class Reservoir(WindowFeed):
    """A uniform sample of all transitions so far, in a fixed number of slots (Vitter, 1985, algorithm R)."""

    collects: ClassVar[bool] = True

    num_slots: int = 20
    batch_size: int = 6
    num_updates: int = 2
    policy_lag: int = 1
    num_envs: int = ENVS

    @property
    def batch_shape(self) -> tuple[int, int]:
        return 1, self.batch_size

    @property
    def collect_steps(self) -> int:
        return 2

    def make_store(self, total_steps: int) -> Store:
        return ReservoirStore(self)


@dataclasses.dataclass(frozen=True)
class ReservoirStore(Store):
    feed: Reservoir

    def num_warmup_blocks(self, num_envs: int) -> int:
        return -(-self.feed.num_slots // (num_envs * self.feed.collect_steps))

    def init(self, example: Transition, num_envs: int) -> ReservoirState:
        slots = self.feed.num_slots
        return ReservoirState(
            jax.tree.map(lambda x: jnp.zeros((slots, *x.shape), x.dtype), example), jnp.zeros((), "int32")
        )

    def add(self, state: ReservoirState, steps: Transition, num_written) -> ReservoirState:
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

        def offer(state, step):
            key = jax.random.fold_in(jax.random.key(7), state.num_offered)
            slot = jax.random.randint(key, (), 0, state.num_offered + 1)
            slot = jnp.where(state.num_offered < self.feed.num_slots, state.num_offered, slot)
            steps = jax.tree.map(lambda x, y: x.at[slot].set(y, mode="drop"), state.steps, step)
            return ReservoirState(steps, state.num_offered + 1), None

        return jax.lax.scan(offer, state, flat)[0]

    def sample(self, state, rollout, memory, num_written, update_index, key, data) -> Batch:
        rows = jax.random.randint(key, (1, self.feed.batch_size), 0, self.feed.num_slots)
        steps = jax.tree.map(lambda x: x[rows], state.steps)
        return Batch(steps, jnp.ones(rows.shape, bool), (), update_index)

    def env_axes(self, state: ReservoirState):
        return jax.tree.map(lambda _: -1, state)


@dataclasses.dataclass(frozen=True)
class Newest(ReplaySampler):
    """Samples the newest windows alone, and counts the updates that it was told of."""

    num_newest: int = 6

    def init(self, num_windows: int):
        return jnp.full(num_windows, -1, "int32"), jnp.zeros((), "int32")

    def add(self, state, windows, is_complete):
        order, num_updates = state
        newest = jnp.max(order) + 1 + jnp.cumsum(is_complete)
        return order.at[windows].set(jnp.where(is_complete, newest, -1)), num_updates

    def forget(self, state, windows, is_gone):
        order, num_updates = state
        return order.at[windows].set(jnp.where(is_gone, -1, order[windows])), num_updates

    def draw(self, state, batch_size, key):
        newest = jax.lax.top_k(state[0], self.num_newest)[1]
        return newest[jax.random.randint(key, (batch_size,), 0, self.num_newest)]

    def weights(self, state, indices, num_windows, update_index):
        return jnp.ones(indices.shape)

    def revise(self, state, indices, priorities):
        return state[0], state[1] + (priorities.shape[0] == indices.shape[0])


REPLAY = Replay(
    buffer_size=30, batch_size=6, learning_starts=9, update_interval=2, num_updates=2, num_envs=ENVS, sampler=Newest()
)


def make_loop(kind: str, feed):
    case = CASES["dqn"]
    parts = Components(DQN(hidden_sizes=(4,), feed=feed), EnvironmentReward(), FixedCurriculum())
    if kind == "compiled":
        return CompiledLoop(parts, case.env, ENVS, SEEDS, 1_000)
    return HostLoop(parts, HostEnvAdapter(case.env, ENVS, SEEDS), ENVS, SEEDS, 1_000, FixedLag(0))


LIBRARY = reservoir.Reservoir(20, 6, learning_starts=9, update_interval=2, num_updates=2, num_envs=ENVS)


@pytest.mark.long
@pytest.mark.parametrize(
    "feed",
    [Reservoir(), pytest.param(REPLAY, marks=pytest.mark.slow), pytest.param(LIBRARY, marks=pytest.mark.slow)],
    ids=["feed", "sampler", "reservoir of the package"],
)
def test_own_feeds_train_equally_in_both_loops_and_resume(feed, tmp_path):
    compiled, host = make_loop("compiled", feed), make_loop("host", feed)
    end, other = compiled.advance(compiled.init(), 9), host.advance(host.init(), 9)
    assert_same_bits(compiled.learner_state(end).method, host.learner_state(other).method, "both loops")
    half = compiled.advance(compiled.init(), 4)
    checkpoint.save(tmp_path / "a.ckpt", compiled.snapshot(half), {})
    restored, _ = compiled.restore(checkpoint.load(tmp_path / "a.ckpt", compiled.checkpoint_template())[0])
    assert_same_bits(compiled.learner_state(compiled.advance(restored, 5)), compiled.learner_state(end), "resumed")


def test_a_sampler_sees_every_update():
    loop = make_loop("compiled", REPLAY)
    carry = loop.advance(loop.init(), 9)
    updates = (9 - loop.warmup_blocks) * REPLAY.num_updates
    np.testing.assert_array_equal(carry.learner.store.sampler[1], [updates] * len(SEEDS))


def test_own_samplers_are_settings():
    name = f"{Newest.__module__}:Newest"
    method = apply_settings(DQN(), [f"feed.sampler={name}", "feed.sampler.num_newest=3"])
    assert method.feed.sampler == Newest(3) and from_config(to_config(method)).feed.sampler == Newest(3)
    with pytest.raises(UserError, match="derives from ReplaySampler"):
        apply_settings(DQN(), ["feed.sampler=thespis.data.feeds:Replay"])
    with pytest.raises(UserError, match="cannot be imported"):
        apply_settings(DQN(), ["feed.sampler=no_such_module:Sampler"])


def test_own_feeds_are_settings_and_say_what_they_cannot_do():
    name = f"{Reservoir.__module__}:Reservoir"
    method = apply_settings(DQN(), [f"feed={name}", "feed.num_slots=9"])
    assert method.feed == Reservoir(9) and from_config(to_config(method)).feed == Reservoir(9)
    with pytest.raises(UserError, match="fed by Reservoir learns from fresh experience"):
        Reservoir().make_sampler(random_transitions(CASES["dqn"].env.spec, np.random.default_rng(0), 4, 1))

"""Counters and random keys of the training loops, checked with a method that only counts."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import HostEnvAdapter, Walk

from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Critique, Draw, Report, TimeStep
from thespis.core.spaces import Discrete, random_action
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import LoggedTransitions, Replay
from thespis.feedback.environment import EnvironmentReward
from thespis.runs import checkpoint
from thespis.runtime import keys
from thespis.runtime.keys import indexed_keys, root_keys
from thespis.runtime.timer import PhaseTimer
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, row_structures, with_array_leaves
from thespis.training.host_loop import HostLoop
from thespis.training.logged_loop import LoggedLoop
from thespis.training.policy_lag import FixedLag
from thespis.training.ray_env import EnvShards
from thespis.training.vector_env import LocalVectorEnv

ENV, ENVS, SEEDS, BLOCKS = Walk(Discrete(4)), 3, [0, 3], 5
FEED = Replay(
    buffer_size=90, batch_size=2, learning_starts=12, update_interval=2, num_updates=3, num_envs=ENVS, policy_lag=0
)


class CountingMethod(eqx.Module):
    """A method with random actions that records its update indices and counts steps in its memory."""

    feed: Replay | LoggedTransitions = eqx.field(static=True, default=FEED)
    name: ClassVar[str] = "counting"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return jnp.full(40, -1), jnp.zeros((), "int32")

    def policy(self, state, mode):
        return ()

    def init_memory(self, policy, n):
        return jnp.zeros(n, "int32")

    def act(self, policy, memory, view, key):
        keys = indexed_keys(key, len(memory))
        return jax.vmap(lambda k: random_action(ENV.action, k, None))(keys), memory + 1, {"before": memory}

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        numbers, count = state
        return (numbers.at[count].set(batch.update_index), count + 1), Report(
            {"index": batch.update_index.astype("float32")}
        )


class IncreasingPush(eqx.Module):
    """A curriculum that increases ``push`` in every block."""

    name: ClassVar[str] = "increasing"
    citations: ClassVar[tuple] = ()
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def init(self, spec, key):
        return jnp.zeros(())

    def draw(self, state, key, n):
        return Draw({"push": jnp.full(n, state)})

    def update(self, state, rollout, critique, outcomes, key):
        return state + 1.0, Report({})


def parts(method=None, curriculum=None):
    return Components(method or CountingMethod(), EnvironmentReward(), curriculum or FixedCurriculum())


def make_loop(kind):
    if kind == "compiled":
        return CompiledLoop(parts(), ENV, ENVS, SEEDS, 1000)
    return HostLoop(parts(), HostEnvAdapter(ENV, ENVS, SEEDS), ENVS, SEEDS, 1000, FixedLag(0))


@pytest.fixture(scope="module")
def learners():
    """Learner states of both loops after some blocks."""
    states = {}
    for kind in ("compiled", "host"):
        loop = make_loop(kind)
        states[kind] = to_numpy(loop.learner_state(loop.advance(loop.init(), BLOCKS)))
    return states


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_update_indices_are_consecutive(learners, kind):
    """12 transitions are two blocks: from the second block on, each block has three updates."""
    numbers, count = learners[kind].method
    assert count.tolist() == [3 * (BLOCKS - 1)] * 2
    np.testing.assert_array_equal(numbers[:, : count[0]], np.tile(np.arange(count[0]), (2, 1)))


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_memory_is_reset_with_the_episode(learners, kind):
    steps = jax.tree.map(lambda x: x[:, : 2 * BLOCKS], learners[kind].store.steps)
    np.testing.assert_array_equal(steps.extras["before"], steps.view.observation[..., 1])
    np.testing.assert_array_equal(steps.next_view.observation[..., 1], steps.view.observation[..., 1] + 1)
    assert steps.is_first.sum() > 8


def test_both_loops_have_the_same_random_streams(learners):
    assert_same_bits(learners["compiled"], learners["host"], "compiled equals host")
    steps = learners["compiled"].store.steps
    assert len(np.unique(steps.view.observation[steps.is_first][:, 0])) == steps.is_first.sum()  # all episodes differ


def test_curriculum_state_is_resumed(tmp_path):
    loop = CompiledLoop(parts(curriculum=IncreasingPush()), ENV, ENVS, SEEDS, 1000)
    uninterrupted = to_numpy(loop.snapshot(loop.advance(loop.init(), 4)))
    carry = loop.advance(loop.init(), 2)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    carry, lost = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])
    assert lost == []
    assert_same_bits(uninterrupted, to_numpy(loop.snapshot(loop.advance(carry, 2))), "resumed")
    assert np.unique(uninterrupted["carry"].env_state.params["push"]).size > 1


def test_logged_loop_is_resumed(tmp_path):
    steps = jax.tree.map(lambda x: x[:, 0], random_transitions(ENV.spec, np.random.default_rng(1), 30, 1))
    loop = LoggedLoop(parts(CountingMethod(LoggedTransitions(batch_size=2))), ENV.spec, steps, SEEDS)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(carry), {})
    carry = loop.advance(loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])[0], 3)
    numbers, count = to_numpy(loop.learner_state(carry).method)
    assert count.tolist() == [6, 6] and numbers[:, :6].tolist() == [list(range(6))] * 2 and loop.num_steps(carry) == 6


# -- host environments -------------------------------------------------------------------------------------------


class SeedRecorder(HostEnvAdapter):
    """Environments that record the seeds of their last reset."""

    def reset(self, seeds):
        self.seeds, n = list(seeds), len(seeds)
        no = np.zeros(n, bool)
        return TimeStep(np.zeros((n, 3), "float32"), np.zeros(n, "float32"), no, no)


def env_seeds(envs, worker=0, ticks=0, group=0, seeds=32):
    recorder = SeedRecorder(ENV, envs, list(range(seeds)))
    vector_env = LocalVectorEnv(with_array_leaves(parts()), recorder, envs, seeds, 1, worker, group)
    vector_env.reset(root_keys(list(range(seeds))), np.zeros((seeds, envs), "int32"), ticks)
    return np.array(recorder.seeds).reshape(seeds, envs)


def test_host_environments_have_distinct_seeds():
    """For 32 seeds with 16 environments each, at the start and for later episodes."""
    first, later = env_seeds(16), env_seeds(16, ticks=8)
    assert len(np.unique([first, later])) == 2 * 512
    np.testing.assert_array_equal(first[:, :5], env_seeds(5))  # independent of the number of environments
    np.testing.assert_array_equal(first[:, 8:12], env_seeds(4, worker=2))  # and of the worker that holds them
    np.testing.assert_array_equal(env_seeds(6, group=3), np.repeat(first[:, :2], 3, axis=1))


def test_keys_and_seeds_that_are_computed_together_are_the_same():
    """Root keys of many seeds and seeds of many host environments, against those computed alone, bit for bit."""
    seeds = [0, 7, 1_100, 2**31 - 1]
    alone = jnp.stack([keys.seed_key(seed) for seed in seeds])
    np.testing.assert_array_equal(jax.random.key_data(root_keys(seeds)), jax.random.key_data(alone))
    key = keys.fold(root_keys(seeds)[1], "evaluate/greedy")
    assert keys.env_seeds(key, 20) == [keys.env_seed(key, i) for i in range(20)]


def test_workers_act_with_their_own_keys():
    """Two workers act in equal environments with equal observations."""
    acted, components, ready = [], with_array_leaves(parts()), root_keys([0])
    fixed = jax.tree.leaves((components, (), ready))
    for worker in (0, 1, 0):
        vector_env = LocalVectorEnv(components, HostEnvAdapter(ENV, 16, [0]), 16, 1, 1, worker)
        env_state = vector_env.reset(ready, np.zeros((1, 16), "int32"), 0)
        rows = vector_env.collect(fixed, env_state, np.int32(0), PhaseTimer("acting", "environment", "learning"))[1]
        acted.append(row_structures(components, ENV.spec)[0].unflatten(rows.stack()).action)
    assert not np.array_equal(acted[0], acted[1]) and np.array_equal(acted[0], acted[2])


def test_memory_shards_are_disjoint():
    split, memory = EnvShards(2, 2), np.arange(12).reshape(2, 6)
    shares = [split.memory_shard(memory, i) for i in range(3)]
    np.testing.assert_array_equal(np.concatenate(shares, axis=1), memory)

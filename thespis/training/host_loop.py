"""The host loop: environments outside JAX step while the learner trains.

Acting is one jitted program for all seeds. Learning is a program for every seed on CPUs, else one for all of them. Both
use the same functions as the compiled loop. With :class:`~thespis.training.policy_lag.FixedLag` the acting policy is a
fixed number of blocks behind the learner, so that results do not depend on which of the two finishes first.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import HostEnvironment, Mode
from thespis.runs.checkpoint import ANY_ARRAYS
from thespis.runtime import vmap_exact
from thespis.runtime.interrupts import NO_WATCH, AbandonedError, Watch
from thespis.runtime.keys import root_keys
from thespis.runtime.timer import PhaseTimer
from thespis.training.components import (
    Components,
    LearnerState,
    MetricSums,
    gather_learner,
    init_learner_state,
    make_stores,
    replace_states,
    row_structures,
    with_array_leaves,
    zero_metric_sums,
)
from thespis.training.learning import cut_rollout, learn_block, metric_names
from thespis.training.policy_lag import (
    FixedLag,
    PolicyLag,
    PolicyQueue,
    last_policies,
    learner_executor,
    sleep_randomly,
)
from thespis.training.ray_env import RayVectorEnv
from thespis.training.vector_env import (
    ActingState,
    CollectionError,
    HostCarry,
    HostEnvState,
    LocalVectorEnv,
    RolloutRows,
    VectorEnv,
    act_input_shapes,
)


class HostLoop:
    """Host training loop: trains ``components`` in ``len(seeds) * num_envs`` parallel host environments."""

    kind = "host"

    def __init__(
        self,
        components: Components,
        vector_env: HostEnvironment | RayVectorEnv,
        num_envs: int,
        seeds: list[int],
        total_steps: int,
        policy_lag: PolicyLag | None = None,
        jitter: float = 0.0,
        *,
        draws: bool = False,
    ):
        self.draws = draws
        self.components = with_array_leaves(components)
        self.spec, self.num_envs, self.seeds = vector_env.spec, num_envs, seeds
        self.stores = make_stores(components, total_steps, vector_env.spec)
        self.policy_lag, self.jitter = policy_lag or FixedLag(self.stores.method.feed.policy_lag), jitter
        self.parallel_blocks = self.policy_lag.lag + 1
        self.warmup_blocks = self.stores.num_warmup_blocks(num_envs)
        self.steps_per_block = self.stores.collect_steps * num_envs
        self.metric_names = metric_names(self.components, self.spec, self.stores, num_envs)
        self.timer = PhaseTimer("acting", "environment", "learning")
        self.timing = self.timer.seconds
        self._row, self._end = row_structures(self.components, self.spec, draws=draws)
        self.vector_env = vector_env if isinstance(vector_env, RayVectorEnv) else self._local_env(vector_env)
        self._count = vmap_exact.num_programs(len(seeds))
        self._threads = vmap_exact.thread_pool("seed")
        self._policy = jax.jit(self._acting_states, static_argnames="seeds")
        self._learn = jax.jit(self._learn_seeds, static_argnames="train", donate_argnames="leaves")
        # tree structures of the flat leaves that the programs take
        self._bare, self._parts = jax.tree.flatten(self.components)
        self._fixed = jax.tree.structure(act_input_shapes(self.components, self.spec, draws=draws))
        self._held: Any = None

    def _local_env(self, environment: HostEnvironment) -> VectorEnv:
        feed = self.stores.method.feed
        return LocalVectorEnv(
            self.components,
            environment,
            self.num_envs,
            len(self.seeds),
            feed.collect_steps,
            group_size=self.stores.method.group_size,
            draws=self.draws,
        )

    # -- programs ------------------------------------------------------------------------------------------

    def _init_learners(self, seeds):
        learner = jax.vmap(lambda r: init_learner_state(self.components, self.spec, self.stores, self.num_envs, r))(
            seeds
        )
        metric_sums = jax.vmap(lambda _: zero_metric_sums(self.metric_names))(seeds)
        policy = self._policies(self.components, learner.method, len(seeds))
        memory = jax.vmap(lambda p: self.components.method.init_memory(p, self.num_envs), axis_size=len(seeds))(policy)
        return learner, metric_sums, self._acting_states(self.components, learner, len(seeds)), memory

    def _acting_states(self, components, learner, seeds):
        """The policies of all seeds, with the curriculum's states where it chooses parameters."""
        policies = self._policies(components, learner.method, seeds)
        return ActingState(policies, learner.curriculum) if self.draws else policies

    def _policies(self, components, states, seeds):
        return jax.vmap(lambda state: components.method.policy(state, Mode.EXPLORE), axis_size=seeds)(states)

    def _learn_seeds(self, leaves, components, rows, memory, ends, seeds, ticks, updates, *, train):
        components = self._parts.unflatten(components)

        def per_seed(learner, tally, steps, memory, outcomes, root):
            if self.draws and components.curriculum.draws_per_rollout:
                steps = cut_rollout(steps)
            return learn_block(
                components, self.stores, learner, tally, steps, memory, outcomes, root, ticks, updates, train=train
            )

        steps, outcomes = (_split_seeds(x, len(seeds)) for x in (self._row.unflatten(rows), self._end.unflatten(ends)))
        learner, tally = self._held.unflatten(leaves)
        learner, tally = jax.vmap(per_seed)(learner, tally, steps, memory, outcomes, seeds)
        return jax.tree.leaves((learner, tally)), jax.tree.leaves(self._acting_states(components, learner, len(seeds)))

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of the state on the device; nothing is allocated."""
        return self._shapes

    @functools.cached_property
    def _shapes(self) -> PyTree:
        return jax.eval_shape(self._init_learners, root_keys(self.seeds))

    def init(self, worker: int = 0, watch: Watch = NO_WATCH) -> HostCarry:
        """A fresh carry, a different one for every ``worker``; every environment starts an episode."""
        seeds = root_keys(self.seeds, worker)
        init_learners = jax.jit(self._init_learners)
        with self.timer.measure_compile():
            pieces = vmap_exact.split_seeds(seeds, self._count)
            initial = vmap_exact.join_seeds(
                watch.call(lambda: [jax.block_until_ready(init_learners(root)) for root in pieces])
            )
        learner, metric_sums, (policy, memory) = initial[0], initial[1], vmap_exact.concat_seeds(initial[2:])
        draw = self.vector_env.draw(jax.tree.leaves((self.components, policy, seeds)), 0)
        policies, env_state, zero = (
            (policy,) * (self.policy_lag.lag + 1),
            self.vector_env.reset(seeds, memory, 0, draw),
            np.int32(0),
        )
        return HostCarry(seeds, learner, metric_sums, policies, env_state, zero, zero)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: HostCarry, blocks: int, watch: Watch = NO_WATCH) -> HostCarry:
        """Run ``blocks`` blocks; ``carry`` is consumed. Warm-up blocks, without updates, come first.

        Environments are stepped in this thread. Raises :class:`CollectionError` for an error of environments whose
        state cannot be saved.
        """
        feed, env_state, ticks, updates = self.stores.method.feed, carry.env_state, carry.num_ticks, carry.num_updates
        buffers = self._learner_buffers(carry)
        act_leaves = (jax.tree.leaves((self.components, policy, carry.root_keys)) for policy in carry.policies)
        policies: PolicyQueue = collections.deque(act_leaves)
        failure: Exception | None = None
        with learner_executor(self.policy_lag.lag, watch) as thread:
            for _ in range(blocks):
                waiting = list(policies)
                with self.timer.measure("learning"):
                    policy = watch.call(functools.partial(self.policy_lag.next_policy, policies))
                    memory = env_state.memory
                sleep_randomly(self.jitter)
                try:
                    env_state, rows, ends = self.vector_env.collect(policy, env_state, ticks, self.timer, watch)
                except AbandonedError:
                    raise
                except Exception as error:
                    if self._saves_envs():
                        raise
                    failure, policies = error, collections.deque(waiting)
                    break
                train = int(ticks) // feed.collect_steps >= self.warmup_blocks
                with self.timer.measure("learning"):
                    block = RolloutBlock(rows, memory, ends, ticks, updates)
                    policies.append(thread.submit(self._learn_block, buffers, block, carry.root_keys, train=train))
                updates = np.int32(updates + (feed.num_updates if train else 0))
                ticks = np.int32(ticks + feed.collect_steps)
            with self.timer.measure("learning"):
                last = watch.call(lambda: jax.block_until_ready(last_policies(policies, self.policy_lag.lag)))
                newest = [self._fixed.unflatten(x)[1] for x in last]
        learner, metric_sums = vmap_exact.join_seeds(
            [self._held.unflatten(seed_buffers.leaves) for seed_buffers in buffers]
        )
        self.stores.check(learner)
        carry = HostCarry(carry.root_keys, learner, metric_sums, tuple(newest), env_state, ticks, updates)
        if failure is not None:
            raise CollectionError(failure, carry)
        return carry

    def _saves_envs(self) -> bool:
        """Whether checkpoints hold the environments' states; also true where a broken environment cannot tell."""
        if not isinstance(self.vector_env, LocalVectorEnv):
            return True
        try:
            return self.vector_env.get_state() is not None
        except Exception:
            return True

    def _learner_buffers(self, carry: HostCarry) -> list[LearnerBuffers]:
        """Learner buffers for each program's seeds."""
        pieces = vmap_exact.split_seeds((carry.learner, carry.metric_sums), self._count)
        self._held = jax.tree.structure(pieces[0])
        return [
            LearnerBuffers(jax.tree.leaves(x), r)
            for x, r in zip(pieces, vmap_exact.split_seeds(carry.root_keys, self._count), strict=True)
        ]

    def _learn_block(self, buffers: list[LearnerBuffers], block: RolloutBlock, roots: Any, *, train: bool) -> list:
        """Update on one block without waiting for it; replaces the buffers' leaves. Returns the next acting leaves."""
        sleep_randomly(self.jitter)
        width = self.num_envs * len(self.seeds) // self._count
        rows, ends, memories = (
            _stack_rows(block.transition_rows),
            _stack_rows(block.episode_rows),
            vmap_exact.split_seeds(block.memory, self._count),
        )

        def learn_piece(i: int) -> list:
            own_rows = np.s_[:, i * width : (i + 1) * width]
            data = [x[own_rows] for x in rows], memories[i], [x[own_rows] for x in ends]
            args = (buffers[i].leaves, self._bare, *data, buffers[i].root_keys, block.num_ticks, block.num_updates)
            buffers[i].leaves, policy = self.timer.call_compiled(("learn", train), self._learn, *args, train=train)
            return policy

        policies = vmap_exact.concat_seeds(
            vmap_exact.join_seeds(vmap_exact.thread_map(self._threads, learn_piece, range(self._count)))
        )
        return [*self._bare, *policies, roots]

    def with_learner(self, carry: HostCarry, learner: LearnerState) -> HostCarry:
        """The carry with another learner and its policy."""
        policy = self.timer.call_compiled("policy", self._policy, self.components, learner, seeds=len(self.seeds))
        return dataclasses.replace(carry, learner=learner, policies=(policy,) * (self.policy_lag.lag + 1))

    def with_states(self, carry: HostCarry, states: LearnerState) -> HostCarry:
        """The carry with other states of method, feedback and curriculum, before the first step.

        They are ordinary arrays ``[seed, ...]``; the stores of ``states`` are not used.
        """
        ready = dataclasses.replace(states, store=(), feedback_store=())
        policy = self.timer.call_compiled("policy", self._policy, self.components, ready, seeds=len(self.seeds))
        learner = replace_states(carry.learner, states)
        return dataclasses.replace(carry, learner=learner, policies=(policy,) * (self.policy_lag.lag + 1))

    # -- what the driver reads -----------------------------------------------------------------------------

    def num_steps(self, carry: HostCarry) -> int:
        """Environment steps per seed so far."""
        return int(carry.num_ticks) * self.num_envs

    def pop_metric_sums(self, carry: HostCarry) -> tuple[HostCarry, MetricSums]:
        """The metric sums since the last call, on the host, and the carry with them reset."""
        metric_sums = jax.device_get(carry.metric_sums)
        return eqx.tree_at(
            lambda c: c.metric_sums, carry, jax.tree.map(vmap_exact.zeros_like, carry.metric_sums)
        ), metric_sums

    def learner_state(self, carry: HostCarry) -> LearnerState:
        """The learner's state, leading axis ``[seed]``; the store is not gathered."""
        return gather_learner(carry.learner)

    def snapshot(self, carry: HostCarry) -> PyTree:
        """The content of a checkpoint: the carry and, where they can be saved, the simulators' states."""
        return {"carry": carry, "worlds": self.vector_env.get_state()}

    def checkpoint_template(self) -> PyTree:
        """The structure of this loop's checkpoints."""
        carry = self.init()
        saves = self.vector_env.get_state() is not None
        return {"carry": carry, "worlds": ANY_ARRAYS if saves else None}

    def restore(self, snapshot: PyTree) -> tuple[HostCarry, list[str]]:
        """The carry from a checkpoint, and messages about what could not be restored."""
        saved: HostCarry = snapshot["carry"]
        seeds, policies, memory = jax.tree.map(jnp.array, (saved.root_keys, saved.policies, saved.env_state.memory))
        learner, metric_sums = vmap_exact.copy_per_seed((saved.learner, saved.metric_sums), self._count)
        old, ticks = saved.env_state, int(saved.num_ticks)
        env_state = HostEnvState(memory, old.view, old.is_first, old.returns, old.lengths, old.draw)
        env_state, num_reset = self.vector_env.set_state(snapshot["worlds"], seeds, env_state, ticks)
        messages = (
            [f"{num_reset} environments of {self.spec.name} could not save their state: new episodes"]
            if num_reset
            else []
        )
        return HostCarry(
            seeds, learner, metric_sums, policies, env_state, np.int32(ticks), np.int32(saved.num_updates)
        ), messages

    def pop_warnings(self) -> list[str]:
        """Warnings about the last blocks for the user, one line each."""
        return self.vector_env.pop_warnings()

    def close(self) -> None:
        """Close the environments and release what they hold."""
        self.vector_env.close()


@dataclasses.dataclass
class LearnerBuffers:
    """Buffers of the learner's state for the seeds of one program; replaced by every update."""

    leaves: list[Any]
    """Leaves of the learner and its metric sums."""
    root_keys: Any


@dataclasses.dataclass(frozen=True)
class RolloutBlock:
    """Block of a rollout, with the counters before it; ``memory`` is the actor's before the first tick."""

    transition_rows: RolloutRows
    memory: PyTree
    episode_rows: RolloutRows
    num_ticks: np.int32
    num_updates: np.int32


def _split_seeds(rows: PyTree, seeds: int) -> PyTree:
    """Reshape ``[tick, seed * env, ...]`` to ``[seed, tick, env, ...]``."""
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0], seeds, -1, *x.shape[2:]), 1, 0), rows)


def _stack_rows(rows: RolloutRows) -> list[np.ndarray]:
    """Leaves ``[tick, seed * env, ...]``; called in the learner's thread, as it takes a while."""
    return rows.stack()

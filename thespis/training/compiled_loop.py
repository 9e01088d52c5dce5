"""The compiled loop: acting, storing and learning as one XLA program, run in chunks; per seed on CPUs, else vmapped.

The program contains no host callbacks. The carry is donated, so that a replay buffer exists only once. Between chunks
the driver reads metrics, evaluates and saves checkpoints.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Environment, Mode
from thespis.core.records import EpisodeStats, Transition
from thespis.envs.rollout import RolloutState, rollout, start_rollout
from thespis.runtime import vmap_exact
from thespis.runtime.distributed import gather_arrays
from thespis.runtime.interrupts import NO_WATCH, Watch
from thespis.runtime.keys import fold, indexed_keys, root_keys
from thespis.runtime.timer import PhaseTimer
from thespis.runtime.vmap_exact import prevent_inlining
from thespis.training.components import (
    Components,
    LearnerState,
    MetricSums,
    act_step,
    gather_learner,
    init_learner_state,
    make_stores,
    replace_states,
    with_array_leaves,
    zero_metric_sums,
)
from thespis.training.learning import cut_rollout, learn_block, metric_names
from thespis.training.placement import LoopPrograms, choose_placement


class CompiledCarry(eqx.Module):
    """Loop carry, the whole state of a run: leading axis ``[seed]``, except for two counters that all seeds share."""

    root_keys: Key[Array, " seed"]
    learner: LearnerState
    env_state: RolloutState
    metric_sums: MetricSums
    num_ticks: Int[Array, ""]
    num_updates: Int[Array, ""]


class CompiledLoop:
    """Compiled training loop: trains ``components`` in a compiled environment."""

    kind, parallel_blocks = "compiled", 1

    def __init__(
        self,
        components: Components,
        environment: Environment,
        num_envs: int,
        seeds: list[int],
        total_steps: int,
        num_devices: int = 1,
    ):
        self.components = with_array_leaves(components)
        self.environment, self.spec, self.num_envs, self.seeds = environment, environment.spec, num_envs, seeds
        self.stores = make_stores(components, total_steps, environment.spec)
        self.warmup_blocks = self.stores.num_warmup_blocks(num_envs)
        self.steps_per_block = self.stores.collect_steps * num_envs
        self.metric_names = metric_names(self.components, self.spec, self.stores, num_envs)
        self.timer = PhaseTimer("program")
        self.timing = self.timer.seconds
        self._reset, self._step = (prevent_inlining(jax.vmap(f)) for f in (environment.reset, environment.step))
        self.placement = choose_placement(
            LoopPrograms(self._init, self.run_chunk, self._env_axes(), seeds), num_envs, num_devices
        )

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> CompiledCarry:
        """Shapes of the carry; nothing is allocated."""
        return self._shapes

    @functools.cached_property
    def _shapes(self) -> PyTree:
        return jax.eval_shape(self._init, root_keys(self.seeds))

    def init(self, worker: int = 0, watch: Watch = NO_WATCH) -> CompiledCarry:
        """A fresh carry, a different one for every ``worker``."""
        with self.timer.measure_compile():
            return watch.call(lambda: jax.block_until_ready(self.placement.init(worker)))

    def _env_axes(self) -> CompiledCarry:
        """The axis of each leaf of the carry that indexes environments; -1: none."""
        shapes, own_store = self.shapes(), self.stores.feedback
        axes = {
            ".learner.store": self.stores.method.env_axes(shapes.learner.store),
            ".learner.feedback_store": own_store and own_store.env_axes(shapes.learner.feedback_store),
        }
        by_store = {name: iter(jax.tree.leaves(tree)) for name, tree in axes.items()}

        def axis(where: tuple[Any, ...], _: Any) -> int:
            name = jax.tree_util.keystr(where)
            for store, of_store in by_store.items():
                if name.startswith(store):
                    own = next(of_store)
                    return own + 1 if own >= 0 else own  # after the seed's
            return 1 if name.startswith(".env_state") else -1

        return jax.tree_util.tree_map_with_path(axis, shapes)

    def _init(self, seeds: Key[Array, " seed"]) -> CompiledCarry:
        learner, env_state = jax.vmap(self._init_one)(seeds)
        metric_sums = jax.vmap(lambda _: zero_metric_sums(self.metric_names))(seeds)
        return CompiledCarry(seeds, learner, env_state, metric_sums, jnp.zeros((), "int32"), jnp.zeros((), "int32"))

    def _init_one(self, root: Key[Array, ""]) -> tuple[LearnerState, RolloutState]:
        learner = init_learner_state(self.components, self.spec, self.stores, self.num_envs, root)
        memory = self.components.method.init_memory(
            self.components.method.policy(learner.method, Mode.EXPLORE), self.num_envs
        )
        return learner, self._reset_envs(self.components, learner.curriculum, root, jnp.zeros((), "int32"), memory)

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: CompiledCarry, blocks: int, watch: Watch = NO_WATCH) -> CompiledCarry:
        """Run ``blocks`` blocks; ``carry`` is consumed. Warm-up blocks, without updates, come first."""
        done = int(carry.num_ticks) // self.stores.collect_steps
        warm = min(max(self.warmup_blocks - done, 0), blocks)
        for train, count in ((False, warm), (True, blocks - warm)):
            if count:
                with self.timer.measure("program"):
                    run = functools.partial(self.placement.run, self.timer, self.components, carry, count, train=train)
                    carry = watch.call(lambda run=run: jax.block_until_ready(run()))
        self.stores.check(carry.learner)
        return carry

    def run_chunk(
        self, components: Components, carry: CompiledCarry, blocks: Int[Array, ""], *, train: bool
    ) -> CompiledCarry:
        """The program of :meth:`advance`: ``blocks`` blocks, either all with updates or all without."""
        return vmap_exact.map_seeds_in_place(
            lambda piece: self._chunk(components, piece, blocks, train), carry, carry.root_keys.shape[0]
        )

    def _chunk(
        self, components: Components, carry: CompiledCarry, blocks: Int[Array, ""], train: bool
    ) -> CompiledCarry:
        feed = self.stores.method.feed

        def block(_, carry: CompiledCarry) -> CompiledCarry:
            def per_seed(root, learner, env_state, tally):
                return self._block(
                    components, root, learner, env_state, tally, carry.num_ticks, carry.num_updates, train
                )

            learner, env_state, metric_sums = jax.vmap(per_seed)(
                carry.root_keys, carry.learner, carry.env_state, carry.metric_sums
            )
            updates = carry.num_updates + (feed.num_updates if train else 0)
            return CompiledCarry(
                carry.root_keys, learner, env_state, metric_sums, carry.num_ticks + feed.collect_steps, updates
            )

        return jax.lax.fori_loop(0, blocks, block, carry)

    def _block(self, components, root, learner, env_state, metric_sums, ticks, updates, train):
        policy = components.method.policy(learner.method, Mode.EXPLORE)
        if self.stores.method.group_size or components.curriculum.draws_per_rollout:
            env_state = self._reset_envs(components, learner.curriculum, root, ticks, env_state.memory)
        memory, block_ticks = env_state.memory, ticks + jnp.arange(self.stores.collect_steps)
        env_state, (steps, outcomes) = self._collect(
            components, root, policy, learner.curriculum, env_state, block_ticks
        )
        if components.curriculum.draws_per_rollout:
            steps = cut_rollout(steps)
        learner, metric_sums = learn_block(
            components, self.stores, learner, metric_sums, steps, memory, outcomes, root, ticks, updates, train=train
        )
        return learner, env_state, metric_sums

    def _collect(
        self,
        components: Components,
        root: Key[Array, ""],
        policy: PyTree,
        curriculum: PyTree,
        env_state: RolloutState,
        ticks: Int[Array, " time"],
    ) -> tuple[RolloutState, tuple[Transition, EpisodeStats]]:
        """The environments after these ticks, and what happened, ``[time, env]``."""

        def act(memory, view, is_first, t):
            return act_step(components, self.spec, policy, memory, view, is_first, fold(root, "act", t))

        def step(state, action, t):
            return self._step(state, action, indexed_keys(fold(root, "step", t), self.num_envs))

        def restart(draw, t):
            if not components.curriculum.draws_per_rollout:
                draw = components.curriculum.draw(curriculum, fold(root, "draw", t + 1), self.num_envs)
            return draw, *self._reset(draw.params, indexed_keys(fold(root, "reset", t + 1), self.num_envs))

        return rollout(act, step, restart, env_state, ticks)

    def _reset_envs(
        self, components: Components, curriculum: PyTree, root: Key[Array, ""], ticks: Array, memory: Any
    ) -> RolloutState:
        """Start fresh episodes everywhere after ``ticks`` ticks; those of a group get the same initial state."""
        group = max(self.stores.method.group_size, 1)
        num_starts = self.num_envs // group
        draw = components.curriculum.draw(curriculum, fold(root, "draw", ticks), num_starts)
        starts = draw, indexed_keys(fold(root, "reset", ticks), num_starts)
        draw, keys = jax.tree.map(lambda x: x[jnp.arange(self.num_envs) // group], starts) if group > 1 else starts
        state, step = self._reset(draw.params, keys)
        return start_rollout(state, step, memory, draw, self.spec.groups)

    # -- what the driver reads -----------------------------------------------------------------------------

    def num_steps(self, carry: CompiledCarry) -> int:
        """Environment steps per seed so far."""
        return int(carry.num_ticks) * self.num_envs

    def pop_metric_sums(self, carry: CompiledCarry) -> tuple[CompiledCarry, MetricSums]:
        """The metric sums since the last call, on the host, and the carry with them reset."""
        metric_sums = jax.device_get(gather_arrays(carry.metric_sums))
        return eqx.tree_at(
            lambda c: c.metric_sums, carry, jax.tree.map(vmap_exact.zeros_like, carry.metric_sums)
        ), metric_sums

    def learner_state(self, carry: CompiledCarry) -> LearnerState:
        """The learner's state, leading axis ``[seed]``; the store is not gathered."""
        return gather_learner(carry.learner)

    def with_states(self, carry: CompiledCarry, states: LearnerState) -> CompiledCarry:
        """The carry with other states of method, feedback and curriculum, before the first step.

        They are ordinary arrays ``[seed, ...]``; the stores of ``states`` are not used.
        """
        return eqx.tree_at(lambda c: c.learner, carry, replace_states(carry.learner, states))

    def snapshot(self, carry: CompiledCarry) -> PyTree:
        """The content of a checkpoint: the whole carry."""
        return {"carry": carry}

    def checkpoint_template(self) -> PyTree:
        """The structure of this loop's checkpoints."""
        return {"carry": self.shapes()}

    def restore(self, snapshot: PyTree) -> tuple[CompiledCarry, list[str]]:
        """The carry from a checkpoint, and messages about what could not be restored (none)."""
        return self.placement.place(snapshot["carry"]), []

    def pop_warnings(self) -> list[str]:
        """No warnings: failures in this loop raise errors."""
        return []

    def close(self) -> None:
        """Do nothing: no resources are held."""

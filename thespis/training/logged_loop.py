"""The logged loop: updates on a fixed dataset, scanned in chunks; per seed on CPUs, else vmapped.

One block is one update. The dataset is one long column of transitions, shared by all seeds; the feed determines whether
windows, whole episodes or pairs of episodes are sampled. Windows are sampled as from replay, so that an off-policy
method runs on logged data unchanged.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import UsesStoredSteps
from thespis.core.errors import UserError
from thespis.core.feeds import BranchedSampler, DatasetSampler, HasStoredSteps
from thespis.core.records import Batch, EnvSpec, Report, Transition
from thespis.core.spaces import Text
from thespis.runtime import vmap_exact
from thespis.runtime.interrupts import NO_WATCH, Watch
from thespis.runtime.keys import fold, root_keys, seed_key
from thespis.runtime.timer import PhaseTimer
from thespis.training.components import (
    Components,
    LearnerState,
    MetricSums,
    gather_learner,
    replace_states,
    with_array_leaves,
    zero_metric_sums,
)
from thespis.training.feed_checks import check_feeds
from thespis.training.learning import add_metrics, merge_metrics, sample_own, update_inlined
from thespis.training.placement import LoopPrograms, choose_placement


class LoggedCarry(eqx.Module):
    """Loop carry, the whole state of a run: leading axis ``[seed]``, except for the counter."""

    root_keys: Key[Array, " seed"]
    learner: LearnerState
    metric_sums: MetricSums
    num_updates: Int[Array, ""]


_UpdateResult = tuple[tuple[PyTree, PyTree], tuple[Report, Any], Any]
"""States of method and feedback, their report with the learning signal, and the merged metrics."""


class LoggedLoop:
    """Training loop on logged data: trains ``components`` on ``transitions`` ``[time]`` with canonical actions.

    ``group_size``: the number of adjacent episodes that form a group, where the feed samples pairs; 0: episodes with
    the same initial state form a group.
    """

    kind, parallel_blocks = "logged", 1

    def __init__(
        self, components: Components, spec: EnvSpec, transitions: Transition, seeds: list[int], group_size: int = 0
    ):
        feed = components.method.feed
        if not feed.reads_datasets:
            other = "sft" if isinstance(spec.action_space, Text) else "bc"
            raise UserError(
                f"this method learns from its own fresh rollouts and cannot learn from a dataset: use {other}"
            )
        check_feeds(components.method)
        own_feed = components.feedback.feed
        if own_feed is not None and own_feed.collects:
            raise UserError(
                f"the feedback {components.feedback.name} learns from fresh experience: it needs an environment"
            )
        self.components, self.spec, self.seeds = with_array_leaves(components), spec, seeds
        self.own_store = None if own_feed is None else own_feed.make_store(0)
        self.data = feed.make_sampler(transitions, group_size)
        self.warmup_blocks, self.steps_per_block = 0, 1
        self.metric_names = tuple(self._trace_metrics())
        self.timer = PhaseTimer("program")
        self.timing = self.timer.seconds
        self.placement = choose_placement(LoopPrograms(self._init, self._chunk, (), seeds), 1, 1)

    def _trace_metrics(self) -> dict[str, Any]:
        def trace(data, root):
            learner = self._init_one(root)
            zero = jnp.zeros((), "int32")
            return self._update(self.components, data, root, (learner.method, learner.feedback), zero)[2]

        return jax.eval_shape(trace, self.data, seed_key(0))

    def shapes(self) -> LoggedCarry:
        """Shapes of the carry; nothing is allocated."""
        return self._shapes

    @functools.cached_property
    def _shapes(self) -> PyTree:
        return jax.eval_shape(self._init, root_keys(self.seeds))

    def init(self, worker: int = 0, watch: Watch = NO_WATCH) -> LoggedCarry:
        """The loop carry before the first step, the same for every ``worker``."""
        return watch.call(lambda: jax.block_until_ready(self.placement.init(0)))

    def _init(self, seeds: Key[Array, " seed"]) -> LoggedCarry:
        learner = jax.vmap(self._init_one)(seeds)
        metric_sums = jax.vmap(lambda _: zero_metric_sums(self.metric_names))(seeds)
        return LoggedCarry(seeds, learner, metric_sums, jnp.zeros((), "int32"))

    def _init_one(self, root: Key[Array, ""]) -> LearnerState:
        method = self.components.method.init(self.spec, fold(root, "method"))
        return LearnerState(method, self.components.feedback.init(self.spec, fold(root, "feedback")), (), ())

    def _update(
        self, components: Components, data: DatasetSampler | BranchedSampler, root, states, index
    ) -> _UpdateResult:
        if isinstance(data, BranchedSampler):
            branches = [functools.partial(self._update, components, sampler) for sampler in data.samplers]
            bucket: Any = data.draw_bucket(index)
            return jax.lax.switch(bucket, branches, root, states, index)
        steps, mask = data.sample(fold(root, "batch", index))
        stored = None
        if isinstance(components.method, UsesStoredSteps) and isinstance(data, HasStoredSteps):
            stored = data.stored_steps()
        batch = Batch(steps, mask, (), index, stored=stored)
        method, feedback = states
        update_key, feedback_key = fold(root, "update", index), fold(root, "feedback", index)
        method, feedback, report, signal = update_inlined(
            components, method, feedback, batch, self._own_batches(components, root, index), update_key, feedback_key
        )
        return (method, feedback), (report, signal), merge_metrics(report, signal, Report({}))

    def _own_batches(self, components: Components, root: Key[Array, ""], index: Array) -> Batch | None:
        """The batches of the feedback's own feed for one update, with a leading axis."""
        if self.own_store is None:
            return None
        return sample_own(self.own_store, components, (), (None, (), index), root, index)

    def advance(self, carry: LoggedCarry, blocks: int, watch: Watch = NO_WATCH) -> LoggedCarry:
        """Run ``blocks`` updates; ``carry`` is consumed."""
        with self.timer.measure("program"):
            inputs = (self.components, self.data)
            run = functools.partial(self.placement.run, self.timer, inputs, carry, blocks, train=True)
            return watch.call(lambda: jax.block_until_ready(run()))

    def _chunk(
        self,
        given: tuple[Components, DatasetSampler | BranchedSampler],
        carry: LoggedCarry,
        blocks: Int[Array, ""],
        *,
        train: bool,
    ) -> LoggedCarry:
        parts, data = given

        def per_seed(root, learner: LearnerState, tally: MetricSums, index):
            states, (report, signal), _ = self._update(parts, data, root, (learner.method, learner.feedback), index)
            return LearnerState(*states, (), ()), add_metrics(tally, report, signal, Report({}))

        def block(_, carry: LoggedCarry) -> LoggedCarry:
            step = jax.vmap(per_seed, in_axes=(0, 0, 0, None))
            learner, tally = step(carry.root_keys, carry.learner, carry.metric_sums, carry.num_updates)
            return LoggedCarry(carry.root_keys, learner, tally, carry.num_updates + 1)

        return jax.lax.fori_loop(0, blocks, block, carry)

    def num_steps(self, carry: LoggedCarry) -> int:
        """Number of updates so far: in this loop a step is an update."""
        return int(carry.num_updates)

    def pop_metric_sums(self, carry: LoggedCarry) -> tuple[LoggedCarry, MetricSums]:
        """The metric sums since the last call, on the host, and the carry with them reset."""
        metric_sums = jax.device_get(carry.metric_sums)
        return eqx.tree_at(
            lambda c: c.metric_sums, carry, jax.tree.map(vmap_exact.zeros_like, carry.metric_sums)
        ), metric_sums

    def learner_state(self, carry: LoggedCarry) -> LearnerState:
        """The learner's state, leading axis ``[seed]``."""
        return gather_learner(carry.learner)

    def with_states(self, carry: LoggedCarry, states: LearnerState) -> LoggedCarry:
        """The carry with other states of method, feedback and curriculum, before the first step.

        They are ordinary arrays ``[seed, ...]``; the stores of ``states`` are not used.
        """
        return eqx.tree_at(lambda c: c.learner, carry, replace_states(carry.learner, states))

    def snapshot(self, carry: LoggedCarry) -> PyTree:
        """The content of a checkpoint: everything but the dataset."""
        return {"carry": carry}

    def checkpoint_template(self) -> PyTree:
        """The structure of this loop's checkpoints."""
        return {"carry": self.shapes()}

    def restore(self, snapshot: PyTree) -> tuple[LoggedCarry, list[str]]:
        """The carry from a checkpoint, and messages about what could not be restored (none)."""
        return self.placement.place(snapshot["carry"]), []

    def pop_warnings(self) -> list[str]:
        """No warnings: failures in this loop raise errors."""
        return []

    def close(self) -> None:
        """Do nothing: no resources are held."""

"""Asynchronous training: several learners act and learn in parallel on shared parameters without waiting.

Each worker is an ordinary loop with its own environments. Before every block it copies the shared parameters; after it,
it adds the block's change to them, leaf by leaf and without a lock: of two simultaneous additions one may be lost, and
others may have updated since the copy was made. Works with any method; non-numeric state and the replay buffer stay
with the worker. Results depend on timing; with one worker they are those of the inner loop, up to rounding.

Source: Mnih et al., 2016 (A3C); additions without a lock: Recht et al., 2011. Differs: the change
made by an optimiser step on copied statistics is added, not a gradient applied with shared ones; one thread per
worker, with all seeds.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.runtime.interrupts import NO_WATCH, Watch, leavable_threads
from thespis.runtime.vmap_exact import concat_seeds
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import LearnerSnapshot, LearnerState, MetricSums
from thespis.training.host_loop import HostLoop
from thespis.training.vector_env import CollectionError

SharedParams = dict[str, np.ndarray]
"""All numeric learned state, one vector per dtype; every worker changes it in place."""


class AsyncCarry(eqx.Module):
    """Loop carry, the whole state of a run: each worker's carry, and the shared parameters."""

    workers: tuple[Any, ...]
    shared_params: SharedParams


class AsyncLoop:
    """Asynchronous training loop with one thread per worker.

    The ``workers`` are loops with the same components and seeds.
    """

    def __init__(self, workers: list[CompiledLoop] | list[HostLoop]):
        first = workers[0]
        self.workers = workers
        for loop in workers[1:]:
            loop.timer = first.timer  # compiled programs are shared
        self.kind, self.seeds, self.metric_names = first.kind, first.seeds, first.metric_names
        self.timer, self.timing = first.timer, first.timing
        self.steps_per_block, self.parallel_blocks = first.steps_per_block, len(workers)
        self.warmup_blocks = first.warmup_blocks * len(workers)

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of all workers' device state; nothing is allocated."""
        return tuple(worker.shapes() for worker in self.workers)

    def init(self, worker: int = 0, watch: Watch = NO_WATCH) -> AsyncCarry:
        """A fresh carry: own environments for each worker from ``worker`` on, the first one's learner for all."""
        workers: tuple[Any, ...] = tuple(loop.init(worker + i, watch) for i, loop in enumerate(self.workers))
        return AsyncCarry(workers, _copy_params(flatten_params(self.workers[0].learner_state(workers[0]))))

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: AsyncCarry, blocks: int, watch: Watch = NO_WATCH) -> AsyncCarry:
        """Run ``blocks`` blocks in total, each by whichever worker is free; ``carry`` is consumed."""
        turns, shared = itertools.count(), carry.shared_params
        workers = [
            make_worker(loop, worker_carry) for loop, worker_carry in zip(self.workers, carry.workers, strict=True)
        ]

        def work(worker: AsyncWorker) -> None:
            while next(turns) < blocks:  # atomic in CPython: no two workers get the same number
                before = {dtype: vector.copy() for dtype, vector in shared.items()}
                try:
                    after = worker.run_block(before)
                except BaseException:
                    for _ in range(blocks):  # no worker starts another block
                        next(turns)
                    raise
                for dtype, vector in after.items():
                    shared[dtype] += np.asarray(vector) - before[dtype]

        with leavable_threads(len(workers), "learner") as threads:
            turns_done = [threads.submit(work, worker) for worker in workers]
            watch.call(lambda: [done.result() for done in turns_done])
        return AsyncCarry(tuple(worker.carry for worker in workers), shared)

    # -- what the driver reads -----------------------------------------------------------------------------

    def num_steps(self, carry: AsyncCarry) -> int:
        """Environment steps per seed so far, of all workers together."""
        return sum(loop.num_steps(worker_carry) for loop, worker_carry in zip(self.workers, carry.workers, strict=True))

    def pop_metric_sums(self, carry: AsyncCarry) -> tuple[AsyncCarry, MetricSums]:
        """The metric sums of all workers since the last call, on the host, and the carry with them reset."""
        results = [
            loop.pop_metric_sums(worker_carry) for loop, worker_carry in zip(self.workers, carry.workers, strict=True)
        ]
        metric_sums = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *(metric_sums for _, metric_sums in results))
        return AsyncCarry(tuple(worker_carry for worker_carry, _ in results), carry.shared_params), metric_sums

    def learner_state(self, carry: AsyncCarry) -> LearnerState:
        """The learner's state, leading axis ``[seed]``; the store is the first worker's."""
        return with_params(self.workers[0].learner_state(carry.workers[0]), carry.shared_params)

    def with_states(self, carry: AsyncCarry, states: LearnerState) -> AsyncCarry:
        """The carry with other states of method, feedback and curriculum, before the first step.

        They are ordinary arrays ``[seed, ...]``; the stores of ``states`` are not used.
        """
        workers: tuple[Any, ...] = tuple(
            loop.with_states(worker_carry, states)
            for loop, worker_carry in zip(self.workers, carry.workers, strict=True)
        )
        return AsyncCarry(workers, _copy_params(flatten_params(self.workers[0].learner_state(workers[0]))))

    def snapshot(self, carry: AsyncCarry) -> PyTree:
        """The content of a checkpoint: the learner, then every worker's whole state."""
        workers = tuple(
            loop.snapshot(worker_carry) for loop, worker_carry in zip(self.workers, carry.workers, strict=True)
        )
        return {"carry": LearnerSnapshot(self.learner_state(carry)), "workers": workers}

    def checkpoint_template(self) -> PyTree:
        """The structure of this loop's checkpoints."""
        workers = tuple(loop.checkpoint_template() for loop in self.workers)
        return {"carry": LearnerSnapshot(workers[0]["carry"].learner), "workers": workers}

    def restore(self, snapshot: PyTree) -> tuple[AsyncCarry, list[str]]:
        """The carry from a checkpoint, and messages about what could not be restored."""
        restored = [
            loop.restore(worker_carry) for loop, worker_carry in zip(self.workers, snapshot["workers"], strict=True)
        ]
        messages = list(dict.fromkeys(line for _, lines in restored for line in lines))
        learner = jax.tree.map(jnp.array, snapshot["carry"].learner)
        return AsyncCarry(
            tuple(worker_carry for worker_carry, _ in restored), _copy_params(flatten_params(learner))
        ), messages

    def pop_warnings(self) -> list[str]:
        """Warnings about the last blocks for the user, one line each."""
        return [line for loop in self.workers for line in loop.pop_warnings()]

    def close(self) -> None:
        """Close the loops of all workers."""
        for loop in self.workers:
            loop.close()


class CompiledWorker:
    """Worker with a compiled loop: one call takes the shared parameters, runs a block and returns new ones."""

    def __init__(self, loop: CompiledLoop, carry: Any):
        self.loop, self.num_blocks = loop, int(carry.num_ticks) // loop.stores.collect_steps
        self.leaves, self.tree = jax.tree.flatten(concat_seeds(carry))
        self.components, self.parts_tree = jax.tree.flatten(loop.components)
        self._program = jax.jit(self._shared_block, static_argnames="train", donate_argnames="leaves")

    def run_block(self, shared: SharedParams) -> dict[str, Any]:
        """Run one block that starts with ``shared``; returns the parameters after it."""
        train, args = self.num_blocks >= self.loop.warmup_blocks, (self.components, self.leaves, shared)
        with self.loop.timer.measure("program"):
            self.leaves, after = self.loop.timer.call_compiled(("shared", train), self._program, *args, train=train)
            self.num_blocks += 1
            return jax.block_until_ready(after)

    def _shared_block(self, parts: list, leaves: list, shared: dict[str, Any], *, train: bool) -> tuple[list, dict]:
        carry = jax.tree.unflatten(self.tree, leaves)
        carry = dataclasses.replace(carry, learner=with_params(carry.learner, shared))
        args = jax.tree.unflatten(self.parts_tree, parts), carry, jnp.ones((), "int32")
        carry = self.loop.run_chunk(*args, train=train)
        return jax.tree.leaves(carry), flatten_params(carry.learner)

    @property
    def carry(self) -> Any:
        """The worker's current carry."""
        return jax.tree.unflatten(self.tree, self.leaves)


class HostWorker:
    """Worker with a host loop, whose environments run outside JAX."""

    def __init__(self, loop: HostLoop, carry: Any):
        self.loop, self.carry = loop, carry

    def run_block(self, shared: SharedParams) -> dict[str, Any]:
        """Run one block that starts with ``shared``; returns the parameters after it."""
        learner = with_params(self.loop.learner_state(self.carry), shared)
        try:
            self.carry = self.loop.advance(self.loop.with_learner(self.carry, learner), 1)
        except CollectionError as failure:  # a single worker's carry is no checkpoint
            raise failure.error from failure.error.__cause__
        return flatten_params(self.loop.learner_state(self.carry))


AsyncWorker = CompiledWorker | HostWorker


def make_worker(loop: CompiledLoop | HostLoop, carry: Any) -> AsyncWorker:
    """Make a worker that runs blocks of ``loop``, starting from ``carry``."""
    return CompiledWorker(loop, carry) if isinstance(loop, CompiledLoop) else HostWorker(loop, carry)


def flatten_params(learner: LearnerState) -> dict[str, jax.Array]:
    """Flatten all numeric learned state except for the store into one vector per dtype."""
    return _flatten(_trained_states(learner))


def with_params(learner: LearnerState, shared: dict[str, Any]) -> LearnerState:
    """Return the learner with other parameters: the inverse of :func:`flatten_params`."""
    return dataclasses.replace(learner, **_unflatten(_trained_states(learner), shared))


def _trained_states(learner: LearnerState) -> dict[str, PyTree]:
    return {"method": learner.method, "feedback": learner.feedback, "curriculum": learner.curriculum}


@jax.jit
def _flatten(parts: dict[str, PyTree]) -> dict[str, jax.Array]:
    leaves = jax.tree.leaves(eqx.filter(parts, _is_numeric))
    dtypes = sorted({str(leaf.dtype) for leaf in leaves})
    return {d: jnp.concatenate([leaf.ravel() for leaf in leaves if str(leaf.dtype) == d]) for d in dtypes}


@jax.jit
def _unflatten(parts: dict[str, PyTree], shared: dict[str, Any]) -> dict[str, PyTree]:
    numbers, rest = eqx.partition(parts, _is_numeric)
    used = dict.fromkeys(shared, 0)

    def leaf(x: jax.Array) -> jax.Array:
        dtype = str(x.dtype)
        start, used[dtype] = used[dtype], used[dtype] + x.size
        return jnp.asarray(shared[dtype][start : used[dtype]]).reshape(x.shape)

    return eqx.combine(jax.tree.map(leaf, numbers), rest)


def _copy_params(numbers: dict[str, Any]) -> SharedParams:
    return {dtype: np.array(vector) for dtype, vector in numbers.items()}


def _is_numeric(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact) or jnp.issubdtype(leaf.dtype, jnp.integer)

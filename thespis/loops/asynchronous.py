"""The asynchronous loop: several learners act and learn side by side on one shared state, and none waits for another.

Each worker is an ordinary loop in worlds of its own. Before every block it copies the shared state, after it adds what
the block changed, leaf by leaf and without a lock: of two additions at the same instant one may be lost, and others may
have learnt since the copy was made. Any method can learn so; what is no number, and a replay memory, stays with the
worker. Results depend on timing, and with one worker are those of the loop inside, up to rounding.

Source: Mnih et al., 2016 (A3C); additions without a lock: Recht et al., 2011. Differs: what is added is the step that
an optimiser made of the copied statistics, not a gradient given to shared ones; one thread a worker, all seeds in it.
"""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.apart import together
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.parts import Learner, Tally

Shared = dict[str, np.ndarray]
"""All numbers that learning may change, one vector a dtype; changed in place by every worker."""


class AsyncCarry(eqx.Module):
    """The whole state of a run: each worker's carry, and the numbers they share."""

    workers: tuple[Any, ...]
    shared: Shared


class AsynchronousLoop:
    """Trains with one thread a worker; ``workers`` are loops with the same parts and seeds."""

    def __init__(self, workers: list[CompiledLoop] | list[HostLoop]):
        first = workers[0]
        self.workers = workers
        for loop in workers[1:]:
            loop.clock = first.clock  # what one has compiled serves all
        self.kind, self.seeds, self.metrics, self.timing = first.kind, first.seeds, first.metrics, first.timing
        self.block_steps = first.block_steps

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of what all workers hold on the device, nothing allocated."""
        return tuple(worker.shapes() for worker in self.workers)

    def init(self) -> AsyncCarry:
        """A fresh carry: worlds of each worker's own, the learner of the first."""
        workers: tuple[Any, ...] = tuple(loop.init(number) for number, loop in enumerate(self.workers))
        return AsyncCarry(workers, _copied(numbers_of(self.workers[0].learner(workers[0]))))

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: AsyncCarry, blocks: int) -> AsyncCarry:
        """Run ``blocks`` blocks in all, each by whoever is free; the carry given is used up."""
        turns, shared = itertools.count(), carry.shared
        workers = [worker_of(loop, one) for loop, one in zip(self.workers, carry.workers, strict=True)]

        def work(worker: Worker) -> None:
            while next(turns) < blocks:  # one step of C: no two draw the same turn
                before = {dtype: vector.copy() for dtype, vector in shared.items()}
                try:
                    after = worker.block(before)
                except BaseException:
                    for _ in range(blocks):  # nobody begins another
                        next(turns)
                    raise
                for dtype, vector in after.items():
                    shared[dtype] += np.asarray(vector) - before[dtype]

        with ThreadPoolExecutor(len(workers), "learner") as threads:
            for done in [threads.submit(work, worker) for worker in workers]:
                done.result()
        return AsyncCarry(tuple(worker.carry for worker in workers), shared)

    # -- what the driver reads -----------------------------------------------------------------------------

    def steps(self, carry: AsyncCarry) -> int:
        """Environment steps per seed so far, by all workers together."""
        return sum(loop.steps(one) for loop, one in zip(self.workers, carry.workers, strict=True))

    def take_tally(self, carry: AsyncCarry) -> tuple[AsyncCarry, Tally]:
        """The tally of all workers since the last call, on the host, and the carry with it cleared."""
        taken = [loop.take_tally(one) for loop, one in zip(self.workers, carry.workers, strict=True)]
        tally = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *(tally for _, tally in taken))
        return AsyncCarry(tuple(one for one, _ in taken), carry.shared), tally

    def learner(self, carry: AsyncCarry) -> Learner:
        """All learnt states, leading axis ``[seed]``; the store is the first worker's."""
        return with_numbers(self.workers[0].learner(carry.workers[0]), carry.shared)

    def snapshot(self, carry: AsyncCarry) -> PyTree:
        """What a checkpoint holds: the learner, then everything of every worker."""
        workers = tuple(loop.snapshot(one) for loop, one in zip(self.workers, carry.workers, strict=True))
        return {"carry": Learnt(self.learner(carry)), "workers": workers}

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like."""
        workers = tuple(loop.like() for loop in self.workers)
        return {"carry": Learnt(workers[0]["carry"].learner), "workers": workers}

    def restore(self, snapshot: PyTree) -> tuple[AsyncCarry, list[str]]:
        """The carry of a checkpoint, and what could not be restored."""
        restored = [loop.restore(one) for loop, one in zip(self.workers, snapshot["workers"], strict=True)]
        lost = list(dict.fromkeys(line for _, lines in restored for line in lines))
        learner = jax.tree.map(jnp.array, snapshot["carry"].learner)
        return AsyncCarry(tuple(one for one, _ in restored), _copied(numbers_of(learner))), lost

    def news(self) -> list[str]:
        """What the user should know of the last blocks, a line each."""
        return [line for loop in self.workers for line in loop.news()]

    def close(self) -> None:
        """Close all workers."""
        for loop in self.workers:
            loop.close()


class Learnt(eqx.Module):
    """Where every loop's checkpoint holds what was learnt."""

    learner: Learner


class InOneProgram:
    """A worker whose loop is compiled: numbers in, a block, and numbers out are one call on flat leaves."""

    def __init__(self, loop: CompiledLoop, carry: Any):
        self.loop, self.blocks = loop, int(carry.ticks) // loop.store.feed.ticks
        self.leaves, self.tree = jax.tree.flatten(together(carry))
        self.parts, self.parts_tree = jax.tree.flatten(loop.parts)
        self._program = jax.jit(self._shared_block, static_argnames="train", donate_argnames="leaves")

    def block(self, shared: Shared) -> dict[str, Any]:
        """The numbers after one block that began with ``shared``."""
        train, given = self.blocks >= self.loop.warmup, (self.parts, self.leaves, shared)
        with self.loop.clock.spent_on("program"):
            self.leaves, after = self.loop.clock.call(("shared", train), self._program, *given, train=train)
            self.blocks += 1
            return jax.block_until_ready(after)

    def _shared_block(self, parts: list, leaves: list, shared: dict[str, Any], *, train: bool) -> tuple[list, dict]:
        carry = jax.tree.unflatten(self.tree, leaves)
        carry = dataclasses.replace(carry, learner=with_numbers(carry.learner, shared))
        given = jax.tree.unflatten(self.parts_tree, parts), carry, jnp.ones((), "int32")
        carry = self.loop.chunk(*given, train=train)
        return jax.tree.leaves(carry), numbers_of(carry.learner)

    @property
    def carry(self) -> Any:
        """Where the worker stands."""
        return jax.tree.unflatten(self.tree, self.leaves)


class StepByStep:
    """A worker whose worlds are outside JAX."""

    def __init__(self, loop: HostLoop, carry: Any):
        self.loop, self.carry = loop, carry

    def block(self, shared: Shared) -> dict[str, Any]:
        """The numbers after one block that began with ``shared``."""
        learner = with_numbers(self.loop.learner(self.carry), shared)
        self.carry = self.loop.advance(self.loop.taught(self.carry, learner), 1)
        return numbers_of(self.loop.learner(self.carry))


Worker = InOneProgram | StepByStep


def worker_of(loop: CompiledLoop | HostLoop, carry: Any) -> Worker:
    """Who runs blocks of ``loop`` from ``carry`` on."""
    return InOneProgram(loop, carry) if isinstance(loop, CompiledLoop) else StepByStep(loop, carry)


def numbers_of(learner: Learner) -> dict[str, jax.Array]:
    """All numbers that learning changes, but for the store, in one vector a dtype."""
    return _numbers_of(_changing(learner))


def with_numbers(learner: Learner, shared: dict[str, Any]) -> Learner:
    """The learner with other numbers: what :func:`numbers_of` takes out, put in."""
    return dataclasses.replace(learner, **_with_numbers(_changing(learner), shared))


def _changing(learner: Learner) -> dict[str, PyTree]:
    return {"method": learner.method, "feedback": learner.feedback, "curriculum": learner.curriculum}


@jax.jit
def _numbers_of(parts: dict[str, PyTree]) -> dict[str, jax.Array]:
    leaves = jax.tree.leaves(eqx.filter(parts, _is_number))
    dtypes = sorted({str(leaf.dtype) for leaf in leaves})
    return {d: jnp.concatenate([leaf.ravel() for leaf in leaves if str(leaf.dtype) == d]) for d in dtypes}


@jax.jit
def _with_numbers(parts: dict[str, PyTree], shared: dict[str, Any]) -> dict[str, PyTree]:
    numbers, rest = eqx.partition(parts, _is_number)
    used = dict.fromkeys(shared, 0)

    def leaf(x: jax.Array) -> jax.Array:
        dtype = str(x.dtype)
        start, used[dtype] = used[dtype], used[dtype] + x.size
        return jnp.asarray(shared[dtype][start : used[dtype]]).reshape(x.shape)

    return eqx.combine(jax.tree.map(leaf, numbers), rest)


def _copied(numbers: dict[str, Any]) -> Shared:
    return {dtype: np.array(vector) for dtype, vector in numbers.items()}


def _is_number(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact) or jnp.issubdtype(leaf.dtype, jnp.integer)

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
        self._pack, self._unpack = jax.jit(_packed), jax.jit(_unpacked)

    # -- state ---------------------------------------------------------------------------------------------

    def shapes(self) -> PyTree:
        """Shapes of what all workers hold on the device, nothing allocated."""
        return tuple(worker.shapes() for worker in self.workers)

    def init(self) -> AsyncCarry:
        """A fresh carry: worlds of each worker's own, the learner of the first."""
        workers = tuple(loop.init(number) for number, loop in enumerate(self.workers))
        return AsyncCarry(workers, self._numbers(workers[0].learner))

    def _numbers(self, learner: Learner) -> Shared:
        return {dtype: np.array(vector) for dtype, vector in self._pack(_shareable(learner)[0]).items()}

    # -- running -------------------------------------------------------------------------------------------

    def advance(self, carry: AsyncCarry, blocks: int) -> AsyncCarry:
        """Run ``blocks`` blocks in all, each by whoever is free; the carry given is used up."""
        turns, workers = itertools.count(), list(carry.workers)

        def work(number: int) -> None:
            loop = self.workers[number]
            while next(turns) < blocks:  # one bytecode of C: no two workers draw the same turn
                try:
                    workers[number] = self._block(loop, workers[number], carry.shared)
                except BaseException:
                    for _ in zip(range(blocks), turns, strict=False):  # nobody begins another
                        pass
                    raise

        with ThreadPoolExecutor(len(workers), "learner") as threads:
            for done in [threads.submit(work, number) for number in range(len(workers))]:
                done.result()
        return AsyncCarry(tuple(workers), carry.shared)

    def _block(self, loop: Any, carry: Any, shared: Shared) -> Any:
        before = {dtype: vector.copy() for dtype, vector in shared.items()}
        carry = loop.advance(loop.taught(carry, self._with(carry.learner, before)), 1)
        for dtype, after in self._pack(_shareable(carry.learner)[0]).items():
            shared[dtype] += np.asarray(after) - before[dtype]
        return carry

    def _with(self, learner: Learner, shared: Shared) -> Learner:
        """The learner with other numbers."""
        numbers, rest = _shareable(learner)
        return dataclasses.replace(learner, **eqx.combine(self._unpack(shared, numbers), rest))

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
        return self._with(carry.workers[0].learner, carry.shared)

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
        return AsyncCarry(tuple(one for one, _ in restored), self._numbers(learner)), lost

    def close(self) -> None:
        """Close all workers."""
        for loop in self.workers:
            loop.close()


class Learnt(eqx.Module):
    """Where every loop's checkpoint holds what was learnt."""

    learner: Learner


def _shareable(learner: Learner) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
    """What learning changes, but for the store: its numbers, and the rest."""
    parts = {"method": learner.method, "feedback": learner.feedback, "curriculum": learner.curriculum}
    return eqx.partition(parts, _is_number)


def _is_number(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact) or jnp.issubdtype(leaf.dtype, jnp.integer)


def _packed(tree: PyTree) -> dict[str, jax.Array]:
    """All leaves in one vector a dtype."""
    leaves = jax.tree.leaves(tree)
    dtypes = sorted({str(leaf.dtype) for leaf in leaves})
    return {d: jnp.concatenate([leaf.ravel() for leaf in leaves if str(leaf.dtype) == d]) for d in dtypes}


def _unpacked(vectors: dict[str, jax.Array], like: PyTree) -> PyTree:
    """The tree whose leaves were packed; ``like`` lends shapes and dtypes."""
    used = dict.fromkeys(vectors, 0)

    def leaf(x: jax.Array) -> jax.Array:
        dtype = str(x.dtype)
        start, used[dtype] = used[dtype], used[dtype] + x.size
        return vectors[dtype][start : used[dtype]].reshape(x.shape)

    return jax.tree.map(leaf, like)

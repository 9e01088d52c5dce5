"""Cutting the worlds of all seeds into shares, and putting together what became of them.

Worker ``i`` of ``n`` holds the environments ``[i * share, (i + 1) * share)`` of every seed, so that a world has the
same index, and begins alike, however many workers there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from thespis.loops.host_state import HostWorld


@dataclasses.dataclass(frozen=True)
class Shares:
    """Rows of all workers, ``seeds`` seeds in each: leaves ``[tick, seed * env, ...]`` for every worker."""

    leaves: Sequence[list[np.ndarray]]
    seeds: int

    def stacked(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``, the environments of each seed in the order of the workers."""
        return [_joined(column, self.seeds, 1) for column in zip(*self.leaves, strict=True)]


@dataclasses.dataclass(frozen=True)
class Split:
    """``share`` environments of each of ``seeds`` seeds for every worker."""

    seeds: int
    share: int

    @property
    def size(self) -> int:
        """Environments of one worker."""
        return self.seeds * self.share

    def memory(self, memory: Any, i: int) -> Any:
        """Worker ``i``'s share of leaves ``[seed, env, ...]``."""
        return jax.tree.map(lambda x: np.asarray(x)[:, self._mine(i)], memory)

    def part(self, world: HostWorld, i: int) -> HostWorld:
        """Worker ``i``'s share of the worlds."""

        def flat(x: np.ndarray) -> np.ndarray:
            rows = x.reshape(self.seeds, x.shape[0] // self.seeds, *x.shape[1:])
            return rows[:, self._mine(i)].reshape(self.size, *x.shape[1:])

        others = (world.view, world.first, world.returns, world.lengths)
        return HostWorld(self.memory(world.memory, i), *jax.tree.map(flat, others))

    def whole(self, parts: list[HostWorld]) -> HostWorld:
        """The worlds of all workers."""
        memory = jax.tree.map(lambda *xs: np.concatenate(xs, 1), *(part.memory for part in parts))
        others = [(part.view, part.first, part.returns, part.lengths) for part in parts]
        return HostWorld(memory, *jax.tree.map(lambda *xs: _joined(xs, self.seeds, 0), *others))

    def _mine(self, i: int) -> slice:
        return slice(i * self.share, (i + 1) * self.share)


def _joined(parts: Sequence[np.ndarray], seeds: int, axis: int) -> np.ndarray:
    """Arrays whose ``axis`` is ``seed * env``, joined so that it stays so."""
    before, after = parts[0].shape[:axis], parts[0].shape[axis + 1 :]
    cut = [part.reshape(*before, seeds, part.shape[axis] // seeds, *after) for part in parts]
    return np.concatenate(cut, axis + 1).reshape(*before, sum(part.shape[axis] for part in parts), *after)

"""Pacing of a run: how many blocks a loop runs in one call, and the copy of its state that an interrupt may need.

Between two rows of metrics a loop is called several times, each for about a second, so that the run can be stopped in
between; results do not depend on it. A single block may take longer: many epochs on images are one program, which
cannot be stopped. Before such a block the state is copied. If the user interrupts it, the program is left alone and the
copy is saved, so that the resumed run repeats the block exactly.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.runtime.memory_budget import tree_bytes
from thespis.runtime.vmap_exact import PerSeedArray

CALL_SECONDS = 1.0
"""Seconds that a call should take."""
SLOW_SECONDS = 0.5
"""Seconds from which a block counts as slow: its state is copied before it."""
MAX_COPY_BYTES = 2**30
"""Size of the largest state that is copied: above it, an interrupt waits for the end of the block."""
MAX_GROWTH = 4
"""A call runs at most this many times as many blocks as the one before."""
MAX_FIXED_SECONDS = 2.0
"""Largest part of a call's time that can be taken for a cost of the call: the rest is its blocks'."""


@runtime_checkable
class PacedLoop(Protocol):
    """The part of a training loop that a :class:`Pace` needs."""

    warmup_blocks: int
    """Blocks without updates at the start of a run."""
    parallel_blocks: int
    """Blocks that are computed at the same time."""
    timing: dict[str, float]

    def shapes(self) -> PyTree:
        """Shapes of the state on the device; nothing is allocated."""
        ...


class Pace:
    """Chooses the number of blocks of each call by the time that earlier ones took, without compilation.

    A call has a cost of its own: threads start, arrays are handed over, and on a loaded machine each of these waits.
    It shows where two calls differ in their number of blocks. So a first call of one block is followed by one of two
    at least, unless it took long: the start of a call would else be taken for a slow block, and all calls stay at one.
    """

    def __init__(self, loop: PacedLoop):
        self._loop = loop
        self._last, self._began, self._compiled = 1, 0.0, 0.0
        self._forget()
        is_copied = jax.process_count() == 1 and tree_bytes(loop.shapes()) <= MAX_COPY_BYTES
        self._may_watch = is_copied and threading.current_thread() is threading.main_thread()

    def num_blocks(self, done: int, remaining: int) -> int:
        """Number of blocks of the next call: at most ``remaining``, and all of these with several processes.

        ``done`` blocks of the run are over. Warm-up blocks and those with updates do not share a call.
        """
        if jax.process_count() > 1:  # all must run the same programs
            return remaining
        if done == self._loop.warmup_blocks:
            self._forget()
        warmup = self._loop.warmup_blocks - done
        remaining = min(remaining, warmup) if warmup > 0 else remaining
        smallest = 4 * self._loop.parallel_blocks if self._loop.parallel_blocks > 1 else 1
        if self._seconds_per_block is None:
            return min(smallest, remaining)
        count = min(int(CALL_SECONDS / max(self._seconds_per_block, 1e-6)), MAX_GROWTH * self._last)
        if self._fixed is None and self._seconds < min(MAX_FIXED_SECONDS, 2 * CALL_SECONDS):
            smallest = max(smallest, 2)
        return min(max(count, smallest), remaining)

    def is_slow(self) -> bool:
        """Whether the next call may take so long that its state should be copied: that is so, or is not known."""
        slow = self._seconds_per_block is None or self._seconds_per_block * self._loop.parallel_blocks >= SLOW_SECONDS
        return slow and self._may_watch

    def start(self) -> None:
        """A call begins."""
        self._began, self._compiled = time.monotonic(), self._loop.timing["compile"]

    def stop(self, blocks: int) -> None:
        """The call has run this number of blocks."""
        seconds = time.monotonic() - self._began - (self._loop.timing["compile"] - self._compiled)
        seconds = max(seconds, 0.0)
        if self._seconds_per_block is not None and blocks != self._last:
            slope = (seconds - self._seconds) / (blocks - self._last)
            self._fixed = min(max(seconds - slope * blocks, 0.0), seconds, self._seconds, MAX_FIXED_SECONDS)
        variable = max(seconds - (self._fixed or 0.0), seconds / MAX_GROWTH)
        self._seconds_per_block, self._seconds, self._last = variable / blocks, seconds, blocks

    def _forget(self) -> None:
        """No call has been measured."""
        self._seconds_per_block: float | None = None
        self._fixed: float | None = None  # seconds that a call takes beside its blocks
        self._seconds, self._last = 0.0, 1


def copy_state(tree: PyTree) -> PyTree:
    """A copy of a checkpoint's content in the host's memory, which later calls do not overwrite."""

    def leaf(x: Any) -> Any:
        if isinstance(x, PerSeedArray):
            parts: Any = [np.array(part) for part in x.per_seed]
            return PerSeedArray(parts)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            data: Any = np.array(jax.random.key_data(x))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        return np.array(x) if isinstance(x, jax.Array | np.ndarray) else x

    return jax.tree.map(leaf, tree)

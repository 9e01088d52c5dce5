"""The memory that a run needs, checked before its first step."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from thespis.core.errors import UserError


def tree_bytes(shapes: PyTree) -> int:
    """Total bytes of the arrays in a tree of shapes."""

    def leaf(x) -> int:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return 8 * x.size
        return x.size * x.dtype.itemsize

    return sum(leaf(x) for x in jax.tree.leaves(shapes))


def available_bytes() -> int | None:
    """Free bytes on the device that computes; ``None`` where this is unknown."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None
    free = _meminfo_available()
    limit = _cgroup_limit()
    limits = [x for x in (free, limit) if x is not None]
    return min(limits) if limits else None


def _meminfo_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return _physical_bytes()


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not available on Windows
        return None


def _cgroup_limit() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else int(limit) - int(used)
    except (OSError, ValueError):
        return None


def require_memory(num_bytes: int, num_devices: int = 1) -> None:
    """Raise :class:`UserError` for a run that does not fit; ``num_devices`` accelerators have that much memory each."""
    available = available_bytes()
    if available is not None and jax.local_devices()[0].platform != "cpu":
        available *= num_devices
    if available is not None and num_bytes > available:
        raise UserError(
            f"this run plans {num_bytes / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free: lower "
            "feed.buffer_size, the number of seeds or of environments"
        )

"""Several processes that run one training together, each with devices of its own: what they must agree on.

All run the same command, and so the same programs in the same order. The first one writes the run and speaks; the
others write to a folder that passes away.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import PyTree

from thespis.core.errors import UserError

STILL = 600
"""Seconds after which a process that says nothing is taken for dead, and all others end."""


def join(coordinator: str | None, processes: int, process: int) -> None:
    """Meet the other processes at ``coordinator`` (``HOST:PORT`` of the first one), before JAX is used.

    Raises:
        UserError: if the numbers contradict each other or nobody comes.
    """
    if processes == 1 and coordinator is None:
        return
    if coordinator is None or not 0 <= process < processes or processes < 2:
        raise UserError(
            "several processes need --coordinator HOST:PORT, --processes N (2 or more) and each its own --process: "
            "0, 1 .. N-1"
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=STILL)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"cannot meet the other processes at {coordinator}: {str(error).splitlines()[0]}") from error


def first() -> bool:
    """Whether this process writes and speaks."""
    return jax.process_index() == 0


def agreed(*flags: bool) -> tuple[bool, ...]:
    """What any of the processes says, so that all of them go the same way."""
    if jax.process_count() == 1:
        return flags
    from jax.experimental import multihost_utils

    said = multihost_utils.process_allgather(np.array(flags))
    return tuple(np.any(said, axis=0).tolist())


def fetched(tree: PyTree) -> PyTree:
    """The same arrays, whole and on a device of this process; all processes ask for them, in one exchange."""
    leaves, structure = jax.tree.flatten(tree)
    shared = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1]
    if shared:
        every = NamedSharding(leaves[shared[0]].sharding.mesh, PartitionSpec())
        whole = jax.jit(_same, out_shardings=every)([leaves[i] for i in shared])
        for i, x in zip(shared, whole, strict=True):
            leaves[i] = x.addressable_data(0)
    return structure.unflatten(leaves)


def _same(arrays: list[jax.Array]) -> list[jax.Array]:
    return arrays


@contextlib.contextmanager
def own_directory(path: Path) -> Iterator[Path]:
    """Where this process writes the run: ``path`` itself if it is the first."""
    if first():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="thespis-") as passing:
        yield Path(passing)

"""Distributed training in several processes, each with its own devices: joining, agreeing and gathering.

All processes run the same command, and so the same programs in the same order. The first one writes the run and prints;
the others write to a temporary folder.
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

HEARTBEAT_TIMEOUT = 600
"""Seconds without a heartbeat after which a process counts as dead, and all others end."""


def join_processes(coordinator: str | None, num_processes: int, process_index: int) -> None:
    """Join the other processes at ``coordinator`` (``HOST:PORT`` of the first one), before JAX is used.

    Raises:
        UserError: if the numbers contradict each other or the other processes do not join.
    """
    if num_processes == 1 and coordinator is None:
        return
    if coordinator is None or not 0 <= process_index < num_processes or num_processes < 2:
        raise UserError(
            "several processes need --coordinator HOST:PORT, --processes N (2 or more) and each its own --process: "
            "0, 1 .. N-1"
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            coordinator, num_processes, process_index, heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"cannot meet the other processes at {coordinator}: {str(error).splitlines()[0]}") from error


def is_main_process() -> bool:
    """Whether this process writes files and prints."""
    return jax.process_index() == 0


def any_process(*flags: bool) -> tuple[bool, ...]:
    """Logical or of each flag over all processes, so that all of them do the same."""
    if jax.process_count() == 1:
        return flags
    from jax.experimental import multihost_utils

    all_flags = multihost_utils.process_allgather(np.array(flags))
    return tuple(np.any(all_flags, axis=0).tolist())


def gather_arrays(tree: PyTree) -> PyTree:
    """Gather sharded arrays whole onto a device of this process; a collective call of all processes."""
    leaves, structure = jax.tree.flatten(tree)
    shared = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1]
    if shared:
        replicated = NamedSharding(leaves[shared[0]].sharding.mesh, PartitionSpec())
        whole = jax.jit(_identity, out_shardings=replicated)([leaves[i] for i in shared])
        for i, x in zip(shared, whole, strict=True):
            leaves[i] = x.addressable_data(0)
    return structure.unflatten(leaves)


def _identity(arrays: list[jax.Array]) -> list[jax.Array]:
    return arrays


@contextlib.contextmanager
def process_directory(path: Path) -> Iterator[Path]:
    """The directory to which this process writes the run: ``path`` for the first, a temporary one for others."""
    if is_main_process():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="thespis-") as temporary:
        yield Path(temporary)

"""The connection to Ray: a Ray of our own on this machine, or a cluster that is there already."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from thespis.core.errors import UserError, missing_extra

REACHED_WITHIN = 5.0  # seconds until a cluster's address must answer

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "NPROC": "1",  # XLA's threads: workers share the machine with each other and with the learner
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""What a worker's process finds in its environment: acting is small, and accelerators are the learner's."""


class Connection(NamedTuple):
    """What ends it, and a Ray of our own with it; and what workers find in their environment."""

    leave: Callable[[], None]
    environment: dict[str, str]


def connect(address: str | None, count: int, what: str = "workers") -> Connection:
    """Connect this process to Ray.

    ``address``: ``HOST:PORT`` of a cluster's head, ``auto`` for the cluster that this machine belongs to, ``None``
    for a Ray of our own with room for ``count``. A process that is connected already stays so. ``what`` needs a CPU
    each: ``workers`` or ``jobs``, which is also the option that says how many.

    Raises:
        UserError: if Ray is missing, nobody answers at the address, or there are too few CPUs.
    """
    ray = _ray()
    if ray.is_initialized():
        joined = Connection(lambda: None, ENVIRONMENT)
    else:
        joined = _join(ray, address) if address else _start(ray, count)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if cpus < count:
        joined.leave()
        raise UserError(f"the cluster has {cpus} CPUs and {count} {what} need one each: --{what} {max(cpus, 1)}")
    return joined


def lost() -> tuple[type[Exception], ...]:
    """The errors that mean that a process of Ray's, or what it had answered, is no more."""
    from ray import exceptions

    gone = exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError
    return *gone, exceptions.ObjectLostError, exceptions.OutOfMemoryError


def _ray() -> Any:
    # read when Ray is first imported: it would report its use, and remark on what we set above
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "cluster") from error
    return ray


def _start(ray: Any, count: int) -> Connection:
    """A Ray of our own, all of whose files lie in one folder that goes with it."""
    # not where TMPDIR points: the names of sockets must be short
    folder = tempfile.mkdtemp(prefix="thespis-", dir="/tmp")

    def leave() -> None:
        _shut_down(ray)
        shutil.rmtree(folder, ignore_errors=True)

    try:
        with warnings.catch_warnings():
            # what Ray's children do between fork and exec needs no lock that one of JAX's threads may hold
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            _init(ray, "local", num_cpus=count, include_dashboard=False, _temp_dir=folder)
    except Exception as error:
        leave()
        raise UserError(f"Ray does not start on this machine: {_line(error)}") from error
    # modules that this process finds are found by its workers, wherever it has been told to look for them
    return Connection(leave, ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def _join(ray: Any, address: str) -> Connection:
    if "://" in address:
        raise UserError(f"--cluster {address}: give HOST:PORT or auto, on a machine that belongs to the cluster")
    if address != "auto":
        _knock(address)
    try:
        _init(ray, address)
    except Exception as error:
        _shut_down(ray)
        raise UserError(f"--cluster {address}: {_line(error)}") from error
    return Connection(lambda: _shut_down(ray), ENVIRONMENT)


def _knock(address: str) -> None:
    """Raises :class:`UserError` if nobody answers: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--cluster {address} does not fit: give HOST:PORT or auto")
    try:
        socket.create_connection((host, int(port)), REACHED_WITHIN).close()
    except OSError as error:
        raise UserError(f"--cluster {address}: nobody answers there ({error.strerror or error})") from error


def _init(ray: Any, address: str, **how: Any) -> None:
    """Connect, and let Ray say nothing: what a user must know of workers, we say ourselves."""
    # Ray prints what it thinks of a worker's death to stdout, and offers no option against it
    ray._private.worker._worker_logs_enabled = False
    ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **how)


def _shut_down(ray: Any) -> None:
    ray.shutdown()
    ray._private.worker._worker_logs_enabled = True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

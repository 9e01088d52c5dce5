"""The connection to Ray: a local Ray on this machine, or an existing cluster."""

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

CONNECT_TIMEOUT = 5.0  # seconds until a cluster's address must answer

WORKER_ENV_VARS = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "NPROC": "1",  # XLA's threads: workers share the machine with each other and with the learner
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Environment variables of worker processes: acting needs little, and accelerators are reserved for the learner."""


class RayConnection(NamedTuple):
    """A connection to Ray: a function that ends it (and a local Ray), and the workers' environment variables."""

    disconnect: Callable[[], None]
    env_vars: dict[str, str]


def connect(address: str | None, num_cpus: int, purpose: str = "workers") -> RayConnection:
    """Connect this process to Ray.

    ``address``: ``HOST:PORT`` of a cluster's head, ``auto`` for the cluster that this machine belongs to, ``None``
    for a local Ray with ``num_cpus`` CPUs. An existing connection of this process is reused. ``purpose``: what needs a
    CPU each, ``workers`` or ``jobs``; it is also the name of the option for their number.

    Raises:
        UserError: if Ray is missing, the address does not answer, or there are too few CPUs.
    """
    ray = _import_ray()
    if ray.is_initialized():
        connection = RayConnection(lambda: None, WORKER_ENV_VARS)
    else:
        connection = _join_cluster(ray, address) if address else _start_local(ray, num_cpus)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if cpus < num_cpus:
        connection.disconnect()
        raise UserError(
            f"the cluster has {cpus} CPUs and {num_cpus} {purpose} need one each: --{purpose} {max(cpus, 1)}"
        )
    return connection


def worker_lost_errors() -> tuple[type[Exception], ...]:
    """The errors that mean that a Ray process, or a result of it, is lost."""
    from ray import exceptions

    process_errors = exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError
    return *process_errors, exceptions.ObjectLostError, exceptions.OutOfMemoryError


def _import_ray() -> Any:
    # read when Ray is first imported: turns off usage statistics and a warning about the variables above
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "cluster") from error
    return ray


def _start_local(ray: Any, count: int) -> RayConnection:
    """Start a local Ray, with all its files in one folder that is deleted with it."""
    # not below TMPDIR: paths of sockets must be short
    folder = tempfile.mkdtemp(prefix="thespis-", dir="/tmp")

    def leave() -> None:
        _shut_down(ray)
        shutil.rmtree(folder, ignore_errors=True)

    try:
        with warnings.catch_warnings():
            # Ray's child processes do nothing between fork and exec that needs a lock of JAX's threads
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            _init(ray, "local", num_cpus=count, include_dashboard=False, _temp_dir=folder)
    except Exception as error:
        leave()
        raise UserError(f"Ray does not start on this machine: {_one_line(error)}") from error
    # workers can import the same modules as this process
    return RayConnection(leave, WORKER_ENV_VARS | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def _join_cluster(ray: Any, address: str) -> RayConnection:
    if "://" in address:
        raise UserError(f"--cluster {address}: give HOST:PORT or auto, on a machine that belongs to the cluster")
    if address != "auto":
        _check_reachable(address)
    try:
        _init(ray, address)
    except Exception as error:
        _shut_down(ray)
        raise UserError(f"--cluster {address}: {_one_line(error)}") from error
    return RayConnection(lambda: _shut_down(ray), WORKER_ENV_VARS)


def _check_reachable(address: str) -> None:
    """Raise :class:`UserError` if the address does not answer: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--cluster {address} does not fit: give HOST:PORT or auto")
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
    except OSError as error:
        raise UserError(f"--cluster {address}: nobody answers there ({error.strerror or error})") from error


def _init(ray: Any, address: str, **how: Any) -> None:
    """Connect with Ray's output turned off: our own messages report on workers."""
    # Ray prints messages about dead workers to stdout, and has no option against it
    ray._private.worker._worker_logs_enabled = False
    ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **how)


def _shut_down(ray: Any) -> None:
    ray.shutdown()
    ray._private.worker._worker_logs_enabled = True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

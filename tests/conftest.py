"""What all tests share: JAX on the CPU, a compile cache, tiers and shards, workers that stay small."""

from __future__ import annotations

import collections
import ctypes
import gc
import os
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Read by JAX when it is first imported, and by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # bits are compared, and only the CPU promises them
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
# Tests compile thousands of programs of a few milliseconds each: all of them are worth keeping.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most of the suite's time is XLA compiling programs that run once: these flags take a third of it away. The older
# instruction set has no fused multiply-add, whose use would differ between programs that must agree in every bit.
# `make test-slow` repeats laws and loops with the optimiser on.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX",
)
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("WANDB_MODE", "offline")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NPROC", "1")  # the size of XLA's thread pool: parallel workers would only contend
# Where an image forbids bytecode files, every process that a test starts would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tracing makes many objects and little garbage; a collection looks at all of them and was a tenth of the time.
gc.set_threshold(100_000, 20, 100)

FOLDERS = {"papers": "papers", "browser": "browser"}
"""Folders of tests that are a tier of their own, and its marker."""

LARGE = 1_500_000_000
"""Bytes that a worker may hold before it forgets what it compiled."""
MANY = 20_000
"""Memory maps that it may hold: Linux grants a process 65,530, and each compiled program takes some."""
GROWN = 400_000_000
"""Bytes by which it must have grown before it forgets between cases of a file: not at every test."""
KEPT = collections.Counter()
"""Bytes that were left when it last forgot."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark folders that are tiers, and keep one shard of what was collected: ``SHARD=2/4``.

    Tests of one case share what is compiled for it, so cases are dealt out whole. Runs before pytest looks at ``-m``.
    """
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in FOLDERS:
            item.add_marker(FOLDERS[folder])
    shard = os.environ.get("SHARD")
    if not shard:
        return
    number, count = (int(part) for part in shard.split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError(f"SHARD={shard}: the first number is one of 1 to {count}")
    kept = [item for item in items if zlib.crc32(_group(item).encode()) % count == number - 1]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _group(item) -> str:
    """What must not be torn apart: the tests of a case in a file, or else a test."""
    parameters = getattr(item, "callspec", None)
    name = parameters.params.get("name") if parameters else None
    return f"{item.path.name} {name}" if name is not None else item.nodeid


def pytest_collection_finish():
    """What was imported stays: collections need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs between files and between cases, where there are many or they are large."""
    within_file = nextitem is not None and nextitem.path == item.path
    if within_file and _group(nextitem) == _group(item):
        return
    if "jax" not in sys.modules or not sys.platform.startswith("linux"):
        return
    grown = not within_file or _resident() > KEPT["bytes"] + GROWN
    if grown and (_resident() > LARGE or _maps() > MANY):
        sys.modules["jax"].clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        KEPT["bytes"] = _resident()


def _resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _maps() -> int:
    with Path("/proc/self/maps").open("rb") as maps:
        return sum(1 for _ in maps)


# -- what a run cost -------------------------------------------------------------------------------------

COSTS: collections.Counter[str] = collections.Counter()
"""Programs compiled, programs read from the cache, seconds of both, and the largest worker, of this run."""


def pytest_configure(config):
    """Count what is compiled, here or, through xdist, in every worker."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import jax.monitoring

    def seconds(event: str, duration: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            COSTS.update({"programs": 1, "seconds": duration})

    def happened(event: str, **_) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            COSTS["cached"] += 1

    jax.monitoring.register_event_duration_secs_listener(seconds)
    jax.monitoring.register_event_listener(happened)


def pytest_sessionfinish(session):
    """A worker sends its costs home."""
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    COSTS["largest"] = max(COSTS["largest"], largest)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = dict(COSTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Add up what the workers sent."""
    costs = dict(getattr(node, "workeroutput", {}).get("costs", {}))
    COSTS["largest"] = max(COSTS["largest"], costs.pop("largest", 0))
    COSTS.update(costs)


def pytest_terminal_summary(terminalreporter):
    """One line on what compiling cost, as it is most of what the suite costs."""
    terminalreporter.write_line(
        f"{COSTS['programs']:.0f} programs, {COSTS['cached']:.0f} of them from the cache, "
        f"{COSTS['seconds']:.0f} s of compiling and reading; largest worker {COSTS['largest'] / 2**20:.2f} GB"
    )

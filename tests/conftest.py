"""Configuration of all tests: JAX on the CPU, compile cache, tiers, shards, and memory limits of workers."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import gc
import inspect
import itertools
import os
import sys
import threading
import zlib
from pathlib import Path

import jaxtyping
import pytest

ROOT = Path(__file__).parents[1]

# Read by JAX when it is first imported, and by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # bits are compared, and only the CPU reproduces them
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
# Tests compile thousands of programs in a few milliseconds each: all of them are cached.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most of the suite's time is XLA compiling programs that run once: these flags save a third of it. The older
# instruction set has no fused multiply-add, which XLA would use in some of the programs that must agree in every bit.
# `make test-slow` repeats laws and loops with the optimiser on.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX",
)
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("WANDB_MODE", "offline")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NPROC", "1")  # the size of XLA's thread pool: parallel workers share the cores
# Without bytecode files, every process that a test starts would compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tracing creates many objects and little garbage; collections visited all of them and took a tenth of the time.
gc.set_threshold(100_000, 20, 100)


def _check_shapes_of_called_functions() -> None:
    """Check the first calls of a function in each test, and decorate it at the first of all.

    Of ten thousand functions a worker calls a part, and some of them thousands of times in one test. Functions inside
    functions stay unchecked: they would be decorated anew at every call, a millisecond each time. The arrays that they
    compute are checked where the function around them returns.
    """
    check = jaxtyping.jaxtyped

    def jaxtyped(*args, **kwargs):
        decorate = check(*args, **kwargs)

        def decorate_at_first_call(item):
            if "<locals>" in item.__qualname__:
                return item
            if not inspect.isfunction(item) or item.__code__.co_flags & NOT_PLAIN:
                return decorate(item)
            checked, test, left = None, -1, 0

            @functools.wraps(item)
            def call(*args, **kwargs):
                nonlocal checked, test, left
                if test != COSTS["tests"]:
                    test, left = COSTS["tests"], CHECKED_CALLS
                if not left:
                    return item(*args, **kwargs)
                left -= 1
                if checked is None:
                    checked = decorate(item)
                return checked(*args, **kwargs)

            call.__code__ = call.__code__.replace(co_filename=jaxtyping.__file__)  # as that of a checked function
            return call

        return decorate_at_first_call

    jaxtyping.jaxtyped = jaxtyped  # the import hook looks it up at every decoration


NOT_PLAIN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Functions that others recognize by these flags, which a wrapper would not have."""

CHECKED_CALLS = 3
"""Calls of a function that are checked in each test."""
COSTS: collections.Counter[str] = collections.Counter()
"""Tests begun, programs: compiled, read and deleted how often, seconds of that, memory of the largest worker."""

_check_shapes_of_called_functions()

MARKER_BY_FOLDER = {"papers": "papers", "browser": "browser"}
"""The marker of each folder of tests that is a separate tier."""

MAX_BYTES, MAX_SHARE = 1_500_000_000, 0.1
"""Resident bytes above which a worker deletes its compiled programs, and the share of the memory where that is more."""
MAX_MAPS = 30_000
"""Memory maps above which it deletes them: Linux allows 65,530 per process, and each compiled program takes some."""
MIN_GROWTH, MIN_NEW_MAPS = 400_000_000, 5_000
"""How much a worker must have grown since the last deletion: what others hold stays, and a deletion takes a second."""
PROGRAMS_PER_COUNT = 500
"""Programs after which memory maps are counted again."""
AFTER_CLEARING = collections.Counter()
"""Resident bytes and memory maps after the last deletion, and programs when maps were counted last."""


def pytest_runtest_setup(item):
    """Count tests."""
    COSTS["tests"] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark folders that are tiers, and select one shard of the collected tests: ``SHARD=2/4``.

    Tests of one case share compiled programs, so cases are not split. Runs before pytest applies ``-m``.
    """
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in MARKER_BY_FOLDER:
            item.add_marker(MARKER_BY_FOLDER[folder])
    shard = os.environ.get("SHARD")
    if not shard:
        return
    number, count = (int(part) for part in shard.split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError(f"SHARD={shard}: the first number is one of 1 to {count}")
    selected = [item for item in items if zlib.crc32(_group(item).encode()) % count == number - 1]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    items[:] = selected


def _group(item) -> str:
    """The key of tests that are kept together: those of one case in a file, or else a single test."""
    parameters = getattr(item, "callspec", None)
    name = parameters.params.get("name") if parameters else None
    return f"{item.path.name} {name}" if name is not None else item.nodeid


def pytest_collection_finish():
    """Exclude imported objects, which stay alive, from garbage collection."""
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Delete compiled programs between files and between cases, if they are many or large."""
    within_file = nextitem is not None and nextitem.path == item.path
    if within_file and _group(nextitem) == _group(item):
        return
    if "jax" not in sys.modules or not sys.platform.startswith("linux"):
        return
    max_bytes = max(MAX_BYTES, MAX_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    is_large = _resident_bytes() > max(max_bytes, AFTER_CLEARING["bytes"] + MIN_GROWTH)
    if is_large or _has_many_maps():
        sys.modules["jax"].clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        AFTER_CLEARING["bytes"], AFTER_CLEARING["maps"] = _resident_bytes(), _num_maps()
        COSTS["clearings"] += 1


def _has_many_maps() -> bool:
    """Whether memory maps are many; they are counted after every few hundred programs, as counting takes 10 ms."""
    if COSTS["programs"] < AFTER_CLEARING["counted"] + PROGRAMS_PER_COUNT:
        return False
    AFTER_CLEARING["counted"] = int(COSTS["programs"])
    return _num_maps() > max(MAX_MAPS, AFTER_CLEARING["maps"] + MIN_NEW_MAPS)


def _resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _num_maps() -> int:
    """The number of memory maps of this process."""
    with Path("/proc/self/maps").open("rb") as maps:
        return sum(1 for _ in maps)


PROGRAMS_PER_CONTEXT = 200
"""Programs that are lowered in one MLIR context, whose constants live as long as the context."""


def _share_lowering_contexts() -> None:
    """Lower many programs in one MLIR context: creating one takes 10 ms, longer than the rest of a small program.

    A program that is lowered while another one is being lowered in this thread has a context of its own: it would
    become a part of the other one.
    """
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    create = mlir.make_ir_context
    contexts: list = []
    numbers, lock = itertools.count(), threading.Lock()

    def is_lowering() -> bool:
        try:
            return ir.InsertionPoint.current is not None
        except ValueError:
            return False

    def shared_context():
        if is_lowering():
            return create()
        with lock:  # another thread may ask while the first context is made
            if next(numbers) % PROGRAMS_PER_CONTEXT == 0:
                contexts[:] = [create()]
            return contexts[0]

    mlir.make_ir_context = shared_context


DRAWING_TESTS = {"browser", "test_report.py", "test_comparison.py", "test_commands.py", "test_docs.py"}
"""Folders and files of tests in which figures are drawn."""


@contextlib.contextmanager
def _empty_figures():
    """An empty drawing in place of every figure: drawing takes a good part of the time of a short run."""
    from thespis.evaluation import plots

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "render_figure", lambda figure, image_format: b'<svg viewBox="0 0 1 1"></svg>')
        yield


@pytest.fixture
def empty_figures():
    """Empty figures in one test of a file in which figures are drawn."""
    with _empty_figures():
        yield


@pytest.fixture(autouse=True, scope="module")
def undrawn_figures(request):
    """Empty figures wherever figures are not tested."""
    if DRAWING_TESTS & {request.path.parent.name, request.path.name}:
        yield
        return
    with _empty_figures():
        yield


# -- compilation costs -------------------------------------------------------------------------------------


def pytest_configure(config):
    """Count compilations in this process or, with xdist, in every worker."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import jax.monitoring

    _share_lowering_contexts()

    def count_compilation(event: str, duration: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            COSTS.update({"programs": 1, "seconds": duration})

    def count_cache_hits(event: str, **_) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            COSTS["cached"] += 1

    jax.monitoring.register_event_duration_secs_listener(count_compilation)
    jax.monitoring.register_event_listener(count_cache_hits)


def pytest_sessionfinish(session):
    """Send the costs of a worker to the main process."""
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    COSTS["largest"] = max(COSTS["largest"], largest)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = dict(COSTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Add up the costs of the workers."""
    costs = dict(getattr(node, "workeroutput", {}).get("costs", {}))
    COSTS["largest"] = max(COSTS["largest"], costs.pop("largest", 0))
    COSTS.update(costs)


def pytest_terminal_summary(terminalreporter):
    """Print the cost of compiling, which is most of the cost of the suite."""
    terminalreporter.write_line(
        f"{COSTS['programs']:.0f} programs, {COSTS['cached']:.0f} of them from the cache, "
        f"{COSTS['seconds']:.0f} s of compiling and reading, {COSTS['clearings']} deletions of programs; "
        f"largest worker {COSTS['largest'] / 2**20:.2f} GB"
    )

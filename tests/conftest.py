"""What all tests share: JAX on the CPU, a compile cache in the repository, one XLA thread per worker."""

import gc
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Read by JAX when it is first imported, and by the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # bits are compared, and only the CPU promises them
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
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

MAPS = Path("/proc/self/maps")
MANY = 20_000


def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs between files, where there are many.

    Each holds memory maps, of which Linux grants a process 65,530: a worker that has run some hundred tests would die.
    """
    within_file = nextitem is not None and nextitem.path == item.path
    if within_file or "jax" not in sys.modules or not MAPS.exists():
        return
    with MAPS.open("rb") as maps:
        count = sum(1 for _ in maps)
    if count > MANY:
        sys.modules["jax"].clear_caches()
        gc.collect()

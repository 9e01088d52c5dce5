"""Timers of runs: compilation is counted once, apart from phases, and with the memory that programs need."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

from thespis.runtime.timer import PhaseTimer


def test_working_memory_is_that_of_the_largest_program():
    timer = PhaseTimer("program")
    assert timer.working_bytes == 0

    def spread(x):
        return jnp.sort(x[:, None] * x[None, :], axis=0).sum()  # 4 MB that cannot be fused away

    for name, size in (("large", 1_000), ("small", 10)):
        timer.call_compiled(name, jax.jit(spread), jnp.ones(size))
        assert 4_000_000 <= timer.working_bytes < 20_000_000
    large = timer.working_bytes
    timer.call_compiled("donated", jax.jit(lambda x: x + 1, donate_argnums=0), jnp.ones(50_000_000, "int8"))
    assert timer.working_bytes == large, "the result is written where the argument was"
    timer.call_compiled("kept", jax.jit(lambda x: x + 1), jnp.ones(50_000_000, "int8"))
    assert 50_000_000 <= timer.working_bytes < 51_000_000


def test_compilation_is_no_part_of_the_phase():
    timer = PhaseTimer("program")
    with timer.measure("program"):
        with timer.measure_compile():
            time.sleep(0.05)
        time.sleep(0.01)
    assert timer.seconds["compile"] >= 0.05 and 0.01 <= timer.seconds["program"] < 0.05

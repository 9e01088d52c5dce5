"""Timing of a run by phase, with compilation counted separately."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class PhaseTimer:
    """Seconds per phase, and programs compiled before their first call. Thread-safe."""

    def __init__(self, *purposes: str):
        self.seconds = dict.fromkeys(("compile", *purposes), 0.0)
        self.working_bytes = 0
        """Bytes that the largest program needs while it runs, beside its arguments: intermediate results."""
        self._programs: dict[Any, Any] = {}
        self._compiling = threading.RLock()

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a phase, without the compilation during it."""
        began, compiled = time.perf_counter(), self.seconds["compile"]
        yield
        meanwhile = self.seconds["compile"] - compiled
        self.seconds[phase] += max(time.perf_counter() - began - meanwhile, 0.0)

    def call_compiled(self, name: Any, jitted: Callable[..., Any], *args: Any, **static: Any) -> Any:
        """Call a program, compiled for the first arguments that were passed under this name."""
        if name not in self._programs:
            with self._compiling:
                if name not in self._programs:
                    with self.measure_compile():
                        program = jitted.lower(*args, **static).compile()  # pyright: ignore[reportFunctionMemberAccess]
                    self.working_bytes = max(self.working_bytes, _working_bytes(program))
                    self._programs[name] = program
        return self._programs[name](*args)

    @contextlib.contextmanager
    def measure_compile(self) -> Iterator[None]:
        """Add the time of a ``with`` block to the compilation time."""
        began = time.perf_counter()
        yield
        self.seconds["compile"] += time.perf_counter() - began


def _working_bytes(program: Any) -> int:
    """Bytes of a compiled program's intermediate results and of results with memory of their own; 0 if not known."""
    memory = program.memory_analysis()
    if memory is None:  # some backends do not tell
        return 0
    return memory.temp_size_in_bytes + max(memory.output_size_in_bytes - memory.alias_size_in_bytes, 0)

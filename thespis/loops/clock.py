"""What time is spent on, with compilation apart."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Clock:
    """Seconds by purpose, and programs that are compiled before they are called. Several threads may use it."""

    def __init__(self, *purposes: str):
        self.seconds = dict.fromkeys(("compile", *purposes), 0.0)
        self._programs: dict[Any, Any] = {}
        self._compiling = threading.RLock()

    @contextlib.contextmanager
    def spent_on(self, purpose: str) -> Iterator[None]:
        """Counts the time of a ``with`` block, but for what was compiled meanwhile."""
        began, compiled = time.perf_counter(), self.seconds["compile"]
        yield
        meanwhile = self.seconds["compile"] - compiled
        self.seconds[purpose] += max(time.perf_counter() - began - meanwhile, 0.0)

    def call(self, name: Any, jitted: Callable[..., Any], *args: Any, **static: Any) -> Any:
        """Call a program, compiled ahead for the first arguments that came under this name."""
        if name not in self._programs:
            with self._compiling:
                if name not in self._programs:
                    with self.compiling():
                        self._programs[name] = jitted.lower(*args, **static).compile()  # pyright: ignore[reportFunctionMemberAccess]
        return self._programs[name](*args)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Counts the time of a ``with`` block as compilation."""
        began = time.perf_counter()
        yield
        self.seconds["compile"] += time.perf_counter() - began

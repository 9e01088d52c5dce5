"""Ctrl-C and SIGTERM as an event, so that a run can stop at a safe point, and calls that are left when it is set.

A compiled program cannot be stopped. :class:`InterruptWatch` runs it in a thread of its own, so that the main thread
can react to a signal, and leaves it alone if it takes too long.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax

Result = TypeVar("Result")

PATIENCE = 2.0
"""Seconds for which work may go on after an interrupt."""
_POLL_SECONDS = 0.1
_THREAD_NAME = "watched call"
_CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "jax_default_device": jax.default_device,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_debug_nans": jax.debug_nans,
    "jax_debug_infs": jax.debug_infs,
    "jax_enable_x64": jax.enable_x64,
}
"""JAX's settings that a ``with`` block may change for one thread, with the context that does."""


class AbandonedError(Exception):
    """Work had not ended some seconds after an interrupt, and was left: its result is lost."""


@runtime_checkable
class Watch(Protocol):
    """Lets an interrupt end the work of a loop in the middle. What the work changes may then be half done."""

    def call(self, function: Callable[[], Result]) -> Result:
        """The result of a function that compiles or waits for a device. May raise :class:`AbandonedError`."""
        ...

    def check(self) -> None:
        """Called now and then by work of many small steps. May raise :class:`AbandonedError`."""
        ...


class NoWatch:
    """A :class:`Watch` that lets all work go on to its end."""

    def call(self, function: Callable[[], Result]) -> Result:
        """Call the function in the same thread."""
        return function()

    def check(self) -> None:
        """Do nothing."""


NO_WATCH = NoWatch()


class InterruptWatch:
    """A :class:`Watch` that ends work ``patience`` seconds after ``requested`` is set."""

    def __init__(self, requested: threading.Event, patience: float = PATIENCE):
        self._requested, self._patience = requested, patience
        self._deadline = math.inf

    def call(self, function: Callable[[], Result]) -> Result:
        """The function's result, computed to the end by another thread, which goes on if the call is abandoned."""
        future: Future[Result] = Future()
        settings = {name: getattr(jax.config, name) for name in _CONTEXTS}

        def work() -> None:
            try:
                with contextlib.ExitStack() as stack:
                    for name, value in settings.items():
                        if value != getattr(jax.config, name):
                            stack.enter_context(_CONTEXTS[name](value))
                    future.set_result(jax.block_until_ready(function()))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name=_THREAD_NAME, daemon=True).start()
        while not wait([future], _POLL_SECONDS).done:
            self.check()
        return future.result()

    def check(self) -> None:
        """Raise :class:`AbandonedError` some seconds after an interrupt."""
        if not self._requested.is_set():
            return
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + self._patience
        if time.monotonic() >= self._deadline:
            raise AbandonedError


def has_abandoned_work() -> bool:
    """Whether the thread of an abandoned call still runs. Python would wait for its program before it exits."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


@contextlib.contextmanager
def leavable_threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads whose work is awaited at the end of the ``with`` block, unless it was abandoned."""
    pool = ThreadPoolExecutor(count, name)
    try:
        yield pool
    except AbandonedError:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown()
        raise
    pool.shutdown()


@contextlib.contextmanager
def catch_interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second one ends the process as usual."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    old_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number, frame):
        requested.set()
        signal.signal(number, old_handlers[number])

    for number in old_handlers:
        signal.signal(number, handle)
    try:
        yield requested
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)

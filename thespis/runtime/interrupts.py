"""Ctrl-C and SIGTERM as an event, so that a run can stop at a safe point."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


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

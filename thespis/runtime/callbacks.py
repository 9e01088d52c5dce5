"""Calls from compiled programs to Python on the host, and the errors that they raise.

XLA turns an exception of a callback into one of its own with a long text, and JAX logs it. The exception itself is
kept, so that a user's mistake is told in one line.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

_raised: list[Exception] = []


def _is_news(record: logging.LogRecord) -> bool:
    """Whether JAX logs another error than one that is raised again by :func:`raising_callback_errors`."""
    return record.exc_info is None or record.exc_info[1] not in _raised


logging.getLogger("jax._src.callback").addFilter(_is_news)


def call_on_host(function: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    """The result of a Python function of NumPy arrays, called once for each execution; mapped axes one by one."""

    def call(*arrays: Any) -> Any:
        try:
            return function(*(np.asarray(array) for array in arrays))
        except Exception as error:
            _raised.append(error)
            raise

    return io_callback(call, shapes, *arguments, ordered=False)


@contextlib.contextmanager
def raising_callback_errors() -> Iterator[None]:
    """Context that raises what a callback has raised, in place of XLA's error about it."""
    _raised.clear()
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if _raised:
            raise _raised[0] from error
        raise

"""How much time is spent on compiling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def compiled_quickly(quickly: bool = True) -> Iterator[None]:
    """Compile without most optimisations, in half the time: for programs that run for a second. ``False``: as usual."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quickly)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)

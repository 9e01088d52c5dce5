"""Keeps a function a computation of its own inside a larger program, so that its bits do not depend on the rest.

XLA contracts ``a * b + c`` to one rounding wherever it has fused the two, and adds in the order in which memory
lies; what it fuses, and how it lays memory out, depend on everything that surrounds them. A function that is
called rather than inlined, on arguments of a fixed layout, is compiled as if it stood alone: the compiled loop,
the host loop and a world behind the host contract then give the same numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.xla_metadata import set_xla_metadata

from thespis.core.spread import mesh


def separate(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` (arrays in, arrays out), called and never inlined where it is traced.

    Takes effect on CPUs alone: elsewhere results are not promised to agree bit by bit. Nor are they where several
    devices share a program: to fix a layout would give each of them all of the arguments.
    """

    @jax.jit
    def alone(*args: Any) -> Any:
        return function(*jax.tree.map(_row_major, args))

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if jax.default_backend() != "cpu":
            return function(*args)
        # the attribute lands on what produces the value: the call itself, not what it calls
        return jax.tree.map(lambda x: set_xla_metadata(x, inlineable="false"), alone(*args))

    return call


def _row_major(x: Any) -> Any:
    if mesh() is not None or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))

"""Spaces of other libraries as ours. Needs neither JAX nor the library whose space it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, dict_space, tuple_space

_UNBOUNDED = float(np.finfo("float32").max) * 0.99  # many worlds write "no bound" as the largest float32


def kept_dtype(dtype: Any) -> str:
    """The dtype in which we hold values of ``dtype``: float32, uint8 (images, flags) or int32."""
    dtype = np.dtype(dtype)
    if np.issubdtype(dtype, np.floating):
        return "float32"
    return "uint8" if dtype in (np.dtype("uint8"), np.dtype("bool")) else "int32"


def _bound(bound: Any, shape: tuple[int, ...], dtype: str) -> float | tuple[float, ...]:
    values = np.broadcast_to(np.asarray(bound, "float64"), shape).ravel()
    if dtype == "float32":
        values = np.where(np.abs(values) >= _UNBOUNDED, np.copysign(np.inf, values), values)
    else:
        values = np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max)
    if values.size and (values == values[0]).all():
        return float(values[0])
    return tuple(float(v) for v in values)


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Box:
    """A :class:`Box` with bounds given as arrays or numbers; equal bounds are stored once."""
    shape, kept = tuple(int(s) for s in shape), kept_dtype(dtype)
    return Box(shape, _bound(low, shape, kept), _bound(high, shape, kept), kept)


def from_gymnasium(space: Any) -> Space:
    """The space for a ``gymnasium.spaces`` one.

    A ``Discrete`` loses its start (:func:`thespis.envs.host.gymnasium.offsets` puts it back before the world
    sees an action), ``MultiBinary`` becomes choices among two, float64 boxes become float32.

    Raises:
        UserError: for kinds of space that no method could use (Text, Graph, Sequence ...).
    """
    import gymnasium.spaces as g

    match space:
        case g.Box():
            return box(space.low, space.high, space.shape, space.dtype)
        case g.Discrete():
            return Discrete(int(space.n))
        case g.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.nvec.ravel()))
        case g.MultiBinary():
            return MultiDiscrete((2,) * int(np.prod(space.shape)))
        case g.Dict():
            return dict_space(**{name: from_gymnasium(part) for name, part in space.spaces.items()})
        case g.Tuple():
            return tuple_space(*(from_gymnasium(part) for part in space.spaces))
    raise UserError(f"the space {space} is not supported; use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple")

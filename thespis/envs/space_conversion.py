"""Conversion of other libraries' spaces to Thespis spaces. Needs neither JAX nor the other library."""

from __future__ import annotations

from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, dict_space, tuple_space

_UNBOUNDED = float(np.finfo("float32").max) * 0.99  # many environments write "no bound" as the largest float32


def storage_dtype(dtype: Any) -> str:
    """Return the dtype in which values of ``dtype`` are stored: float32, uint8 (images, booleans) or int32."""
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


def make_box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Box:
    """Make a :class:`Box` from bounds given as arrays or numbers; equal bounds are stored once."""
    shape, stored_dtype = tuple(int(s) for s in shape), storage_dtype(dtype)
    return Box(shape, _bound(low, shape, stored_dtype), _bound(high, shape, stored_dtype), stored_dtype)


def from_gymnasium(space: Any) -> Space:
    """Converts a ``gymnasium.spaces`` space.

    A ``Discrete`` loses its start (:func:`thespis.envs.host.gymnasium.offsets` adds it back before the environment
    receives an action), ``MultiBinary`` becomes choices among two, float64 boxes become float32.

    Raises:
        UserError: for spaces that no method can use (Text, Graph, Sequence ...).
    """
    import gymnasium.spaces as g

    match space:
        case g.Box():
            return make_box(space.low, space.high, space.shape, space.dtype)
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

"""Values of one Gymnasium world as ours and back, checked: shapes, dtypes, starts of choices, masks.

Our values are numpy arrays in the dtypes of :mod:`thespis.core.spaces`; every error is one clear line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.spaces import (
    Discrete,
    MultiDiscrete,
    Space,
    Tree,
    dtype_of,
    legal_size,
    map_space,
    shape_of,
)
from thespis.envs.spaces import kept_dtype

Convert = Callable[[Any], Any]


def stack(space: Space, rows: list[Any]) -> Any:
    """Values of several worlds as one, with a leading axis."""
    return map_space(lambda part, *values: np.stack(values), space, *rows)


def stack_legal(space: Space, rows: list[Any]) -> Any:
    """Legal masks of several worlds as one, with a leading axis; boxes keep ``None``."""
    return map_space(lambda part, *masks: None if masks[0] is None else np.stack(masks), space, *rows)


def row(space: Space, values: Any, i: int | np.ndarray) -> Any:
    """The value of world ``i``, or those of several worlds."""
    return map_space(lambda part, value: value[i], space, values)


def replace_rows(space: Space, whole: Any, where: np.ndarray, part: Any) -> Any:
    """A copy of ``whole`` (leading axis ``n``) whose rows ``where`` (indices) are the rows of ``part``."""

    def leaf(_, old, new):
        fresh = old.copy()
        fresh[where] = new
        return fresh

    return map_space(leaf, space, whole, part)


def replace_legal(space: Space, whole: Any, where: np.ndarray, rows: list[Any]) -> Any:
    """A copy of the masks ``whole`` whose rows ``where`` are ``rows``; boxes keep ``None``."""

    def leaf(part, old, new):
        return None if old is None else replace_rows(part, old, where, new)

    return map_space(leaf, space, whole, stack_legal(space, rows))


def check_actions(space: Space, actions: Any, n: int, axes: tuple[int, ...] = ()) -> Any:
    """The actions as numpy arrays with leading axes ``n, *axes``, in the space's dtypes.

    Raises:
        UserError: if a part is missing or has another shape.
    """

    def leaf(part, value):
        value, wanted = np.asarray(value), (n, *axes, *shape_of(part))
        if value.shape != wanted:
            raise UserError(f"actions for {part} must have shape {wanted} (worlds first), not {value.shape}")
        return value.astype(dtype_of(part), copy=False)

    try:
        return map_space(leaf, space, actions)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"actions do not have the parts of {space}: {error}") from error


def observation_reader(space: Any, lead: tuple[int, ...] = (), what: str = "observation") -> Convert:
    """A function from a world's observation to ours, for a ``gymnasium`` space; ``lead`` is its batch axis.

    It raises :class:`UserError` if the value has not the declared parts, shape or kind of dtype.
    """
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            names = sorted(space.spaces)
            parts = {name: observation_reader(space[name], lead, f"{what}[{name!r}]") for name in names}
            return lambda value: {name: read(_part(value, name, what)) for name, read in parts.items()}
        case g.Tuple():
            readers = [observation_reader(part, lead, f"{what}[{i}]") for i, part in enumerate(space.spaces)]
            return lambda value: tuple(read(_part(value, i, what)) for i, read in enumerate(readers))
        case g.Discrete():
            return lambda value: (_fits(value, lead, "int64", what) - space.start).astype("int32")
        case g.MultiDiscrete():
            rows, start, flat = lead + space.shape, space.start, (*lead, -1)
            return lambda value: (_fits(value, rows, "int64", what) - start).astype("int32").reshape(flat)
        case g.MultiBinary():
            bits, flat = lead + space.shape, (*lead, -1)
            return lambda value: _fits(value, bits, "int64", what).astype("int32").reshape(flat)
    shape, declared, kept = lead + space.shape, space.dtype, kept_dtype(space.dtype)
    return lambda value: _fits(value, shape, declared, what).astype(kept)


def action_writer(space: Any, lead: tuple[int, ...] = ()) -> Convert:
    """A function from our action (world's units) to what a world of a ``gymnasium`` space takes."""
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            parts = {name: action_writer(part, lead) for name, part in space.spaces.items()}
            return lambda value: {name: write(value[name]) for name, write in parts.items()}
        case g.Tuple():
            writers = [action_writer(part, lead) for part in space.spaces]
            return lambda value: tuple(write(v) for write, v in zip(writers, value, strict=True))
        case g.Discrete():
            return lambda value: (value + space.start).astype(space.dtype)
        case g.MultiDiscrete():
            return lambda value: (value.reshape(lead + space.shape) + space.start).astype(space.dtype)
        case g.MultiBinary():
            return lambda value: value.reshape(lead + space.shape).astype(space.dtype)
    return lambda value: value.astype(space.dtype)


def read_legal(space: Space, mask: Any, ended: bool = False) -> Any:
    """A world's ``info["action_mask"]`` as our legal mask for an action space; see :class:`View`.

    Where an episode has ended a missing or empty mask means that everything is legal: nothing will be done.

    Raises:
        UserError: if the mask has another size than the choices, or forbids all though the episode goes on.
    """
    if isinstance(space, Tree):
        return space.build([read_legal(part, _get(mask, name, space), ended) for name, part in space.parts])
    if not isinstance(space, Discrete | MultiDiscrete):
        return None
    size = legal_size(space)
    if mask is None:
        if not ended:
            raise UserError("the world gave an action_mask at its reset and none now; give one at every step")
        return np.ones(size, bool)
    pieces = mask if isinstance(mask, tuple | list) and isinstance(space, MultiDiscrete) else [mask]
    flat = np.concatenate([np.asarray(piece, bool).ravel() for piece in pieces])
    if flat.size != size:
        raise UserError(f"the action_mask has {flat.size} entries and {space} needs {size}")
    choices = np.split(flat, np.cumsum(space.nvec)[:-1]) if isinstance(space, MultiDiscrete) else [flat]
    if all(choice.any() for choice in choices):
        return flat
    if not ended:
        raise UserError("the action_mask forbids every action though the episode goes on")
    return np.ones(size, bool)


def _get(mask: Any, name: str, space: Tree) -> Any:
    if mask is None:
        return None
    if space.kind == "tuple":
        return mask[int(name)]
    return mask.get(name)


def _part(value: Any, name: Any, what: str) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        raise UserError(f"{what} has no part {name!r}, which its space declares") from None


def _fits(value: Any, shape: tuple[int, ...], dtype: Any, what: str) -> np.ndarray:
    if type(value) is np.ndarray and value.shape == shape and value.dtype == dtype:
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:  # ragged lists
        raise UserError(f"{what} is no array: {error}") from error
    if array.shape != shape:
        raise UserError(f"{what} has shape {array.shape} and its space declares {shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind") and array.dtype != bool:
        raise UserError(f"{what} has dtype {array.dtype} and its space declares {np.dtype(dtype)}")
    return array

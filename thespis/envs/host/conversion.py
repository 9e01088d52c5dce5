"""Conversion and checks of values of Gymnasium spaces: shapes, dtypes, offsets of discrete values, action masks.

Internal values are numpy arrays in the dtypes of :mod:`thespis.core.spaces`; every error is one clear line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.spaces import (
    CompositeSpace,
    Discrete,
    MultiDiscrete,
    Space,
    action_mask_size,
    map_space,
    space_dtype,
    space_shape,
)
from thespis.envs.space_conversion import storage_dtype

Converter = Callable[[Any], Any]


def stack(space: Space, rows: list[Any]) -> Any:
    """Stack values of several environments along a new leading axis."""
    return map_space(lambda part, *values: np.stack(values), space, *rows)


def stack_action_masks(space: Space, rows: list[Any]) -> Any:
    """Stack action masks of several environments along a new leading axis; boxes keep ``None``."""
    return map_space(lambda part, *masks: None if masks[0] is None else np.stack(masks), space, *rows)


def select_row(space: Space, values: Any, index: int | np.ndarray) -> Any:
    """Select the value of environment ``index``, or those of several environments."""
    return map_space(lambda part, value: value[index], space, values)


def replace_rows(space: Space, whole: Any, indices: np.ndarray, rows: Any) -> Any:
    """Return a copy of ``whole``, which has a leading axis, with the rows at ``indices`` replaced by ``rows``."""

    def leaf(_, old, new):
        copy = old.copy()
        copy[indices] = new
        return copy

    return map_space(leaf, space, whole, rows)


def replace_action_masks(space: Space, whole: Any, indices: np.ndarray, rows: list[Any]) -> Any:
    """Return a copy of the masks ``whole`` with those at ``indices`` replaced by ``rows``; boxes keep ``None``."""

    def leaf(part, old, new):
        return None if old is None else replace_rows(part, old, indices, new)

    return map_space(leaf, space, whole, stack_action_masks(space, rows))


def check_seeds(seeds: list[int], num_envs: int) -> None:
    """Raise ``UserError`` unless there is one seed for each environment."""
    if len(seeds) != num_envs:
        raise UserError(f"{num_envs} environments need {num_envs} seeds, not {len(seeds)}")


def check_actions(space: Space, actions: Any, num_envs: int, agent_axes: tuple[int, ...] = ()) -> Any:
    """Convert actions to numpy arrays with leading axes ``num_envs, *agent_axes``, in the space's dtypes.

    Raises:
        UserError: if a part is missing or has another shape.
    """

    def leaf(part, value):
        value, shape = np.asarray(value), (num_envs, *agent_axes, *space_shape(part))
        if value.shape != shape:
            raise UserError(f"actions for {part} must have shape {shape} (environments first), not {value.shape}")
        return value.astype(space_dtype(part), copy=False)

    try:
        return map_space(leaf, space, actions)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"actions do not have the parts of {space}: {error}") from error


def observation_reader(space: Any, batch_shape: tuple[int, ...] = (), label: str = "observation") -> Converter:
    """Build a converter from observations of a ``gymnasium`` space to internal ones.

    The observations have the leading axes ``batch_shape``. The converter raises :class:`UserError` if the value does
    not have the declared parts, shape or kind of dtype.
    """
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            names = sorted(space.spaces)
            parts = {name: observation_reader(space[name], batch_shape, f"{label}[{name!r}]") for name in names}
            return lambda value: {name: read(_value_part(value, name, label)) for name, read in parts.items()}
        case g.Tuple():
            readers = [observation_reader(part, batch_shape, f"{label}[{i}]") for i, part in enumerate(space.spaces)]
            return lambda value: tuple(read(_value_part(value, i, label)) for i, read in enumerate(readers))
        case g.Discrete():
            return lambda value: (_check_array(value, batch_shape, "int64", label) - space.start).astype("int32")
        case g.MultiDiscrete():
            rows, start, flat = batch_shape + space.shape, space.start, (*batch_shape, -1)
            return lambda value: (_check_array(value, rows, "int64", label) - start).astype("int32").reshape(flat)
        case g.MultiBinary():
            bits, flat = batch_shape + space.shape, (*batch_shape, -1)
            return lambda value: _check_array(value, bits, "int64", label).astype("int32").reshape(flat)
    shape, declared, dtype = batch_shape + space.shape, space.dtype, storage_dtype(space.dtype)
    return lambda value: _check_array(value, shape, declared, label).astype(dtype)


def action_writer(space: Any, batch_shape: tuple[int, ...] = ()) -> Converter:
    """Build a converter from internal actions (in the environment's units) to those of a ``gymnasium`` space."""
    import gymnasium.spaces as g

    match space:
        case g.Dict():
            parts = {name: action_writer(part, batch_shape) for name, part in space.spaces.items()}
            return lambda value: {name: write(value[name]) for name, write in parts.items()}
        case g.Tuple():
            writers = [action_writer(part, batch_shape) for part in space.spaces]
            return lambda value: tuple(write(v) for write, v in zip(writers, value, strict=True))
        case g.Discrete():
            return lambda value: (value + space.start).astype(space.dtype)
        case g.MultiDiscrete():
            return lambda value: (value.reshape(batch_shape + space.shape) + space.start).astype(space.dtype)
        case g.MultiBinary():
            return lambda value: value.reshape(batch_shape + space.shape).astype(space.dtype)
    return lambda value: value.astype(space.dtype)


def read_action_mask(space: Space, mask: Any, done: bool = False) -> Any:
    """Convert an environment's ``info["action_mask"]`` to an internal action mask; see :class:`View`.

    Where the episode has ended, a missing or empty mask means that all actions are legal: none will be taken.

    Raises:
        UserError: if the mask's size is not that of the actions, or it forbids all while the episode goes on.
    """
    if isinstance(space, CompositeSpace):
        return space.pack([read_action_mask(part, _mask_part(mask, name, space), done) for name, part in space.spaces])
    if not isinstance(space, Discrete | MultiDiscrete):
        return None
    size = action_mask_size(space)
    if mask is None:
        if not done:
            raise UserError("the environment gave an action_mask at its reset but not now: give one at every step")
        return np.ones(size, bool)
    pieces = mask if isinstance(mask, tuple | list) and isinstance(space, MultiDiscrete) else [mask]
    flat = np.concatenate([np.asarray(piece, bool).ravel() for piece in pieces])
    if flat.size != size:
        raise UserError(f"the action_mask has {flat.size} entries and {space} needs {size}")
    choices = np.split(flat, np.cumsum(space.nvec)[:-1]) if isinstance(space, MultiDiscrete) else [flat]
    if all(choice.any() for choice in choices):
        return flat
    if not done:
        raise UserError("the action_mask forbids every action though the episode goes on")
    return np.ones(size, bool)


def _mask_part(mask: Any, name: str, space: CompositeSpace) -> Any:
    if mask is None:
        return None
    if space.kind == "tuple":
        return mask[int(name)]
    return mask.get(name)


def _value_part(value: Any, name: Any, what: str) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        raise UserError(f"{what} has no part {name!r}, which its space declares") from None


def _check_array(value: Any, shape: tuple[int, ...], dtype: Any, what: str) -> np.ndarray:
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

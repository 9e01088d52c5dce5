"""Dataset columns to transitions, with strict checks: every inconsistency is an error."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import (
    Box,
    CompositeSpace,
    Discrete,
    MultiDiscrete,
    Space,
    Text,
    action_mask_size,
    scale_action,
    space_dtype,
    space_shape,
)

Columns = dict[str, np.ndarray]


class ParsedColumns(NamedTuple):
    """The columns as trees, checked and cast, before truncations and next observations are repaired.

    A view is ``(observation, action mask)``; ``next_view`` is ``None`` if the columns do not have it.
    """

    view: Any
    next_view: Any
    action: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def flatten_columns(space: Space, name: str, value: Any) -> Columns:
    """The columns of a tree of values: ``name`` for a leaf, ``name/PART`` for each part of a composite space."""
    if isinstance(space, CompositeSpace):
        parts = zip(space.spaces, space.unpack(value), strict=True)
        return {
            column: values
            for (part, inner), piece in parts
            for column, values in flatten_columns(inner, f"{name}/{part}", piece).items()
        }
    return {} if value is None else {name: np.asarray(value)}


def unflatten_columns(space: Space, name: str, columns: Columns) -> Any:
    """The tree whose columns :func:`flatten_columns` has made, with any leading axes.

    Raises ``UserError`` if a column is missing.
    """

    def leaf(space: Space, name: str, columns: Columns) -> np.ndarray:
        if name not in columns:
            raise UserError(f"there is no column {name!r}; there are: {', '.join(sorted(columns)) or 'none'}")
        return columns[name]

    return _parse_tree(space, name, columns, leaf)


def validate_columns(spec: EnvSpec, columns: Columns) -> None:
    """Raise ``UserError`` unless the columns are complete, of one length, and within their spaces."""
    _parse_columns(spec, columns)


def columns_to_transitions(spec: EnvSpec, columns: Columns) -> tuple[Transition, tuple[str, ...]]:
    """Transitions of numpy arrays ``[time]`` with canonical actions, and notes on repaired rows.

    With ``next_observation``, a row that neither ends its episode nor is continued by the next row is
    marked truncated. Without it, the next observation is that of the next row; where the episode goes on
    but the data does not, it is unknown, so that row is dropped and the row before it is truncated. At
    a termination an unknown next observation is filled with the last one: nothing is bootstrapped from it.
    """
    parts = _parse_columns(spec, columns)
    has_log_prob = parts.next_view is not None and "log_prob" in columns and isinstance(spec.action_space, Text)
    extras = _parse_leaf(Box((spec.action_space.max_length,)), "log_prob", columns) if has_log_prob else ()  # pyright: ignore
    parts, notes = (
        _infer_next_observations(parts) if parts.next_view is None else _mark_truncations(parts, parts.next_view)
    )
    ended = parts.terminated | parts.truncated
    steps = Transition(
        view=View(*parts.view),
        action=scale_action(spec.action_space, parts.action),
        reward=parts.reward,
        terminated=parts.terminated,
        truncated=parts.truncated,
        next_view=View(*parts.next_view),
        is_first=np.concatenate([[True], ended[:-1]]),
        extras=extras,
    )
    return steps, notes


def _mark_truncations(parts: ParsedColumns, next_view: Any) -> tuple[ParsedColumns, tuple[str, ...]]:
    """Mark as truncated the rows that the next row does not continue."""
    ended = parts.terminated | parts.truncated
    same = jax.tree.map(_rows_equal, next_view[0], parts.view[0])
    continued = np.append(np.all(jax.tree.leaves(same), axis=0), False)
    discontinued = ~ended & ~continued
    count = int(discontinued.sum())
    note = f"marked {count} rows as truncated: their episode goes on, but the next row is not its next step"
    return parts._replace(truncated=parts.truncated | discontinued), (note,) if count else ()


def _rows_equal(next_value: np.ndarray, value: np.ndarray) -> np.ndarray:
    a, b = next_value[:-1], value[1:]
    same = np.isclose(a, b, rtol=1e-4, atol=1e-6) if a.dtype.kind == "f" else np.equal(a, b)
    return np.all(same.reshape(len(a), -1), axis=1)


def _infer_next_observations(parts: ParsedColumns) -> tuple[ParsedColumns, tuple[str, ...]]:
    """Use the next row's view as the next view, and drop the rows whose next view is unknown."""
    ended = parts.terminated | parts.truncated
    unknown = parts.truncated & ~parts.terminated
    unknown[-1] = not parts.terminated[-1]
    count = int(unknown.sum())
    if count == len(unknown):
        raise UserError("no row of the dataset has a known next observation: add the column 'next_observation'")
    truncated = parts.truncated | np.append(unknown[1:] & ~ended[:-1], False)

    def following(x: np.ndarray) -> np.ndarray:
        stay = parts.terminated.reshape(-1, *[1] * (x.ndim - 1))
        return np.where(stay, x, np.concatenate([x[1:], x[-1:]]))

    parts = parts._replace(next_view=jax.tree.map(following, parts.view), truncated=truncated)
    note = f"dropped {count} rows: there is no next_observation where their episode was cut short"
    return jax.tree.map(lambda x: x[~unknown], parts), (note,) if count else ()


def _parse_columns(spec: EnvSpec, columns: Columns) -> ParsedColumns:
    columns = {name: np.asarray(values) for name, values in columns.items()}
    check_lengths(columns)

    def view(prefix: str) -> Any:
        action_mask = (
            _parse_tree(spec.action_space, prefix + "legal", columns, _parse_action_mask)
            if spec.has_action_mask
            else None
        )
        return _parse_tree(spec.observation_space, prefix + "observation", columns, _parse_leaf), action_mask

    has_next = any(name.split("/")[0] == "next_observation" for name in columns)
    return ParsedColumns(
        view=view(""),
        next_view=view("next_") if has_next else None,
        action=_parse_tree(spec.action_space, "action", columns, _parse_leaf),
        reward=_parse_leaf(Box(()), "reward", columns),
        terminated=_parse_flags((), "terminated", columns),
        truncated=_parse_flags((), "truncated", columns),
    )


def check_lengths(columns: Columns) -> None:
    """Raise ``UserError`` unless all columns have the same number of rows, at least one."""
    lengths = {name: len(values) if values.ndim else 0 for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise UserError(f"the columns of the dataset have different lengths: {listing}")
    if not any(lengths.values()):
        raise UserError("the dataset has no rows")


def _parse_tree(space: Space, name: str, columns: Columns, leaf: Any) -> Any:
    if isinstance(space, CompositeSpace):
        return space.pack([_parse_tree(part, f"{name}/{key}", columns, leaf) for key, part in space.spaces])
    return leaf(space, name, columns)


def _reshape_column(name: str, columns: Columns, shape: tuple[int, ...]) -> np.ndarray:
    if name not in columns:
        raise UserError(f"the dataset has no column {name!r}; it has: {', '.join(sorted(columns)) or 'none'}")
    values = columns[name]
    if values.dtype.kind not in "biuf":
        raise UserError(f"column {name!r} holds {values.dtype}, not numbers")
    flat = values.ndim <= 2 and values.size == len(values) * math.prod(shape)
    if values.shape[1:] != shape and not flat:
        raise UserError(f"column {name!r} has rows of shape {values.shape[1:]}, its space has {shape}")
    return values.reshape(len(values), *shape)


def _parse_leaf(space: Space, name: str, columns: Columns) -> np.ndarray:
    """The column of a leaf space in the space's dtype; every entry is checked."""
    values, dtype = _reshape_column(name, columns, space_shape(space)), np.dtype(space_dtype(space))
    with np.errstate(invalid="ignore", over="ignore"):  # values that do not fit are reported below, by row
        cast = values.astype(dtype)
    if dtype.kind == "f":
        _raise_if_any(name, values, ~np.isfinite(cast), "a finite number")
        return cast
    _raise_if_any(name, values, cast != values, f"of type {dtype}")
    match space:
        case Discrete():
            _raise_if_any(name, values, (cast < 0) | (cast >= space.n), f"among 0 .. {space.n - 1}")
        case MultiDiscrete():
            _raise_if_any(name, values, (cast < 0) | (cast >= np.array(space.nvec)), f"within {space.nvec}")
        case Text():
            size = space.vocabulary.size
            _raise_if_any(
                name, values, (cast < -1) | (cast >= size), f"a token among 0 .. {size - 1}, or -1 after the last"
            )
            _raise_if_any(
                name, values, np.diff(cast < 0, axis=1, prepend=False) & (cast >= 0), "-1 after the last token"
            )
    return cast


def _parse_action_mask(space: Space, name: str, columns: Columns) -> np.ndarray | None:
    return None if isinstance(space, Box) else _parse_flags((action_mask_size(space),), name, columns)


def _parse_flags(shape: tuple[int, ...], name: str, columns: Columns) -> np.ndarray:
    values = _reshape_column(name, columns, shape)
    _raise_if_any(name, values, (values != 0) & (values != 1), "true or false")
    return values.astype(bool)


def _raise_if_any(name: str, values: np.ndarray, bad: np.ndarray, wanted: str) -> None:
    if bad.any():
        where = np.argwhere(bad)[0]
        raise UserError(f"column {name!r} holds {values[tuple(where)]} in row {where[0]}, which is not {wanted}")

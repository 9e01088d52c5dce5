"""From columns, as they lie on disk, to transitions, as methods eat them; every doubt is an error."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import (
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    Text,
    Tree,
    dtype_of,
    from_world,
    legal_size,
    shape_of,
)

Columns = dict[str, np.ndarray]


class Parts(NamedTuple):
    """The columns as trees, checked and cast, not yet mended.

    A view is ``(observation, legal)``; ``next_view`` is ``None`` if the columns do not tell it.
    """

    view: Any
    next_view: Any
    action: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def split(space: Space, name: str, value: Any) -> Columns:
    """The columns of a tree of values: ``name`` for a leaf, ``name/PART`` for each part of a tree."""
    if isinstance(space, Tree):
        parts = zip(space.parts, space.split(value), strict=True)
        return {
            column: values
            for (part, inner), piece in parts
            for column, values in split(inner, f"{name}/{part}", piece).items()
        }
    return {} if value is None else {name: np.asarray(value)}


def check(spec: EnvSpec, columns: Columns) -> None:
    """Raise ``UserError`` unless the columns are all there, of one length, and within their spaces."""
    _parts(spec, columns)


def transitions(spec: EnvSpec, columns: Columns) -> tuple[Transition, tuple[str, ...]]:
    """Transitions of numpy arrays ``[time]`` with canonical actions, and notes on what was mended.

    With ``next_observation``, a row that neither ends its episode nor is continued by the next row is
    marked truncated. Without it, the next observation is that of the next row; where the episode goes on
    but the data does not, it is unknown, so that row is dropped and the row before is the one truncated. At
    a termination an unknown next observation is filled with the last one: nothing is bootstrapped from it.
    """
    parts = _parts(spec, columns)
    known = parts.next_view is not None and "log_prob" in columns and isinstance(spec.action, Text)
    extras = _value(Box((spec.action.length,)), "log_prob", columns) if known else ()  # pyright: ignore
    parts, notes = _shift(parts) if parts.next_view is None else _cut(parts, parts.next_view)
    ended = parts.terminated | parts.truncated
    steps = Transition(
        view=View(*parts.view),
        action=from_world(spec.action, parts.action),
        reward=parts.reward,
        terminated=parts.terminated,
        truncated=parts.truncated,
        next_view=View(*parts.next_view),
        first=np.concatenate([[True], ended[:-1]]),
        extras=extras,
    )
    return steps, notes


def _cut(parts: Parts, next_view: Any) -> tuple[Parts, tuple[str, ...]]:
    """Mark as truncated the rows which the next row does not continue."""
    ended = parts.terminated | parts.truncated
    same = jax.tree.map(_same_rows, next_view[0], parts.view[0])
    continued = np.append(np.all(jax.tree.leaves(same), axis=0), False)
    loose = ~ended & ~continued
    count = int(loose.sum())
    note = f"marked {count} rows as truncated: their episode goes on, but the next row is not its next step"
    return parts._replace(truncated=parts.truncated | loose), (note,) if count else ()


def _same_rows(next_value: np.ndarray, value: np.ndarray) -> np.ndarray:
    a, b = next_value[:-1], value[1:]
    same = np.isclose(a, b, rtol=1e-4, atol=1e-6) if a.dtype.kind == "f" else np.equal(a, b)
    return np.all(same.reshape(len(a), -1), axis=1)


def _shift(parts: Parts) -> tuple[Parts, tuple[str, ...]]:
    """Take the next row's view for the next view, and drop the rows whose next view nobody knows."""
    ended = parts.terminated | parts.truncated
    lost = parts.truncated & ~parts.terminated
    lost[-1] = not parts.terminated[-1]
    count = int(lost.sum())
    if count == len(lost):
        raise UserError("no row of the dataset has a known next observation: add the column 'next_observation'")
    truncated = parts.truncated | np.append(lost[1:] & ~ended[:-1], False)

    def following(x: np.ndarray) -> np.ndarray:
        stay = parts.terminated.reshape(-1, *[1] * (x.ndim - 1))
        return np.where(stay, x, np.concatenate([x[1:], x[-1:]]))

    parts = parts._replace(next_view=jax.tree.map(following, parts.view), truncated=truncated)
    note = f"dropped {count} rows: no next_observation is given where their episode was cut short"
    return jax.tree.map(lambda x: x[~lost], parts), (note,) if count else ()


def _parts(spec: EnvSpec, columns: Columns) -> Parts:
    columns = {name: np.asarray(values) for name, values in columns.items()}
    _check_lengths(columns)

    def view(prefix: str) -> Any:
        legal = _gather(spec.action, prefix + "legal", columns, _mask) if spec.legal else None
        return _gather(spec.observation, prefix + "observation", columns, _value), legal

    known = any(name.split("/")[0] == "next_observation" for name in columns)
    return Parts(
        view=view(""),
        next_view=view("next_") if known else None,
        action=_gather(spec.action, "action", columns, _value),
        reward=_value(Box(()), "reward", columns),
        terminated=_flags((), "terminated", columns),
        truncated=_flags((), "truncated", columns),
    )


def _check_lengths(columns: Columns) -> None:
    lengths = {name: len(values) if values.ndim else 0 for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise UserError(f"the columns of the dataset have different lengths: {listed}")
    if not any(lengths.values()):
        raise UserError("the dataset has no rows")


def _gather(space: Space, name: str, columns: Columns, leaf: Any) -> Any:
    if isinstance(space, Tree):
        return space.build([_gather(part, f"{name}/{key}", columns, leaf) for key, part in space.parts])
    return leaf(space, name, columns)


def _shaped(name: str, columns: Columns, shape: tuple[int, ...]) -> np.ndarray:
    if name not in columns:
        raise UserError(f"the dataset has no column {name!r}; it has: {', '.join(sorted(columns)) or 'none'}")
    values = columns[name]
    if values.dtype.kind not in "biuf":
        raise UserError(f"column {name!r} holds {values.dtype}, not numbers")
    flat = values.ndim <= 2 and values.size == len(values) * math.prod(shape)
    if values.shape[1:] != shape and not flat:
        raise UserError(f"column {name!r} has rows of shape {values.shape[1:]}, its space has {shape}")
    return values.reshape(len(values), *shape)


def _value(space: Space, name: str, columns: Columns) -> np.ndarray:
    """The column of a leaf space in the space's dtype, every entry within it."""
    values, dtype = _shaped(name, columns, shape_of(space)), np.dtype(dtype_of(space))
    with np.errstate(invalid="ignore", over="ignore"):  # what does not fit is found below, by row
        cast = values.astype(dtype)
    if dtype.kind == "f":
        _refuse(name, values, ~np.isfinite(cast), "a finite number")
        return cast
    _refuse(name, values, cast != values, f"of type {dtype}")
    match space:
        case Discrete():
            _refuse(name, values, (cast < 0) | (cast >= space.n), f"among 0 .. {space.n - 1}")
        case MultiDiscrete():
            _refuse(name, values, (cast < 0) | (cast >= np.array(space.nvec)), f"within {space.nvec}")
        case Text():
            size = space.vocabulary.size
            _refuse(name, values, (cast < -1) | (cast >= size), f"an id among 0 .. {size - 1}, or -1 behind the last")
            _refuse(name, values, np.diff(cast < 0, axis=1, prepend=False) & (cast >= 0), "behind the last id: -1")
    return cast


def _mask(space: Space, name: str, columns: Columns) -> np.ndarray | None:
    return None if isinstance(space, Box) else _flags((legal_size(space),), name, columns)


def _flags(shape: tuple[int, ...], name: str, columns: Columns) -> np.ndarray:
    values = _shaped(name, columns, shape)
    _refuse(name, values, (values != 0) & (values != 1), "true or false")
    return values.astype(bool)


def _refuse(name: str, values: np.ndarray, bad: np.ndarray, wanted: str) -> None:
    if bad.any():
        where = np.argwhere(bad)[0]
        raise UserError(f"column {name!r} holds {values[tuple(where)]} in row {where[0]}, which is not {wanted}")

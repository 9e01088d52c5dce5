"""Columns of transitions under the names that other libraries use, without a description of their spaces.

The spaces are those of the environment, where the caller names one. Otherwise they are inferred from the values:
whole numbers are choices ``0 .. max``, and the bounds of continuous actions are the smallest and largest values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, tuple_space
from thespis.data.columns import Columns, from_arrow
from thespis.data.transitions import check_lengths

_ALIASES = {
    "observation": ("observation", "observations", "obs", "state", "states"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "next_observation": ("next_observation", "next_observations", "next_obs", "next_state", "next_states"),
    "terminated": ("terminated", "termination", "terminations", "terminal", "terminals"),
    "truncated": ("truncated", "truncation", "truncations", "timeout", "timeouts"),
    "done": ("done", "dones"),
    "episode": ("episode", "episode_id", "episode_ids", "episode_index"),
    "legal": ("legal",),
    "next_legal": ("next_legal",),
}
_REQUIRED = ("observation", "action", "reward")


@dataclasses.dataclass(frozen=True)
class PlainData:
    """A dataset as columns under our names, with its spec and a line for everything that was assumed."""

    spec: EnvSpec
    columns: Columns
    notes: tuple[str, ...]


def our_names(names: Iterable[str], where: str) -> dict[str, str]:
    """Our name of each column among ``names`` that is read; parts of composite spaces keep theirs: ``obs/camera``.

    Raises :class:`UserError` if a column is missing, or if two have the same meaning.
    """
    names = list(names)
    meanings = {alias: ours for ours, aliases in _ALIASES.items() for alias in aliases}
    found: dict[str, str] = {}
    for name in names:
        first, slash, rest = name.partition("/")
        if first in meanings:
            found[name] = meanings[first] + slash + rest
    doubled = [name for name in found if list(found.values()).count(found[name]) > 1]
    if doubled:
        raise UserError(f"{where} has {' and '.join(sorted(doubled))}, which mean the same: remove all but one of them")
    have = {ours.partition("/")[0] for ours in found.values()}
    if missing := [ours for ours in _REQUIRED if ours not in have]:
        chats = [name for name in names if name in ("messages", "prompt", "chosen", "text")]
        hint = "; chats are learned by sft and dpo, with --model DIR" if chats else ""
        raise UserError(
            f"{where} has no column {missing[0]!r} (also: {', '.join(_ALIASES[missing[0]][1:])}); "
            f"it has: {', '.join(names) or 'none'}{hint}"
        )
    return found


def plain_dataset(columns: Columns, where: str, env_spec: EnvSpec | None = None) -> PlainData:
    """A dataset from ``columns`` (each ``[row, ...]``, by our names: :func:`our_names`).

    ``done`` without ``truncated`` counts as ``terminated``. Where the number ``episode`` changes, the row before is the
    last one of its episode. ``env_spec``: the environment's, whose spaces the columns must fit; ``None``: inferred.
    """
    columns = {name: np.asarray(values) for name, values in columns.items()}
    check_lengths(columns)
    columns, notes = _with_flags(columns, where)
    if env_spec is not None:
        if env_spec.groups:
            raise UserError(f"{where} has the steps of one agent, and {env_spec.name} has several")
        spec = EnvSpec(
            env_spec.name,
            env_spec.observation_space,
            env_spec.action_space,
            has_action_mask=env_spec.has_action_mask,
            time_limit=env_spec.time_limit,
        )
        return PlainData(spec, columns, notes)
    spaces = (_infer_tree("observation", columns, bounded=False), _infer_tree("action", columns, bounded=True))
    notes += (
        f"{where} does not say its spaces: from its values, actions are {_describe(spaces[1])}; with --env NAME, the "
        "spaces are the environment's",
    )
    return PlainData(EnvSpec("unknown", *spaces), columns, notes)


def _with_flags(columns: Columns, where: str) -> tuple[Columns, tuple[str, ...]]:
    """The columns with ``terminated`` and ``truncated`` and without ``done`` and ``episode``, and notes."""
    rest = {name: values for name, values in columns.items() if name not in ("done", "episode")}
    done, episode = (_flag(columns, name) for name in ("done", "episode"))
    terminated, truncated = (_flag(columns, name) for name in ("terminated", "truncated"))
    notes: tuple[str, ...] = ()
    if terminated is None and truncated is None and done is None and episode is None:
        raise UserError(
            f"{where} does not say where episodes end: add the columns terminated and truncated, or done, or episode"
        )
    if terminated is None and done is not None and truncated is None:
        notes = (
            f"{where} has done and no truncated: every done counts as a termination, after which no reward follows; "
            "add the column truncated if a time limit ended some episodes",
        )
    never = np.zeros(len(columns["reward"]), bool)
    ended = never if done is None else done != 0
    if terminated is None:
        terminated = ended & ~(never if truncated is None else truncated != 0)
    if truncated is None:
        truncated = ended & (terminated == 0)
    if episode is not None:
        last = np.append(episode[1:] != episode[:-1], True)
        truncated = (truncated != 0) | (last & (terminated == 0))
    return rest | {"terminated": terminated, "truncated": truncated}, notes


def _flag(columns: Columns, name: str) -> np.ndarray | None:
    """A column of one value per row, ``[row]``; ``None`` if there is none."""
    return columns[name].reshape(len(columns[name]), -1)[:, 0] if name in columns else None


def _infer_tree(name: str, columns: Columns, bounded: bool) -> Space:
    if name in columns:
        return _infer_space(columns[name], bounded)
    parts = sorted((c for c in columns if c.startswith(f"{name}/")), key=lambda c: (len(c), c))
    if [c.removeprefix(f"{name}/") for c in parts] != [str(i) for i in range(len(parts))]:
        raise UserError(f"the parts {', '.join(parts)} of {name} have names: name the environment by --env")
    return tuple_space(*(_infer_space(columns[part], bounded) for part in parts))


def _infer_space(values: np.ndarray, bounded: bool) -> Space:
    """The space of a column ``[row, ...]``."""
    if values.dtype.kind not in "biuf" or not len(values):
        return Box(tuple(values.shape[1:]))  # what is wrong is said where the columns are checked
    shape, is_float = values.shape[1:], values.dtype.kind == "f"
    if not is_float and int(values.min()) >= 0 and (bounded or not shape):
        largest = values.reshape(len(values), -1).max(axis=0).astype(int)
        return (
            Discrete(int(largest[0]) + 1) if shape in ((), (1,)) else MultiDiscrete(tuple(int(x) + 1 for x in largest))
        )
    if values.dtype == np.uint8 and len(shape) > 1:
        return Box(shape, 0, 255, "uint8")
    if not bounded:
        return Box(shape)
    flat = values.reshape(len(values), -1).astype("float32")
    if not np.isfinite(flat).all():
        return Box(shape)
    low, high = flat.min(axis=0), flat.max(axis=0)
    low, high = np.where(low == high, low - 1, low), np.where(low == high, high + 1, high)
    return Box(shape, tuple(float(x) for x in low), tuple(float(x) for x in high))


def _describe(space: Space) -> str:
    match space:
        case Discrete():
            return f"one of {space.n} choices"
        case MultiDiscrete():
            return f"{len(space.nvec)} choices of {', '.join(map(str, space.nvec))}"
        case Box():
            low, high = (x.ravel() for x in space.bounds())
            bounds = [f"[{a:.4g}, {b:.4g}]" for a, b in zip(low[:4], high[:4], strict=True)]
            return f"vectors of {len(low)} in {', '.join(bounds)}{', ...' if len(low) > 4 else ''}"
    return "several parts"


def arrow_steps(table: Any, where: str) -> Columns:
    """The columns, by our names, of an Arrow table whose rows are steps, or lists of an episode's steps.

    Raises :class:`UserError` if a column is missing, or if the lists of an episode differ in length.
    """
    import pyarrow as pa

    names = our_names(table.column_names, where)
    columns = {ours: table[name] for name, ours in names.items()}
    lengths = _list_lengths(columns["reward"])
    if lengths is None or (lengths == 1).all():
        return from_arrow(columns)
    steps: dict[str, Any] = {}
    for name, column in columns.items():
        own = _list_lengths(column)
        if own is None:
            continue  # one value per episode, such as its number
        if (own != lengths).any():
            row = int(np.argmax(own != lengths))
            raise UserError(
                f"{where}, row {row + 1}: {own[row]} entries of {name}, and {lengths[row]} rewards: "
                "one per step is needed"
            )
        steps[name] = pa.chunked_array([column.combine_chunks().flatten()])
    return from_arrow(steps) | {"episode": np.repeat(np.arange(len(lengths)), lengths)}


def _list_lengths(column: Any) -> np.ndarray | None:
    """The length of each row's list in a column of lists of any length; ``None`` for another column."""
    import pyarrow as pa

    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return None
    return column.combine_chunks().value_lengths().to_numpy(zero_copy_only=False).astype(int)

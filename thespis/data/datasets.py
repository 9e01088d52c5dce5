"""Datasets of transitions on disk: a directory of columns with a ``dataset.json`` beside them, or Minari's.

Rows are steps in order, episode after episode. The columns are ``observation``, ``action`` (in the world's
units), ``reward``, ``terminated``, ``truncated`` and, if known, ``next_observation``, the true one also
where the episode ends; ``legal`` and ``next_legal`` where the world masks actions. A part of a tree is a
column of its own: ``observation/camera``. ``dataset.json`` holds the format's version, the environment's
name, its spaces, and whatever else its writer wants to tell.

A conversation is an episode whose steps are turns: ``observation`` is all that was said before, as ids, ``action`` an
utterance, and ``log_prob``, if known, the log-probability that each of its ids was sampled with. Where ``dataset.json``
says ``together: 2``, every two episodes behind each other belong together, such as a chosen answer and a rejected one.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition
from thespis.core.spaces import Text, to_world
from thespis.data import assemble
from thespis.data.columns import Columns, read_columns, write_columns
from thespis.data.spaces import space_from_json, space_to_json

FORMAT = 1
ABOUT = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Transitions of numpy arrays in one long time axis ``[time]``; actions are canonical.

    ``notes`` says in one line each what was dropped or marked while reading; ``about`` is what its writer
    told.
    """

    spec: EnvSpec
    steps: Transition
    notes: tuple[str, ...]
    about: dict[str, Any]

    @property
    def together(self) -> int:
        """Episodes behind each other that belong together; 0: those that begin alike."""
        return int(self.about.get("together", 0))

    @property
    def episodes(self) -> int:
        """How many episodes (or pieces of episodes) begin in it."""
        return int(np.sum(self.steps.first))


def read_dataset(path: str | Path) -> Dataset:
    """The dataset at ``path``: a directory of columns, or a Minari dataset's directory.

    ``minari:ID`` stands for a local Minari dataset of that name, in ``MINARI_DATASETS_PATH``.

    Raises:
        UserError: if it is missing or unreadable, of an unknown format, or lacks a column; if columns
            differ in length, have the wrong shape, or hold a value that is no number or outside its space.
    """
    from thespis.data import minari  # heavy, and most datasets do without

    if str(path).startswith("minari:"):
        spec, columns, about = minari.read_named(str(path).removeprefix("minari:"))
    elif not Path(path).is_dir():
        raise UserError(f"there is no dataset at {path}: give the directory that holds {ABOUT}")
    elif minari.holds(Path(path)):
        spec, columns, about = minari.read(Path(path))
    else:
        about = _read_about(Path(path))
        spec, columns = spec_of(about), read_columns(Path(path))
    steps, notes = assemble.transitions(spec, columns)
    return Dataset(spec, steps, notes, about)


def write_dataset(directory: str | Path, columns: Columns, about: dict[str, Any], *, kind: str = "npz") -> None:
    """Write ``columns`` (each ``[row, ...]``) as ``data.npz`` or ``data.parquet`` and ``dataset.json``.

    Args:
        directory: made if need be; must not hold a dataset yet.
        columns: see the top of this file; :func:`to_columns` makes them of transitions.
        about: ``env`` (name), ``observation`` and ``action`` (spaces), and anything else that JSON can
            hold, such as ``method``. The numbers of steps and episodes and the episodes' returns are added.
        kind: ``"npz"`` or ``"parquet"``.

    Raises:
        UserError: if a dataset is there already, cannot be written, or :func:`read_dataset` would refuse it.
    """
    directory = Path(directory)
    told = {key: about[key] for key in about if key not in ("observation", "action")}
    try:
        spaces = {key: space_to_json(about[key]) for key in ("observation", "action")}
        about = {"format": FORMAT, "action_units": "world", **told, **spaces}
        spec = spec_of(about)
    except KeyError as missing:
        raise UserError(f"a dataset must be told {missing}: env, observation and action are needed") from None
    assemble.check(spec, columns)
    about |= {"steps": len(columns["reward"]), **_returns(columns)}
    if (directory / ABOUT).exists():
        raise UserError(f"{directory} already holds a dataset: choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_columns(directory, columns, kind)
        (directory / ABOUT).write_text(json.dumps(about, indent=1) + "\n")  # last: it makes the dataset whole
    except OSError as error:
        raise UserError(f"cannot write a dataset to {directory}: {error.strerror or error}") from error


def to_columns(spec: EnvSpec, steps: Transition) -> Columns:
    """The columns of transitions ``[time]`` in the order they are stored, actions in the world's units."""
    action = to_world(spec.action, steps.action)
    columns = assemble.split(spec.observation, "observation", steps.view.observation)
    columns |= assemble.split(spec.observation, "next_observation", steps.next_view.observation)
    columns |= assemble.split(spec.action, "action", action)
    if spec.legal:
        columns |= assemble.split(spec.action, "legal", steps.view.legal)
        columns |= assemble.split(spec.action, "next_legal", steps.next_view.legal)
    if isinstance(spec.action, Text) and isinstance(steps.extras, np.ndarray):
        columns |= {"log_prob": steps.extras}
    rest = {"reward": steps.reward, "terminated": steps.terminated, "truncated": steps.truncated}
    return columns | {name: np.asarray(values) for name, values in rest.items()}


def spec_of(about: dict[str, Any]) -> EnvSpec:
    """What ``dataset.json`` says of the environment. Raises ``UserError`` for what it lacks."""
    if about.get("format") != FORMAT:
        raise UserError(f"the dataset is of format {about.get('format')!r}; this version reads format {FORMAT}")
    if about.get("action_units") != "world":
        raise UserError(f'the actions are in units {about.get("action_units")!r}; "world" is expected')
    spaces = []
    for name in ("observation", "action"):
        if name not in about:
            raise UserError(f"{ABOUT} does not say the {name} space: add {name!r}")
        spaces.append(space_from_json(about[name]))
    limit, legal = about.get("time_limit"), bool(about.get("legal", False))
    return EnvSpec(str(about.get("env", "unknown")), *spaces, legal=legal, time_limit=limit)


def _read_about(directory: Path) -> dict[str, Any]:
    path = directory / ABOUT
    if not path.exists():
        raise UserError(f"{directory} is no dataset: it holds neither {ABOUT} nor a Minari dataset")
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(about, dict):
        raise UserError(f"cannot read {path}: it is not a JSON object")
    return about


def _returns(columns: Columns) -> dict[str, Any]:
    """Number and returns of the complete episodes."""
    ends = np.flatnonzero(np.asarray(columns["terminated"], bool) | np.asarray(columns["truncated"], bool))
    sums = np.cumsum(columns["reward"], dtype="float64")[ends]
    return {"episodes": len(ends), "returns": [float(x) for x in np.diff(sums, prepend=0.0)]}

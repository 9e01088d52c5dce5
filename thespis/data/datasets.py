"""Datasets of transitions on disk: directories of columns with a ``dataset.json``, and the formats of other libraries.

Rows are steps in order, episode after episode. The columns are ``observation``, ``action`` (in the environment's
units), ``reward``, ``terminated``, ``truncated`` and, if known, ``next_observation``, the true one also
at an episode's end; ``legal`` and ``next_legal`` where the environment has action masks. Each part of a composite
space is a column of its own: ``observation/camera``. ``dataset.json`` holds the format's version, the environment's
name, its spaces, and any other information.

A dialogue is an episode whose steps are turns: ``observation`` is the text so far, as tokens, ``action`` a
response, and ``log_prob``, if known, the log-probability with which each of its tokens was sampled. Where
``dataset.json`` has ``together: 2``, every two adjacent episodes form a pair, such as a chosen and a rejected answer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, Transition
from thespis.core.spaces import Text, unscale_action
from thespis.data import transitions
from thespis.data.arrow_tables import is_saved_table, read_saved_table
from thespis.data.columns import Columns, column_files, read_columns, read_parquet_table, write_columns
from thespis.data.d3rlpy_files import SUFFIXES as D3RLPY_SUFFIXES
from thespis.data.d3rlpy_files import read_d3rlpy
from thespis.data.plain_columns import arrow_steps, our_names, plain_dataset
from thespis.data.space_json import space_from_json, space_to_json

FORMAT_VERSION = 1
METADATA_FILE = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Transitions of numpy arrays along one time axis ``[time]``; actions are canonical.

    ``notes`` has a line for everything that was dropped or marked while reading; ``metadata`` is the content of
    ``dataset.json``.
    """

    spec: EnvSpec
    steps: Transition
    notes: tuple[str, ...]
    metadata: dict[str, Any]

    @property
    def group_size(self) -> int:
        """Number of adjacent episodes that form a group; 0: episodes with the same initial state form a group."""
        return int(self.metadata.get("together", 0))

    @property
    def num_episodes(self) -> int:
        """Number of episodes (or pieces of episodes)."""
        return int(np.sum(self.steps.is_first))


def read_dataset(path: str | Path, find_env_spec: Callable[[], EnvSpec | None] = lambda: None) -> Dataset:
    """Read the dataset at ``path``; its kind is found from its files.

    - a directory with a ``dataset.json``, or a directory of Minari; ``minari:ID`` is a local Minari dataset of that
      name, in ``MINARI_DATASETS_PATH``;
    - a directory that the library ``datasets`` wrote by ``save_to_disk``, or one with parquet files: rows are steps, or
      lists of an episode's steps. Names of columns: :mod:`thespis.data.plain_columns`;
    - columns without ``dataset.json`` in ``.npz``, ``.npy`` or ``.parquet`` files, a directory or one file;
    - a file ``.h5`` of d3rlpy: :mod:`thespis.data.d3rlpy_files`.

    The last three do not say their spaces: they are those of ``find_env_spec()`` or, where that is ``None``, inferred.

    Raises:
        UserError: if it is missing or unreadable, of an unknown format, or lacks a column; if columns
            differ in length, have the wrong shape, or hold a value that is no number or outside its space.
    """
    from thespis.data import minari  # heavy, and rarely needed

    if str(path).startswith("minari:"):
        spec, columns, metadata = minari.load_local_minari(str(path).removeprefix("minari:"))
    elif Path(path).is_dir() and minari.is_minari_dataset(Path(path)):
        spec, columns, metadata = minari.read_minari(Path(path))
    elif (Path(path) / METADATA_FILE).exists():
        metadata = _read_metadata(Path(path))
        spec, columns = spec_from_metadata(metadata), read_columns(Path(path))
    else:
        plain = plain_dataset(_read_plain_columns(Path(path)), str(path), find_env_spec())
        steps, notes = transitions.columns_to_transitions(plain.spec, plain.columns)
        return Dataset(plain.spec, steps, (*plain.notes, *notes), {"env": plain.spec.name})
    steps, notes = transitions.columns_to_transitions(spec, columns)
    return Dataset(spec, steps, notes, metadata)


def _read_plain_columns(path: Path) -> Columns:
    """The columns, by our names, of a dataset that does not say its spaces."""
    if not path.exists():
        raise UserError(
            f"there is no dataset at {path}: give the directory that holds {METADATA_FILE}, or another one of the "
            "formats in docs/offline-data.md"
        )
    if path.suffix in D3RLPY_SUFFIXES and path.is_file():
        return read_d3rlpy(path)
    files = column_files(path)
    tables = [file for file in files if file.suffix == ".parquet"]
    if path.is_dir() and is_saved_table(path):
        return arrow_steps(read_saved_table(path), str(path))
    if tables and tables == files:
        training = [file for file in tables if file.stem.startswith("train")]  # a split among others
        return arrow_steps(read_parquet_table(training or tables), str(path))
    if not files:
        raise UserError(
            f"{path} is no dataset: it holds neither {METADATA_FILE}, nor columns (.npz, .npy, .parquet), nor a "
            "dataset of Minari, of d3rlpy (.h5) or of Hugging Face"
        )
    columns = read_columns(path)
    return {ours: columns[name] for name, ours in our_names(columns, str(path)).items()}


def write_dataset(
    directory: str | Path, columns: Columns, metadata: dict[str, Any], *, file_format: str = "npz"
) -> None:
    """Write ``columns`` (each ``[row, ...]``) as ``data.npz`` or ``data.parquet`` and ``dataset.json``.

    Args:
        directory: created if needed; must not hold a dataset yet.
        columns: see the module's docstring; :func:`transitions_to_columns` makes them from transitions.
        metadata: ``env`` (name), ``observation`` and ``action`` (spaces), and anything else that JSON can
            hold, such as ``method``. The numbers of steps and episodes and the episodes' returns are added.
        file_format: ``"npz"`` or ``"parquet"``.

    Raises:
        UserError: if a dataset is there already, cannot be written, or :func:`read_dataset` would refuse it.
    """
    directory = Path(directory)
    other_metadata = {key: metadata[key] for key in metadata if key not in ("observation", "action")}
    try:
        spaces = {key: space_to_json(metadata[key]) for key in ("observation", "action")}
        metadata = {"format": FORMAT_VERSION, "action_units": "world", **other_metadata, **spaces}
        spec = spec_from_metadata(metadata)
    except KeyError as missing:
        raise UserError(f"a dataset needs {missing}: env, observation and action are required") from None
    transitions.validate_columns(spec, columns)
    metadata |= {"steps": len(columns["reward"]), **_episode_returns(columns)}
    if (directory / METADATA_FILE).exists():
        raise UserError(f"{directory} already holds a dataset: choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_columns(directory, columns, file_format)
        (directory / METADATA_FILE).write_text(
            json.dumps(metadata, indent=1) + "\n"
        )  # last: it marks the dataset as complete
    except OSError as error:
        raise UserError(f"cannot write a dataset to {directory}: {error.strerror or error}") from error


def transitions_to_columns(spec: EnvSpec, steps: Transition) -> Columns:
    """The columns of transitions ``[time]`` in stored order, actions in the environment's units."""
    action = unscale_action(spec.action_space, steps.action)
    columns = transitions.flatten_columns(spec.observation_space, "observation", steps.view.observation)
    columns |= transitions.flatten_columns(spec.observation_space, "next_observation", steps.next_view.observation)
    columns |= transitions.flatten_columns(spec.action_space, "action", action)
    if spec.has_action_mask:
        columns |= transitions.flatten_columns(spec.action_space, "legal", steps.view.action_mask)
        columns |= transitions.flatten_columns(spec.action_space, "next_legal", steps.next_view.action_mask)
    if isinstance(spec.action_space, Text) and isinstance(steps.extras, np.ndarray):
        columns |= {"log_prob": steps.extras}
    rest = {"reward": steps.reward, "terminated": steps.terminated, "truncated": steps.truncated}
    return columns | {name: np.asarray(values) for name, values in rest.items()}


def spec_from_metadata(metadata: dict[str, Any]) -> EnvSpec:
    """The environment's spec from ``dataset.json``. Raises ``UserError`` for missing entries."""
    if metadata.get("format") != FORMAT_VERSION:
        raise UserError(
            f"the dataset is of format {metadata.get('format')!r}; this version reads format {FORMAT_VERSION}"
        )
    if metadata.get("action_units") != "world":
        raise UserError(f'the actions are in units {metadata.get("action_units")!r}; "world" is expected')
    spaces = []
    for name in ("observation", "action"):
        if name not in metadata:
            raise UserError(f"{METADATA_FILE} does not say the {name} space: add {name!r}")
        spaces.append(space_from_json(metadata[name]))
    limit, legal = metadata.get("time_limit"), bool(metadata.get("legal", False))
    return EnvSpec(str(metadata.get("env", "unknown")), *spaces, has_action_mask=legal, time_limit=limit)


def _read_metadata(directory: Path) -> dict[str, Any]:
    path = directory / METADATA_FILE
    try:
        metadata = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(metadata, dict):
        raise UserError(f"cannot read {path}: it is not a JSON object")
    return metadata


def _episode_returns(columns: Columns) -> dict[str, Any]:
    """Number and returns of the complete episodes."""
    ends = np.flatnonzero(np.asarray(columns["terminated"], bool) | np.asarray(columns["truncated"], bool))
    sums = np.cumsum(columns["reward"], dtype="float64")[ends]
    return {"episodes": len(ends), "returns": [float(x) for x in np.diff(sums, prepend=0.0)]}

"""Recorded episodes of runs, as a web page reads them: a list, the columns of an episode, and its frames."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.episode_frames import count_frames, frames_path
from thespis.evaluation.episode_recording import read_episode
from thespis.evaluation.formatting import format_card_row
from thespis.evaluation.report_card import ReportCard

CRITIC_COLUMNS = ("value", "advantage", "spread")
MAX_COMPONENTS = 32
"""Components of an observation or action that a page gets, at most: others are images, or too many to read."""


class EpisodeLibrary:
    """Episode records of run directories and of single files. An episode's id is ``RUN/episodes/FILE``, without suffix.

    Raises ``UserError`` for a path that is neither.
    """

    def __init__(self, paths: Sequence[Path]):
        self._sources: dict[str, Path] = {}
        self._files: dict[str, Path] = {}
        for path in paths:
            if not path.is_dir() and path.suffix != ".npz":
                raise UserError(f"{path} is neither the directory of a run nor an episode record (.npz)")
            if not path.exists():
                raise UserError(f"{path} does not exist")
            name = path.resolve().name if path.is_dir() else path.resolve().parent.parent.name
            count = sum(known.partition("~")[0] == name for known in self._sources)
            self._sources[f"{name}~{count + 1}" if count else name] = path

    def files(self) -> dict[str, Path]:
        """The records on disk by id, the oldest first."""
        files = {}
        for name, path in self._sources.items():
            root = path if path.is_dir() else path.parent
            records = [*root.glob("episodes/*.npz"), *root.glob("labels/*/episodes/*.npz")] if path.is_dir() else [path]
            for record in sorted(records, key=lambda record: (record.stat().st_mtime, record.name)):
                files[f"{name}/{record.relative_to(root).with_suffix('')}"] = record
        self._files = files
        return files

    def path(self, episode: str) -> Path:
        """The record of an id. Raises ``UserError`` if there is none."""
        path = self._files.get(episode) or self.files().get(episode)
        if path is None or not path.is_file():
            raise UserError("there is no such episode: it may have been deleted, load the page again")
        return path

    def summaries(self) -> list[dict[str, Any]]:
        """What a list of episodes shows. Records that cannot be read are left out."""
        return [summary for episode, path in self.files().items() if (summary := _summary(episode, path)) is not None]


def _summary(episode: str, path: Path) -> dict[str, Any] | None:
    """Of the metadata alone; ``None`` for a file that cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(str(stored["about"]))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    names = ("env", "method", "step", "seed", "mode", "return", "length")
    return {"id": episode} | {name: about.get(name) for name in names}


def episode_json(path: Path) -> dict[str, Any]:
    """An episode: metadata, columns of numbers by name ``[time]``, components of observations and actions, words.

    With it comes the report card of its run. Raises ``UserError`` for a record that cannot be read.
    """
    about, columns = read_episode(path)
    turns = about.pop("turns", None)
    numbers = {name: finite_numbers(columns[name]) for name in ("reward", *CRITIC_COLUMNS) if name in columns}
    components = {
        name: finite_numbers(flat)
        for name, column in columns.items()
        if name.partition("/")[0] in ("observation", "action")
        and (flat := column.reshape(len(column), -1)).shape[1] <= MAX_COMPONENTS
        and turns is None
    }
    ends = {name: bool(columns[name][-1]) for name in ("terminated", "truncated")}
    words = [str(text) for text in columns["words"]] if "words" in columns else None
    frames = count_frames(frames_path(path))
    parts = {"columns": numbers, "components": components, "ends": ends, "words": words, "turns": turns}
    return {"about": about, "num_frames": frames, "report_card": _report_card_rows(path.parent.parent)} | parts


def _report_card_rows(run: Path) -> list[tuple[str, str, str]]:
    """Lines of a run's report card: name, mean, interval, then warnings; none without a card, or of a single file."""
    try:
        card = ReportCard.from_json(json.loads((run / "final.json").read_text())["report_card"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [*map(format_card_row, card.rows()), *((warning, "", "") for warning in card.warnings)]


def finite_numbers(values: np.ndarray) -> list[Any]:
    """Numbers as JSON writes them, to six digits; ``None`` for those that are not finite."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(x) for x in value]
        return float(f"{value:.6g}") if np.isfinite(value) else None

    return convert(np.asarray(values, np.float64).tolist())

"""Comparisons by a person, on disk: what was asked, what was answered, and the arrays that a reward model learns from.

A directory of comparisons holds

- ``queries.npz``, of segments of behaviour: columns ``observation`` and ``action`` (parts of trees as
  ``observation/name``; canonical actions) and ``mask``, all ``[query, 2, time, ...]``, and ``about``, a JSON text that
  says of which episodes they are; or ``queries.jsonl``, of responses, with ``prompt`` and two ``responses`` a line;
- ``labels.jsonl``: an answer a line, ``{"query": 3, "answer": "first"}``, or ``{"undo": 3}``. It only grows, and each
  line is on the disk before the next question is asked, so that a crash loses nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.runtime import disk

QUERIES_FILE, RESPONSES_FILE, LABELS_FILE = "queries.npz", "queries.jsonl", "labels.jsonl"
QUERY_FORMAT = 1
LABEL_VALUES = {"first": 1.0, "second": 0.0, "equal": 0.5}
"""The label of each answer: the probability that the first is the better one. ``skip`` has none."""
ANSWERS = (*LABEL_VALUES, "skip")


class LabelFile:
    """The answers of one directory of comparisons. ``num_queries``: how many questions there are."""

    def __init__(self, directory: Path, num_queries: int):
        self.path, self.num_queries = directory / LABELS_FILE, num_queries
        self._events = _read_events(self.path, num_queries)

    @property
    def answers(self) -> dict[int, str]:
        """The answer of each question that has one, in the order in which they were given."""
        answers: dict[int, str] = {}
        for event in self._events:
            answers.pop(event["undo"] if "undo" in event else event["query"], None)
            if "query" in event:
                answers[event["query"]] = event["answer"]
        return answers

    @property
    def next_query(self) -> int | None:
        """The first question without an answer; ``None`` if all have one."""
        answers = self.answers
        return next((i for i in range(self.num_queries) if i not in answers), None)

    def answer(self, query: int, answer: str, seconds: float | None = None) -> None:
        """Write an answer, which replaces an earlier one. ``seconds``: how long the person looked.

        Raises ``UserError`` for a question or an answer that does not exist.
        """
        if not 0 <= query < self.num_queries:
            raise UserError(f"there is no question {query}: they are 0 to {self.num_queries - 1}")
        if answer not in ANSWERS:
            raise UserError(f"{answer!r} is no answer: give one of {', '.join(ANSWERS)}")
        self._append({"query": query, "answer": answer} | ({} if seconds is None else {"seconds": round(seconds, 2)}))

    def undo(self) -> int | None:
        """Take back the last answer and return its question; ``None`` if there is none."""
        answers = self.answers
        if not answers:
            return None
        query = [*answers][-1]
        self._append({"undo": query})
        return query

    def _append(self, event: dict[str, Any]) -> None:
        with disk.as_user_error("the label", self.path.parent):
            disk.append_lines(self.path, [json.dumps(event)])
        self._events.append(event)


def _read_events(path: Path, num_queries: int) -> list[dict[str, Any]]:
    """The lines of a file of labels; a last line that a crash cut off is removed from the file."""
    if not path.exists():
        return []
    events = []
    for number, line in enumerate(disk.read_whole_lines(path), 1):
        try:
            event = json.loads(line)
            query = event["undo"] if "undo" in event else event["query"]
            if not 0 <= query < num_queries or ("query" in event and event["answer"] not in ANSWERS):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{path}, line {number} is no label: remove the line") from None
        events.append(event)
    return events


def write_queries(directory: Path, columns: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Write questions about pairs of segments. ``about``: ``pairs``, where each is from, and any other JSON values."""
    with disk.as_user_error("the questions", directory):
        directory.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(directory / QUERIES_FILE) as file:
            text = np.array(json.dumps({"format": QUERY_FORMAT} | about))
            np.savez_compressed(file, allow_pickle=False, about=text, **columns)


def read_queries(directory: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is known of the questions of a directory, and their columns. Raises ``UserError`` if they cannot be read."""
    path = directory / QUERIES_FILE
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns = {name: stored[name] for name in stored.files}
        about = json.loads(str(columns.pop("about")))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} holds no questions: {error}") from error
    if about.get("format") != QUERY_FORMAT:
        raise UserError(f"{path} has format {about.get('format')!r}; this version reads {QUERY_FORMAT}")
    return about, columns


def comparison_directories(path: str | Path) -> list[Path]:
    """The directories of comparisons of a run (``labels/*``), or a directory of comparisons itself.

    Raises ``UserError`` if there are none.
    """
    path = Path(path)
    if (path / QUERIES_FILE).is_file():
        return [path]
    directories = sorted(file.parent for file in path.glob(f"labels/*/{QUERIES_FILE}"))
    if not directories:
        raise UserError(f"{path} has no comparisons: ask a person for some with `thespis label {path}`")
    return directories


def read_labelled(path: str | Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The columns ``[comparison, 2, time, ...]`` of all questions of a run that were answered, and their labels."""
    parts, labels = [], []
    for directory in comparison_directories(path):
        _, columns = read_queries(directory)
        answers = LabelFile(directory, len(columns["mask"])).answers
        rows = [i for i in sorted(answers) if answers[i] in LABEL_VALUES]
        parts.append({name: column[rows] for name, column in columns.items()})
        labels += [LABEL_VALUES[answers[i]] for i in rows]
    length = max(part["mask"].shape[2] for part in parts)
    padded = [{name: pad_axis(column, 2, length) for name, column in part.items()} for part in parts]
    return {name: np.concatenate([part[name] for part in padded]) for name in padded[0]}, np.array(labels, "float32")


def pad_axis(column: np.ndarray, axis: int, length: int) -> np.ndarray:
    """The column with zeros at the end of an axis, up to ``length``."""
    return np.pad(column, [(0, length - size if i == axis else 0) for i, size in enumerate(column.shape)])

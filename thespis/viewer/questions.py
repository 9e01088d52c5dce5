"""What a person is asked: pairs of segments of behaviour, or of responses to a prompt; and where the answers go."""

from __future__ import annotations

import abc
import json
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.data.comparison_files import RESPONSES_FILE, LabelFile, read_queries
from thespis.evaluation.episode_frames import count_frames, frames_path
from thespis.evaluation.episode_recording import read_episode
from thespis.runtime import disk
from thespis.viewer.episodes import MAX_COMPONENTS, finite_numbers

PREFERENCES_FILE = "preferences.jsonl"
"""Answered pairs of responses, as ``thespis train dpo --data`` reads them."""


class Questions(abc.ABC):
    """The questions of one directory of comparisons, and their answers."""

    kind: str

    def __init__(self, directory: Path, num_queries: int):
        self.directory = directory
        self.labels = LabelFile(directory, num_queries)

    def status(self) -> dict[str, Any]:
        """How many questions there are and are answered, and which is the next without an answer."""
        labels = self.labels
        progress = {"total": labels.num_queries, "answers": labels.answers, "next": labels.next_query}
        return {"kind": self.kind, "directory": str(self.directory)} | progress

    def question(self, index: int) -> dict[str, Any]:
        """A question as JSON. Raises ``UserError`` if there is none of that index."""
        if not 0 <= index < self.labels.num_queries:
            raise UserError(f"there is no question {index}")
        return {"index": index, "answer": self.labels.answers.get(index), **self.sides(index)}

    @abc.abstractmethod
    def sides(self, index: int) -> dict[str, Any]:
        """Both sides of a question."""

    def export(self) -> None:
        """Write the answers in any other form in which they are wanted: in none."""
        return


class SegmentQuestions(Questions):
    """Pairs of segments of recorded episodes. ``name``: of the run, in the ids of its episodes."""

    kind = "segments"

    def __init__(self, directory: Path, name: str):
        self._about, _ = read_queries(directory)
        self._name = name
        super().__init__(directory, len(self._about["pairs"]))

    def sides(self, index: int) -> dict[str, Any]:
        """Of both segments: the episode's id, the first step, the number of steps, and frames or observations."""
        return {"sides": [self._side(segment) for segment in self._about["pairs"][index]]}

    def _side(self, segment: dict[str, Any]) -> dict[str, Any]:
        path = self.directory / "episodes" / f"{segment['episode']}.npz"
        start, length = segment["start"], segment["length"]
        num_frames = count_frames(frames_path(path))
        name = f"{self._name}/labels/{self.directory.name}/episodes/{segment['episode']}"
        side = {"episode": name, "start": start, "length": length}
        if num_frames:
            return side | {"num_frames": min(length + 1, num_frames - start)}
        _, columns = read_episode(path)
        shown = {
            name: finite_numbers(flat[start : start + length])
            for name, column in columns.items()
            if name.partition("/")[0] in ("observation", "action")
            if (flat := column.reshape(len(column), -1)).shape[1] <= MAX_COMPONENTS
        }
        return side | {"components": shown}


class ResponseQuestions(Questions):
    """Pairs of responses to a prompt. The answered ones are written as a file of preferences."""

    kind = "responses"

    def __init__(self, directory: Path):
        self._rows = read_responses(directory / RESPONSES_FILE)
        super().__init__(directory, len(self._rows))

    def sides(self, index: int) -> dict[str, Any]:
        """The prompt, and both responses."""
        row = self._rows[index]
        return {"prompt": _prompt_text(row["prompt"]), "sides": [{"text": text} for text in row["responses"]]}

    def export(self) -> None:
        """Write the pairs with a preferred response: prompt, chosen, rejected."""
        lines = []
        for i, answer in sorted(self.labels.answers.items()):
            if answer in ("first", "second"):
                first, second = self._rows[i]["responses"]
                chosen, rejected = (first, second) if answer == "first" else (second, first)
                lines.append(json.dumps({"prompt": self._rows[i]["prompt"], "chosen": chosen, "rejected": rejected}))
        path = self.directory / PREFERENCES_FILE
        with disk.as_user_error("the preferences", self.directory), disk.atomic_write(path) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())


def read_responses(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file: ``prompt`` (a text, or messages) and ``responses``, two texts.

    A row may also have ``chosen`` and ``rejected`` in place of ``responses``.
    Raises ``UserError`` with the line of a row that is not so.
    """
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    rows = [_parse_row(path, number, line) for number, line in enumerate(lines, 1)]
    if not rows:
        raise UserError(f"{path} has no lines: give prompt and responses, two texts, in each")
    return rows


def _parse_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        responses = row["responses"] if "responses" in row else [row["chosen"], row["rejected"]]
        prompt = row["prompt"]
        is_right = len(responses) == 2 and all(isinstance(text, str) for text in responses)
        if not is_right or not isinstance(prompt, (str, list)):
            raise ValueError
        _prompt_text(prompt)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"{path}, line {number}: a line has prompt (a text or messages) and responses (a list of two texts)"
        ) from None
    return {"prompt": prompt, "responses": responses}


def _prompt_text(prompt: Any) -> str:
    """A prompt as a person reads it."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)

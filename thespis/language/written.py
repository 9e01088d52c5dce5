"""Conversations that somebody wrote down, one a line of JSON, as token ids. Three kinds of lines, one kind a file:

``{"messages": [{"role": "user", "content": ...}, ...]}``: a chat, of which what the assistant says is learnt; with
``"reward": 1`` for the whole, or ``"rewards": [0, 1]``, one an answer of the assistant.
``{"prompt": ..., "chosen": ..., "rejected": ...}``: two answers, of which the first was preferred.
``{"prompt": ..., "answer": ..., "good": true}``: an answer and whether it was liked.

A prompt is a text, or messages; so is an answer, all of whose assistant's messages count. What is preferred or liked
earns 1 with its last answer, what is not 0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.language.chat import Conversation, Message, Template
from thespis.language.tokens import Tokenizer

KINDS = {"chosen": ("prompt", "chosen", "rejected"), "answer": ("prompt", "answer", "good"), "messages": ("messages",)}
ROLES = ("system", "user", "assistant", "tool")


@dataclasses.dataclass(frozen=True)
class Written:
    """Ids of a conversation, where the assistant's answers begin, what they are, and what each earned."""

    tokens: tuple[int, ...]
    starts: tuple[int, ...]
    said: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]

    @property
    def news(self) -> int:
        """The most ids that came between two answers."""
        ends = (0, *(start + len(ids) for start, ids in zip(self.starts, self.said, strict=True)))
        return max(start - end for start, end in zip(self.starts, ends, strict=False))


def read_lines(path: Path, template: Template, tokenizer: Tokenizer) -> tuple[list[Written], int]:
    """The conversations of a file, and how many behind each other belong together (2 where they are pairs, else 0).

    Raises:
        UserError: if the file cannot be read or a line is not as described; with the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    found, first = [], ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _record(line)
            kind = next((kind for kind in KINDS if kind in record), None)
            if kind is None or (first and kind != first):
                wanted = " or ".join(", ".join(KINDS[each]) for each in ([first] if first else KINDS))
                raise UserError(f"it has {', '.join(record) or 'nothing'}; wanted are {wanted}")
            first = kind
            found += [_written(*told, template, tokenizer) for told in _told(kind, record)]
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
    if not found:
        raise UserError(f"{path} has no lines")
    return found, 2 if first == "chosen" else 0


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"this is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError("this is no JSON object: a line is {...}")
    return record


def _told(kind: str, record: dict[str, Any]) -> list[tuple[list[Message], list[float] | float]]:
    """The chats of a line, with what they earned."""
    if missing := [name for name in KINDS[kind] if name not in record]:
        raise UserError(f"{missing[0]!r} is missing beside {kind!r}")
    if kind == "messages":
        earned = record.get("rewards", record.get("reward", 0.0))
        numbers = earned if isinstance(earned, list) else [earned]
        if not all(isinstance(x, int | float) for x in numbers):
            raise UserError(f"rewards are numbers, not {earned!r}")
        told = [float(x) for x in numbers]
        return [(_messages(record, kind, "assistant"), told if isinstance(earned, list) else told[0])]
    prompt = _messages(record, "prompt", "user")
    if kind == "chosen":
        both = [prompt + _messages(record, name, "assistant") for name in ("chosen", "rejected")]
        return [(both[0], 1.0), (both[1], 0.0)]
    if not isinstance(record["good"], bool):
        raise UserError(f"'good' is true or false, not {record['good']!r}")
    return [(prompt + _messages(record, "answer", "assistant"), float(record["good"]))]


def _messages(record: dict[str, Any], name: str, role: str) -> list[Message]:
    """A text as one message of ``role``, or the messages themselves."""
    given = record[name]
    if isinstance(given, str) and name != "messages":
        return [{"role": role, "content": given}]
    if not isinstance(given, list) or not given:
        raise UserError(f"{name!r} is a list of messages" + (" or a text" if name != "messages" else ""))
    for i, message in enumerate(given, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise UserError(f"message {i} of {name!r} has no role among {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str):
            raise UserError(f"message {i} of {name!r} has no text as its content")
    return given


def _written(
    messages: Sequence[Message], earned: list[float] | float, template: Template, tokenizer: Tokenizer
) -> Written:
    """Ids of a chat up to the assistant's last answer."""
    talk, pending, starts, said = Conversation(), [], [], []
    for message in messages:
        if message["role"] != "assistant":
            pending.append(message)
            continue
        if not talk.tokens and not pending:
            raise UserError("the assistant speaks first: nothing was asked")
        talk = talk.heard(template, tokenizer, *pending)
        starts.append(len(talk.tokens))
        talk = talk.written(template, tokenizer, message["content"])
        said.append(talk.tokens[starts[-1] :])
        pending = []
    if not said:
        raise UserError("the assistant says nothing: there is nothing to learn")
    rewards = earned if isinstance(earned, list) else [0.0] * (len(said) - 1) + [earned]
    if len(rewards) != len(said):
        raise UserError(f"{len(rewards)} rewards for {len(said)} answers of the assistant")
    return Written(talk.tokens, tuple(starts), tuple(said), tuple(rewards))

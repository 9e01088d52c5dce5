"""Chat files in JSON lines, read as token ids. There are three kinds of lines, one kind per file:

``{"messages": [{"role": "user", "content": ...}, ...]}``: a chat, whose assistant messages are learned; with
``"reward": 1`` for the whole chat, or ``"rewards": [0, 1]``, one for each assistant message.
``{"prompt": ..., "chosen": ..., "rejected": ...}``: two responses, of which the first was preferred.
``{"prompt": ..., "answer": ..., "good": true}``: a response and whether it was liked.

A prompt is a text, or messages; so is a response, all of whose assistant messages count. Preferred and liked responses
earn 1 with their last assistant message, others 0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.language.chat import ROLES, ChatTemplate, Conversation, Message, find_role_error
from thespis.language.tokenizer import Tokenizer

RECORD_FIELDS = {
    "chosen": ("prompt", "chosen", "rejected"),
    "answer": ("prompt", "answer", "good"),
    "messages": ("messages",),
}


@dataclasses.dataclass(frozen=True)
class TokenizedChat:
    """The tokens of a chat, the start and tokens of each response of the assistant, and the reward of each."""

    tokens: tuple[int, ...]
    response_starts: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]

    @property
    def max_message_length(self) -> int:
        """The largest number of tokens between two responses."""
        ends = (0, *(start + len(tokens) for start, tokens in zip(self.response_starts, self.responses, strict=True)))
        return max(start - end for start, end in zip(self.response_starts, ends, strict=False))


def read_chats(path: Path, template: ChatTemplate, tokenizer: Tokenizer) -> tuple[list[TokenizedChat], int]:
    """The chats of a file, and the size of groups of consecutive chats (2 for preference pairs, otherwise 0).

    Raises:
        UserError: if the file cannot be read or a line is not as described; with the line's number.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    chats, file_kind = [], ""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _parse_record(line)
            kind = next((kind for kind in RECORD_FIELDS if kind in record), None)
            if kind is None or (file_kind and kind != file_kind):
                expected = " or ".join(
                    ", ".join(RECORD_FIELDS[field]) for field in ([file_kind] if file_kind else RECORD_FIELDS)
                )
                raise UserError(f"it has {', '.join(record) or 'nothing'}; wanted are {expected}")
            file_kind = kind
            chats += [_tokenize_chat(*chat, template, tokenizer) for chat in _parse_chats(kind, record)]
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
    if not chats:
        raise UserError(f"{path} has no lines")
    return chats, 2 if file_kind == "chosen" else 0


def _parse_record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"this is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError("this is no JSON object: a line is {...}")
    return record


def _parse_chats(kind: str, record: dict[str, Any]) -> list[tuple[list[Message], list[float] | float]]:
    """The chats of a line, with their rewards."""
    if missing := [name for name in RECORD_FIELDS[kind] if name not in record]:
        raise UserError(f"{missing[0]!r} is missing: it must come with {kind!r}")
    if kind == "messages":
        rewards = record.get("rewards", record.get("reward", 0.0))
        numbers = rewards if isinstance(rewards, list) else [rewards]
        if not all(isinstance(x, int | float) for x in numbers):
            raise UserError(f"rewards are numbers, not {rewards!r}")
        values = [float(x) for x in numbers]
        return [(_parse_messages(record, kind, "assistant"), values if isinstance(rewards, list) else values[0])]
    prompt = _parse_messages(record, "prompt", "user")
    if kind == "chosen":
        pair = [prompt + _parse_messages(record, name, "assistant") for name in ("chosen", "rejected")]
        return [(pair[0], 1.0), (pair[1], 0.0)]
    if not isinstance(record["good"], bool):
        raise UserError(f"'good' is true or false, not {record['good']!r}")
    return [(prompt + _parse_messages(record, "answer", "assistant"), float(record["good"]))]


def _parse_messages(record: dict[str, Any], name: str, role: str) -> list[Message]:
    """A text as one message of ``role``, or the messages themselves."""
    value = record[name]
    if isinstance(value, str) and name != "messages":
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        raise UserError(f"{name!r} is a list of messages" + (" or a text" if name != "messages" else ""))
    for i, message in enumerate(value, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise UserError(f"message {i} of {name!r} has no role among {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str):
            raise UserError(f"message {i} of {name!r} has no text as its content")
    return value


def _tokenize_chat(
    messages: Sequence[Message], earned: list[float] | float, template: ChatTemplate, tokenizer: Tokenizer
) -> TokenizedChat:
    """Tokenize a chat up to the assistant's last message."""
    if (error := find_role_error(messages)) is not None:
        raise UserError(f"message {error[0] + 1} {error[1]}")
    dialogue, pending, starts, responses = Conversation(), [], [], []
    for message in messages:
        if message["role"] != "assistant":
            pending.append(message)
            continue
        dialogue = dialogue.add_messages(template, tokenizer, *pending)
        starts.append(len(dialogue.tokens))
        dialogue = dialogue.add_response_text(template, tokenizer, message["content"])
        responses.append(dialogue.tokens[starts[-1] :])
        pending = []
    if not responses:
        raise UserError("there is no message of the assistant: there is nothing to learn")
    rewards = earned if isinstance(earned, list) else [0.0] * (len(responses) - 1) + [earned]
    if len(rewards) != len(responses):
        raise UserError(f"{len(rewards)} rewards for {len(responses)} answers of the assistant")
    return TokenizedChat(dialogue.tokens, tuple(starts), tuple(responses), tuple(rewards))

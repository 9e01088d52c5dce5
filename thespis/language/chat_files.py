"""Chat files, read as token ids: JSON lines, or a Hugging Face dataset saved on disk (Arrow).

Formats of rows: :mod:`thespis.language.chat_records`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.data.arrow_tables import read_saved_table
from thespis.language.chat import ChatTemplate, Conversation, find_role_error
from thespis.language.chat_records import ChatRecord, parse_record, record_format
from thespis.language.tokenizer import Tokenizer


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


@dataclasses.dataclass(frozen=True)
class ChatFile:
    """The chats of a file, where each stands (``line 3``), and the format of its rows (see ``chat_records``)."""

    chats: tuple[TokenizedChat, ...]
    locations: tuple[str, ...]
    row_format: str

    @property
    def group_size(self) -> int:
        """The size of groups of consecutive chats: 2 for preference pairs, otherwise 0."""
        return 2 if self.row_format == "chosen" else 0


def read_chats(path: Path, template: ChatTemplate, tokenizer: Tokenizer) -> ChatFile:
    """The chats of a file of JSON lines, or of a directory written by ``save_to_disk``.

    Raises:
        UserError: if the file cannot be read or a row is not as described; with the row's number.
    """
    chats, locations, file_format = [], [], ""
    for location, row in read_rows(path):
        try:
            record = parse_row(row)
            row_format = record_format(record)
            if file_format and row_format != file_format:
                raise UserError(f"it has {', '.join(record)}, another format than the rows before: {file_format}")
            file_format = row_format
            chats += [_tokenize(chat, template, tokenizer) for chat in parse_record(record)]
            locations += [location] * (len(chats) - len(locations))
        except UserError as error:
            raise UserError(f"{path}, {location}: {error}") from None
    if not chats:
        raise UserError(f"{path} has no lines")
    return ChatFile(tuple(chats), tuple(locations), file_format)


def read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The location and content of each row of a file or dataset: a line of JSON, or a dictionary.

    Raises ``UserError`` if it cannot be read.
    """
    if path.is_dir():
        for number, row in enumerate(read_saved_table(path).to_pylist(), 1):
            yield f"row {number}", row
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    yield from ((f"line {number}", line) for number, line in enumerate(lines, 1) if line.strip())


def parse_row(row: Any) -> dict[str, Any]:
    """The record of a row from :func:`read_rows`, without empty fields.

    Raises ``UserError`` if it is no JSON object.
    """
    try:
        record = json.loads(row) if isinstance(row, str) else row
    except (ValueError, RecursionError) as error:
        raise UserError(f"this is no JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError("this is no JSON object: a line is {...}")
    return {name: value for name, value in record.items() if value is not None}


def _tokenize(chat: ChatRecord, template: ChatTemplate, tokenizer: Tokenizer) -> TokenizedChat:
    if chat.text is not None:
        return _tokenize_text(chat.text, template, tokenizer)
    return _tokenize_chat(chat, template, tokenizer)


def _tokenize_text(text: str, template: ChatTemplate, tokenizer: Tokenizer) -> TokenizedChat:
    """A text without roles: its first token, or the token that begins texts, is the prompt."""
    begin = template.special_tokens.get("bos_token", "")
    tokens = (*tokenizer.encode(text if text.startswith(begin) else begin + text), tokenizer.stop_tokens[0])
    return TokenizedChat(tokens, (1,), (tokens[1:],), (0.0,))


def _tokenize_chat(chat: ChatRecord, template: ChatTemplate, tokenizer: Tokenizer) -> TokenizedChat:
    """Tokenize a chat up to the assistant's last message."""
    if (error := find_role_error(chat.messages)) is not None:
        raise UserError(f"message {error[0] + 1} {error[1]}")
    dialogue, pending, starts, responses = Conversation(), [], [], []
    for message in chat.messages:
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
    earned = chat.rewards
    rewards = earned if isinstance(earned, list) else [0.0] * (len(responses) - 1) + [earned]
    if len(rewards) != len(responses):
        raise UserError(f"{len(rewards)} rewards for {len(responses)} answers of the assistant")
    return TokenizedChat(dialogue.tokens, tuple(starts), tuple(responses), tuple(rewards))

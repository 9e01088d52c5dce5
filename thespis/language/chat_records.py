"""Row formats of chats: those of TRL, and two of our own. All rows of a file have the same format.

================================  =====================================================================
fields                            meaning
================================  =====================================================================
messages (reward, rewards)        a chat, whose assistant messages are learned
prompt, completion                a response, learned
prompt, completion, label         a response and whether it was liked; also: prompt, answer, good
prompt, chosen, rejected          two responses, of which the first was preferred
chosen, rejected                  two chats with the same beginning, which is the prompt
text                              a text without roles, learned except for its first token
================================  =====================================================================

A prompt is a text, or messages; so is a response, all of whose assistant messages count. Preferred and liked responses
earn 1 with their last assistant message, others 0. Other fields are not read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.errors import UserError
from thespis.language.chat import ROLES, Message

_FORMATS: dict[str, tuple[str, ...]] = {
    "chosen": ("prompt", "chosen", "rejected"),
    "answer": ("prompt", "answer", "good"),
    "completion": ("prompt", "completion"),
    "messages": ("messages",),
    "text": ("text",),
}
"""The fields of each format, by the field that only this format has; in the order in which they are looked for."""
_CONVERSIONS = {
    "conversations": "rename conversations to messages, from to role (user, assistant), value to content",
    "instruction": "write instruction and input as prompt, and output as completion",
    "question": "rename question to prompt, and the answer to completion",
    "prompt": "a prompt alone has nothing to learn: add a completion",
}
"""How to convert common rows of other formats, by one of their fields."""
_TOOL_FIELDS = ("tools", "tool_calls", "function_call", "functions")


@dataclasses.dataclass(frozen=True)
class ChatRecord:
    """A chat of a row: messages, or a text without roles; and its rewards, one per response or one for the whole."""

    messages: tuple[Message, ...] = ()
    rewards: list[float] | float = 0.0
    text: str | None = None


def record_format(record: dict[str, Any]) -> str:
    """The format of a row, named by a field of it: chosen, label, messages, completion or text.

    Raises ``UserError`` for an unknown format, and for one with tool calls, which are not read.
    """
    for name in _TOOL_FIELDS:
        if record.get(name):
            raise UserError(_tool_message(repr(name)))
    name = next((name for name in _FORMATS if name in record), None)
    if name is None:
        advice = next((text for field, text in _CONVERSIONS.items() if field in record), None)
        formats = " or ".join(", ".join(fields) for fields in _FORMATS.values())
        hint = f"; {advice}" if advice else ""
        raise UserError(f"it has {', '.join(record) or 'nothing'}; wanted are {formats}{hint}")
    is_rated = name == "answer" or (name == "completion" and "label" in record)
    return "label" if is_rated else name


def parse_record(record: dict[str, Any]) -> list[ChatRecord]:
    """The chats of a row: two if it is a preference pair, otherwise one. Raises ``UserError``."""
    name = next(name for name in _FORMATS if name in record)
    implicit = name == "chosen" and _has_implicit_prompt(record)
    needed = _FORMATS[name][1:] if implicit else _FORMATS[name]
    if missing := [field for field in needed if field not in record]:
        hint = ", or both are lists of messages with the prompt at their beginning" if missing == ["prompt"] else ""
        raise UserError(f"{missing[0]!r} is missing: it must come with {name!r}{hint}")
    if name == "text":
        if not isinstance(record["text"], str) or not record["text"]:
            raise UserError("'text' is a text that is not empty")
        return [ChatRecord(text=record["text"])]
    if name == "messages":
        return [ChatRecord(_parse_messages(record, name, "assistant"), _parse_rewards(record))]
    if implicit:
        return _parse_implicit_pair(record)
    prompt = _parse_messages(record, "prompt", "user")
    if name == "chosen":
        pair = [prompt + _parse_messages(record, field, "assistant") for field in ("chosen", "rejected")]
        return [ChatRecord(pair[0], 1.0), ChatRecord(pair[1], 0.0)]
    chat, rating = prompt + _parse_messages(record, name, "assistant"), "good" if name == "answer" else "label"
    if rating not in record:
        return [ChatRecord(chat)]
    if not isinstance(record[rating], bool):
        raise UserError(f"{rating!r} is true or false, not {record[rating]!r}")
    return [ChatRecord(chat, float(record[rating]))]


def _has_implicit_prompt(record: dict[str, Any]) -> bool:
    """Whether ``chosen`` and ``rejected`` are whole chats. Some data sets repeat the first message as ``prompt``."""
    chosen, prompt = record["chosen"], record.get("prompt")
    starts = (
        isinstance(chosen, list) and chosen and isinstance(chosen[0], dict) and chosen[0].get("role") != "assistant"
    )
    return bool(starts) and (prompt is None or any(m.get("content") == prompt for m in chosen if isinstance(m, dict)))


def _parse_implicit_pair(record: dict[str, Any]) -> list[ChatRecord]:
    chosen, rejected = (_parse_messages(record, field, "assistant") for field in ("chosen", "rejected"))
    common = 0
    while common < min(len(chosen), len(rejected)) and chosen[common] == rejected[common]:
        common += 1
    if not common or common == min(len(chosen), len(rejected)):
        raise UserError("'chosen' and 'rejected' must have the same first messages, the prompt, and then differ")
    return [ChatRecord(chosen, 1.0), ChatRecord(rejected, 0.0)]


def _parse_rewards(record: dict[str, Any]) -> list[float] | float:
    rewards = record.get("rewards", record.get("reward", 0.0))
    numbers = rewards if isinstance(rewards, list) else [rewards]
    if not all(isinstance(x, int | float) for x in numbers):
        raise UserError(f"rewards are numbers, not {rewards!r}")
    values = [float(x) for x in numbers]
    return values if isinstance(rewards, list) else values[0]


def _parse_messages(record: dict[str, Any], name: str, role: str) -> tuple[Message, ...]:
    """A text as one message of ``role``, or the messages themselves."""
    value = record[name]
    if isinstance(value, str) and name != "messages":
        return ({"role": role, "content": value},)
    if not isinstance(value, list) or not value:
        raise UserError(f"{name!r} is a list of messages" + (" or a text" if name != "messages" else ""))
    return tuple(_parse_message(message, f"message {i} of {name!r}") for i, message in enumerate(value, 1))


def _parse_message(message: Any, location: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise UserError(f"{location} has no role among {', '.join(ROLES)}")
    for name in _TOOL_FIELDS:
        if message.get(name):
            raise UserError(_tool_message(f"{name!r} of {location}"))
    content = message.get("content")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise UserError(f"{location} has no text as its content")
    return {name: value for name, value in message.items() if value is not None} | {"content": content}


def _tool_message(what: str) -> str:
    return (
        f"{what} is not read: write calls as text into the content of the assistant's message, and descriptions of "
        "tools into the system message"
    )

"""From the JSON of a request to what an engine is asked. What cannot be done is refused by the name of its field."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.language.chat import Conversation
from thespis.language.engine import Refused, Request, Talk

_IGNORED = {
    "user", "store", "metadata", "stream", "stream_options", "model", "service_tier", "safety_identifier",
    "prompt_cache_key", "parallel_tool_calls",
}  # fmt: skip
"""Fields that change no answer."""
_NOTHING: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "top_logprobs": (0,),
    "logit_bias": ({},), "tools": ([],), "functions": ([],), "tool_choice": ("none", "auto"), "best_of": (1,),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "echo": (False,), "suffix": ("",),
}  # fmt: skip
"""Fields that are understood only where they ask for nothing."""
_NUMBERS = {"temperature": "temperature", "top_p": "top_p", "min_p": "min_p"}
_WHOLE = {"top_k": "top_k", "max_tokens": "length", "max_completion_tokens": "length", "seed": "seed", "n": "n"}
_SWITCHES = ("stream", "logprobs", "return_token_ids")
STOPS = 16
"""Strings that stop, at most."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a client asks: what to answer, how, and what of the answer it wants to see."""

    model: str
    talk: Talk
    request: Request
    shorten: bool = False
    """Whether it does not say how long the answer may be."""
    stream: bool = False
    log_probs: bool = False
    token_ids: bool = False
    usage: bool = False
    """Whether a stream ends with the number of tokens."""


def chat_asked(body: Any, length: int) -> Asked:
    """A body of ``/v1/chat/completions``; ``length``: tokens of an answer if it does not say.

    Raises :class:`~thespis.language.engine.Refused`.
    """
    fields = _fields(body, "messages")
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list that is not empty", "messages")
    return _asked(fields, [_message(message, i) for i, message in enumerate(messages)], length)


def text_asked(body: Any, length: int, encode: Any) -> Asked:
    """A body of ``/v1/completions``: one prompt, as text or as token ids; ``encode`` makes ids of a text."""
    fields = _fields(body, "prompt")
    prompt = fields["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        (prompt,) = prompt
    ids = encode(prompt) if isinstance(prompt, str) else prompt
    if not isinstance(ids, list) or not ids or not all(_is_whole(i) and i >= 0 for i in ids):
        raise Refused("prompt must be one text or one list of token ids, and not empty", "prompt")
    if fields.get("logprobs") is not None:
        raise Refused("logprobs is not supported here: ask /v1/chat/completions", "logprobs")
    return _asked(fields, Conversation(tuple(ids), (0,) * len(ids)), length)


def _fields(body: Any, what: str) -> dict[str, Any]:
    """The fields that ask for something. Raises :class:`Refused` for one that cannot be had."""
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    fields = {name: value for name, value in body.items() if value is not None}
    known = {*_IGNORED, *_NUMBERS, *_WHOLE, *_SWITCHES, "stop", what}
    for name, value in fields.items():
        if name in _NOTHING:
            if value not in _NOTHING[name]:
                raise Refused(f"{name} is not supported", name)
        elif name not in known:
            raise Refused(f"{name} is not supported", name)
    for name in ("model", what):
        if name not in fields:
            raise Refused(f"{name} is missing", name)
    if not isinstance(fields["model"], str):
        raise Refused("model must be a string", "model")
    return fields


def _asked(fields: dict[str, Any], talk: Talk, length: int) -> Asked:
    how: dict[str, Any] = {"length": length}
    for name, own in _NUMBERS.items():
        if name in fields:
            if isinstance(fields[name], bool) or not isinstance(fields[name], int | float):
                raise Refused(f"{name} must be a number", name)
            how[own] = float(fields[name])
    for name, own in _WHOLE.items():
        if name in fields:
            if not _is_whole(fields[name]):
                raise Refused(f"{name} must be a whole number", name)
            how[own] = fields[name]
    how["top_k"] = 0 if how.get("top_k") == -1 else how.get("top_k", 0)  # the other way to say: all
    for name in _SWITCHES:
        if not isinstance(fields.get(name, False), bool):
            raise Refused(f"{name} must be true or false", name)
    options = fields.get("stream_options", {})
    if not isinstance(options, dict):
        raise Refused("stream_options must be an object", "stream_options")
    try:
        request = Request(stop=_stop(fields.get("stop", [])), **how)
    except Refused as error:
        field = "max_tokens" if error.field == "length" else error.field
        raise Refused(str(error).replace("length is", "max_tokens is"), field) from None
    stream, log_probs, token_ids = (fields.get(name, False) for name in _SWITCHES)
    shorten = not {"max_tokens", "max_completion_tokens"} & fields.keys()
    return Asked(
        fields["model"], talk, request, shorten, stream, log_probs, token_ids, bool(options.get("include_usage"))
    )


def _stop(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > STOPS or not all(isinstance(each, str) for each in stops):
        raise Refused(f"stop must be a string, or a list of {STOPS} at most", "stop")
    return tuple(stops)


def _message(message: Any, i: int) -> dict[str, Any]:
    """A message whose content is one text."""
    where = f"messages[{i}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused(f"{where} must be an object with a role", where)
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            raise Refused(f"{where}.content: only parts of type text are supported", where)
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise Refused(f"{where}.content must be a string, or a list of parts of type text", where)
    return message | {"content": content}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

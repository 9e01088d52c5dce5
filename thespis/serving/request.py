"""Parsing of request bodies of the OpenAI API; unsupported fields are rejected by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.language.chat import Conversation
from thespis.language.engine import GenerationConfig, Prompt, RequestError

_IGNORED_FIELDS = {
    "user",
    "store",
    "metadata",
    "stream",
    "stream_options",
    "model",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
}
"""Accepted fields that do not change the completion."""
_NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "best_of": (1,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "echo": (False,),
    "suffix": ("",),
}
"""Unsupported fields that are accepted with these neutral values only."""
_FLOAT_FIELDS = {"temperature": "temperature", "top_p": "top_p", "min_p": "min_p"}
_INT_FIELDS = {
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed",
    "n": "n",
}
_BOOL_FIELDS = ("stream", "logprobs", "return_token_ids")
MAX_STOP_STRINGS = 16
"""Maximum number of stop strings."""


@dataclasses.dataclass(frozen=True)
class CompletionRequest:
    """A parsed request: model, prompt, generation settings, and what the response contains."""

    model: str
    prompt: Prompt
    config: GenerationConfig
    clip_max_tokens: bool = False
    """Whether the request has no limit of tokens, so that the default may be shortened to fit the context."""
    stream: bool = False
    return_log_probs: bool = False
    return_token_ids: bool = False
    include_usage: bool = False
    """Whether a stream ends with an event of token counts."""


def parse_chat_request(body: Any, default_max_tokens: int) -> CompletionRequest:
    """Parse a body of ``/v1/chat/completions``; ``default_max_tokens`` applies if it has no limit.

    Raises :class:`~thespis.language.engine.RequestError`.
    """
    fields = _check_fields(body, "messages")
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list that is not empty", "messages")
    return _parse_request(
        fields, [_parse_message(message, i) for i, message in enumerate(messages)], default_max_tokens
    )


def parse_text_request(body: Any, default_max_tokens: int, encode: Any) -> CompletionRequest:
    """Parse a body of ``/v1/completions``: one prompt, as text or as tokens; ``encode`` tokenizes text.

    Raises :class:`~thespis.language.engine.RequestError`.
    """
    fields = _check_fields(body, "prompt")
    prompt = fields["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        (prompt,) = prompt
    tokens = encode(prompt) if isinstance(prompt, str) else prompt
    if not isinstance(tokens, list) or not tokens or not all(_is_int(i) and i >= 0 for i in tokens):
        raise RequestError("prompt must be one text or one list of tokens, and not empty", "prompt")
    if fields.get("logprobs") is not None:
        raise RequestError("logprobs is not supported here: use /v1/chat/completions", "logprobs")
    return _parse_request(fields, Conversation(tuple(tokens), (0,) * len(tokens)), default_max_tokens)


def _check_fields(body: Any, required: str) -> dict[str, Any]:
    """The fields that are not null. Raises :class:`RequestError` for unsupported or missing ones."""
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    fields = {name: value for name, value in body.items() if value is not None}
    allowed = {*_IGNORED_FIELDS, *_FLOAT_FIELDS, *_INT_FIELDS, *_BOOL_FIELDS, "stop", required}
    for name, value in fields.items():
        if name in _NEUTRAL_VALUES:
            if value not in _NEUTRAL_VALUES[name]:
                raise RequestError(f"{name} is not supported", name)
        elif name not in allowed:
            raise RequestError(f"{name} is not supported", name)
    for name in ("model", required):
        if name not in fields:
            raise RequestError(f"{name} is missing", name)
    if not isinstance(fields["model"], str):
        raise RequestError("model must be a string", "model")
    return fields


def _parse_request(fields: dict[str, Any], prompt: Prompt, default_max_tokens: int) -> CompletionRequest:
    config_fields: dict[str, Any] = {"max_tokens": default_max_tokens}
    for name, field_name in _FLOAT_FIELDS.items():
        if name in fields:
            if isinstance(fields[name], bool) or not isinstance(fields[name], int | float):
                raise RequestError(f"{name} must be a number", name)
            config_fields[field_name] = float(fields[name])
    for name, field_name in _INT_FIELDS.items():
        if name in fields:
            if not _is_int(fields[name]):
                raise RequestError(f"{name} must be a whole number", name)
            config_fields[field_name] = fields[name]
    config_fields["top_k"] = (
        0 if config_fields.get("top_k") == -1 else config_fields.get("top_k", 0)
    )  # -1 is another way to write: no limit
    for name in _BOOL_FIELDS:
        if not isinstance(fields.get(name, False), bool):
            raise RequestError(f"{name} must be true or false", name)
    options = fields.get("stream_options", {})
    if not isinstance(options, dict):
        raise RequestError("stream_options must be an object", "stream_options")
    config = GenerationConfig(stop=_parse_stop(fields.get("stop", [])), **config_fields)
    stream, log_probs, token_ids = (fields.get(name, False) for name in _BOOL_FIELDS)
    clip_max_tokens = not {"max_tokens", "max_completion_tokens"} & fields.keys()
    return CompletionRequest(
        fields["model"],
        prompt,
        config,
        clip_max_tokens,
        stream,
        log_probs,
        token_ids,
        bool(options.get("include_usage")),
    )


def _parse_stop(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOP_STRINGS or not all(isinstance(text, str) for text in stops):
        raise RequestError(f"stop must be a string, or a list of at most {MAX_STOP_STRINGS} strings", "stop")
    return tuple(stops)


def _parse_message(message: Any, i: int) -> dict[str, Any]:
    """A chat message with its content joined to a single text. Raises :class:`RequestError`."""
    location = f"messages[{i}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"{location} must be an object with a role", location)
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            raise RequestError(f"{location}.content: only parts of type text are supported", location)
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise RequestError(f"{location}.content must be a string, or a list of parts of type text", location)
    return message | {"content": content}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

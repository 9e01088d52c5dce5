"""Parsing of request bodies of the OpenAI API; unsupported fields are rejected by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.language.chat import Conversation, find_role_error
from thespis.language.engine import GenerationConfig, Prompt, RequestError
from thespis.language.json_constraint import schema_of
from thespis.language.local_engine import MAX_TOP_TOKENS

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
    "modalities": (["text"],),
    "echo": (False,),
    "suffix": ("",),
}
"""Unsupported fields that are accepted with these neutral values only."""
_HINTS = {
    "tools": "describe them in a message, and read calls from the text of the response",
}
"""What to do instead of using an unsupported field."""
_FLOAT_FIELDS = {"temperature": "temperature", "top_p": "top_p", "min_p": "min_p"}
_INT_FIELDS = {
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed",
    "n": "n",
}
_BOOL_FIELDS = ("stream", "return_token_ids")
_CHAT_FIELDS = ("messages", "logprobs", "top_logprobs")
_TEXT_FIELDS = ("prompt", "logprobs")
_MESSAGE_FIELDS = ("role", "content", "name", "tool_call_id")
MAX_STOP_STRINGS = 16
"""Maximum number of stop strings."""
MAX_PROMPTS = 128
"""Maximum number of prompts of a request."""


@dataclasses.dataclass(frozen=True)
class CompletionRequest:
    """A parsed request: model, prompts, generation settings, and what the response contains."""

    model: str
    prompts: tuple[Prompt | str, ...]
    config: GenerationConfig
    clip_max_tokens: bool = False
    """Whether the request has no limit of tokens, so that the default may be shortened to fit the context."""
    stream: bool = False
    return_log_probs: bool = False
    num_top_tokens: int = 0
    """How many of the most likely tokens are returned at each position, with their log-probabilities."""
    return_token_ids: bool = False
    include_usage: bool = False
    """Whether a stream ends with an event of token counts."""


def parse_chat_request(body: Any, default_max_tokens: int, max_length: int) -> CompletionRequest:
    """Parse a body of ``/v1/chat/completions``; ``default_max_tokens`` applies if it has no limit.

    ``max_length``: the model's context in tokens. Raises :class:`~thespis.language.engine.RequestError`.
    """
    fields = _check_fields(body, _CHAT_FIELDS)
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list that is not empty", "messages")
    _check_length(messages, max_length, "messages")
    messages = [_parse_message(message, i, max_length) for i, message in enumerate(messages)]
    if (error := find_role_error(messages)) is not None:
        raise RequestError(f"messages[{error[0]}] {error[1]}", f"messages[{error[0]}]")
    if messages[-1]["role"] == "assistant":
        location = f"messages[{len(messages) - 1}]"
        raise RequestError(f"{location} has the role assistant and is the last: end with a prompt", location)
    log_probs, num_top_tokens = fields.get("logprobs", False), fields.get("top_logprobs", 0)
    if not isinstance(log_probs, bool):
        raise RequestError("logprobs must be true or false", "logprobs")
    _check_num_top_tokens(num_top_tokens, "top_logprobs")
    if num_top_tokens and not log_probs:
        raise RequestError("top_logprobs needs logprobs: true", "top_logprobs")
    request = _parse_request(fields, (messages,), default_max_tokens)
    return dataclasses.replace(request, return_log_probs=log_probs, num_top_tokens=num_top_tokens)


def parse_text_request(body: Any, default_max_tokens: int, max_length: int) -> CompletionRequest:
    """Parse a body of ``/v1/completions``: one or several prompts, each as text or as tokens.

    ``max_length``: the model's context in tokens. Raises :class:`~thespis.language.engine.RequestError`.
    """
    fields = _check_fields(body, _TEXT_FIELDS)
    prompt, log_probs = fields["prompt"], fields.get("logprobs")
    prompts = prompt if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list) else [prompt]
    if len(prompts) > MAX_PROMPTS:
        raise RequestError(f"prompt must have at most {MAX_PROMPTS} entries, not {len(prompts)}", "prompt")
    if log_probs is not None:
        _check_num_top_tokens(log_probs, "logprobs")
    parsed = tuple(_parse_prompt(prompt, max_length) for prompt in prompts)
    request = _parse_request(fields, parsed, default_max_tokens)
    return dataclasses.replace(request, return_log_probs=log_probs is not None, num_top_tokens=log_probs or 0)


def _parse_prompt(prompt: Any, max_length: int) -> Prompt | str:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list):
        _check_length(prompt, max_length, "prompt")
    if not isinstance(prompt, list) or not prompt or not all(_is_int(i) and 0 <= i < 2**31 for i in prompt):
        raise RequestError("prompt must be a text, a list of tokens, or a list of these, and not empty", "prompt")
    return Conversation(tuple(prompt), (0,) * len(prompt))


def _check_length(items: list[Any], max_length: int, field: str) -> None:
    """Raise :class:`RequestError` for more messages, parts or tokens than the context has tokens."""
    if len(items) > max_length:
        raise RequestError(
            f"{field} has {len(items)} entries, which is more than this model's {max_length} tokens: shorten it",
            field,
            "context_length_exceeded",
        )


def _check_num_top_tokens(value: Any, name: str) -> None:
    if not _is_int(value) or not 0 <= value <= MAX_TOP_TOKENS:
        raise RequestError(f"{name} must be a whole number from 0 to {MAX_TOP_TOKENS}", name)


def _check_fields(body: Any, endpoint_fields: tuple[str, ...]) -> dict[str, Any]:
    """The fields that are not null. Raises :class:`RequestError` for unsupported or missing ones.

    ``endpoint_fields``: those of this endpoint alone, the required one first.
    """
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    fields = {name: value for name, value in body.items() if value is not None}
    allowed = {*_IGNORED_FIELDS, *_FLOAT_FIELDS, *_INT_FIELDS, *_BOOL_FIELDS, "stop", "response_format"}
    allowed |= {*endpoint_fields}
    for name, value in fields.items():
        if name not in allowed and value not in _NEUTRAL_VALUES.get(name, ()):
            hint = f": {_HINTS[name]}" if name in _HINTS else ""
            raise RequestError(f"{name[:80]} is not supported{hint}", name[:80])
    for name in ("model", endpoint_fields[0]):
        if name not in fields:
            raise RequestError(f"{name} is missing", name)
    if not isinstance(fields["model"], str):
        raise RequestError("model must be a string", "model")
    return fields


def _parse_request(
    fields: dict[str, Any], prompts: tuple[Prompt | str, ...], default_max_tokens: int
) -> CompletionRequest:
    """The request without the fields of one endpoint."""
    config_fields: dict[str, Any] = {"max_tokens": default_max_tokens}
    for name, field_name in _FLOAT_FIELDS.items():
        if name in fields:
            if isinstance(fields[name], bool) or not isinstance(fields[name], int | float):
                raise RequestError(f"{name} must be a number", name)
            try:
                config_fields[field_name] = float(fields[name])
            except OverflowError:
                raise RequestError(f"{name} is too large", name) from None
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
    schema = schema_of(fields.get("response_format", {"type": "text"}))
    config = GenerationConfig(stop=_parse_stop(fields.get("stop", [])), json_schema=schema, **config_fields)
    stream, token_ids = (fields.get(name, False) for name in _BOOL_FIELDS)
    clip_max_tokens = not {"max_tokens", "max_completion_tokens"} & fields.keys()
    return CompletionRequest(
        fields["model"],
        prompts,
        config,
        clip_max_tokens,
        stream,
        return_token_ids=token_ids,
        include_usage=bool(options.get("include_usage")),
    )


def _parse_stop(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOP_STRINGS or not all(isinstance(text, str) for text in stops):
        raise RequestError(f"stop must be a string, or a list of at most {MAX_STOP_STRINGS} strings", "stop")
    return tuple(stops)


def _parse_message(message: Any, i: int, max_length: int) -> dict[str, Any]:
    """A chat message with its content joined to a single text. Raises :class:`RequestError`."""
    location = f"messages[{i}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"{location} must be an object with a role", location)
    for name, value in message.items():
        if name not in _MESSAGE_FIELDS and value:  # clients send null or [] for what a message does not have
            raise RequestError(f"{location}.{name[:80]} is not supported", location)
        if name in ("name", "tool_call_id") and not isinstance(value, str | None):
            raise RequestError(f"{location}.{name} must be a string", location)
    content = message.get("content")
    if isinstance(content, list):
        _check_length(content, max_length, f"{location}.content")
        if not all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            raise RequestError(f"{location}.content: only parts of type text are supported", location)
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise RequestError(f"{location}.content must be a string, or a list of parts of type text", location)
    return {name: message[name] for name in _MESSAGE_FIELDS if message.get(name) is not None} | {"content": content}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

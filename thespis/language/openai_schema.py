"""JSON schema of OpenAI-compatible chat completions, encoding and decoding.

Besides the common fields: ``top_k``, ``min_p`` and ``return_token_ids`` in a request, ``token_ids`` in a choice, as in
vLLM and others.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from thespis.language.chat import Conversation
from thespis.language.engine import (
    Completion,
    CompletionChoice,
    CompletionChunk,
    GenerationConfig,
    Prompt,
    RequestError,
    Usage,
)

Json = Mapping[str, Any]


def request_body(prompt: Prompt, config: GenerationConfig, model: str, extra_body: Json) -> dict[str, Any]:
    """The body of a request; ``extra_body`` overrides its fields, and removes those that are ``None`` there."""
    messages = prompt.messages if isinstance(prompt, Conversation) else prompt
    if not messages:
        raise RequestError("there is nothing to answer: an endpoint needs messages", "messages")
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_tokens": config.max_tokens,
        "n": config.n,
        "seed": config.seed,
        "stop": list(config.stop) or None,
        "top_k": config.top_k or None,
        "min_p": config.min_p or None,
        "response_format": config.json_schema and response_format(config.json_schema),
    }
    return {name: value for name, value in (body | dict(extra_body)).items() if value is not None}


def response_format(schema: str) -> dict[str, Any]:
    """The ``response_format`` that asks for a document which a JSON schema allows."""
    return {"type": "json_schema", "json_schema": {"name": "response", "schema": json.loads(schema), "strict": True}}


def parse_completion(body: Json) -> Completion:
    """The completion of a response body. Raises ``ValueError`` if it is no chat completion."""
    try:
        choices = sorted(body["choices"], key=lambda choice: choice.get("index", 0))
        chunks = [_parse_choice(choice, choice["message"]) for choice in choices]
        parsed = tuple(
            CompletionChoice(chunk.text, chunk.finish_reason or "stop", chunk.tokens, chunk.log_probs)
            for chunk in chunks
        )
        return Completion(parsed, _parse_usage(body))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no chat completion ({type(error).__name__}: {error})") from None


def parse_chunks(event: Json) -> Iterator[CompletionChunk]:
    """The chunks of one event of a stream. Raises ``ValueError`` if it is no event of a chat completion."""
    try:
        for choice in event.get("choices") or ():
            yield _parse_choice(choice, choice.get("delta") or {})
        usage = _parse_usage(event)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no event of a chat completion ({type(error).__name__}: {error})") from None
    if usage is not None:
        yield CompletionChunk(usage=usage)


def _parse_choice(choice: Json, message: Json) -> CompletionChunk:
    content, token_ids = (choice.get("logprobs") or {}).get("content"), choice.get("token_ids")
    log_probs = None if content is None else tuple(float(entry["logprob"]) for entry in content)
    tokens = None if token_ids is None else tuple(int(i) for i in token_ids)
    return CompletionChunk(
        choice.get("index", 0), message.get("content") or "", tokens, log_probs, choice.get("finish_reason")
    )


def _parse_usage(body: Json) -> Usage | None:
    usage = body.get("usage")
    return None if usage is None else Usage(int(usage["prompt_tokens"]), int(usage.get("completion_tokens") or 0))


def usage_json(usage: Usage) -> dict[str, int]:
    """The ``usage`` field of a response, in tokens."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def log_probs_json(choice: CompletionChunk | CompletionChoice, decode_token: Callable[[int], str]) -> dict[str, Any]:
    """The ``logprobs`` field; ``decode_token`` gives the text of a token."""
    words = [decode_token(token) for token in choice.tokens or ()] or [""] * len(choice.log_probs or ())
    top = choice.top_log_probs or ((),) * len(words)
    content = [
        _token_json(word, log_prob) | {"top_logprobs": [_token_json(decode_token(t), p) for t, p in alternatives]}
        for word, log_prob, alternatives in zip(words, choice.log_probs or (), top, strict=True)
    ]
    return {"content": content, "refusal": None}


def text_log_probs_json(
    choice: CompletionChunk | CompletionChoice, decode_token: Callable[[int], str], start: int
) -> dict[str, Any]:
    """The ``logprobs`` field of a text completion; ``start``: number of characters of the tokens before."""
    words = [decode_token(token) for token in choice.tokens or ()]
    offsets = itertools.accumulate(map(len, words[:-1]), initial=start) if words else ()
    top = None
    if choice.top_log_probs is not None:  # the most likely first: it stays where two tokens have the same text
        top = [{decode_token(t): p for t, p in reversed(pairs)} for pairs in choice.top_log_probs]
    return {
        "tokens": words,
        "token_logprobs": list(choice.log_probs or ()),
        "top_logprobs": top,
        "text_offset": list(offsets),
    }


def _token_json(word: str, log_prob: float) -> dict[str, Any]:
    return {"token": word, "logprob": log_prob, "bytes": list(word.encode())}


def completion_json(completion: Completion) -> dict[str, Any]:
    """A response body with the completion."""
    choices = []
    for i, response in enumerate(completion.choices):
        choice: dict[str, Any] = {"index": i, "message": {"role": "assistant", "content": response.text}}
        choice["logprobs"] = None if response.log_probs is None else log_probs_json(response, lambda _: "")
        if response.tokens is not None:
            choice["token_ids"] = list(response.tokens)
        choices.append(choice | {"finish_reason": response.finish_reason})
    usage = {} if completion.usage is None else {"usage": usage_json(completion.usage)}
    return {"object": "chat.completion", "choices": choices, **usage}

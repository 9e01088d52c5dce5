"""The JSON of OpenAI-compatible chat completions, both ways.

Beside the common fields: ``top_k``, ``min_p`` and ``return_token_ids`` in a request, ``token_ids`` in a choice, as vLLM
and others have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from thespis.language.chat import Conversation
from thespis.language.engine import Answer, Piece, Refused, Reply, Request, Talk, Usage

Json = Mapping[str, Any]


def body_of(talk: Talk, request: Request, model: str, extra: Json) -> dict[str, Any]:
    """The body of a request; ``extra`` goes over it, and what is ``None`` there is left out."""
    messages = talk.messages if isinstance(talk, Conversation) else talk
    if not messages:
        raise Refused("there is nothing to answer: an endpoint needs messages", "messages")
    body: dict[str, Any] = {
        "model": model, "messages": [dict(message) for message in messages], "temperature": request.temperature,
        "top_p": request.top_p, "max_tokens": request.length, "n": request.n, "seed": request.seed,
        "stop": list(request.stop) or None, "top_k": request.top_k or None, "min_p": request.min_p or None,
    }  # fmt: skip
    return {name: value for name, value in (body | dict(extra)).items() if value is not None}


def answer_of(document: Json) -> Answer:
    """The answer that a response holds. Raises ``ValueError`` for what is no such response."""
    try:
        choices = sorted(document["choices"], key=lambda choice: choice.get("index", 0))
        pieces = [_piece(choice, choice["message"]) for choice in choices]
        replies = tuple(Reply(p.text, p.finish or "stop", p.tokens, p.log_probs) for p in pieces)
        return Answer(replies, _usage(document))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no chat completion ({type(error).__name__}: {error})") from None


def pieces_of(event: Json) -> Iterator[Piece]:
    """The parts of answers that one event of a stream holds. Raises ``ValueError`` for what is no such event."""
    try:
        for choice in event.get("choices") or ():
            yield _piece(choice, choice.get("delta") or {})
        usage = _usage(event)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no event of a chat completion ({type(error).__name__}: {error})") from None
    if usage is not None:
        yield Piece(usage=usage)


def _piece(choice: Json, said: Json) -> Piece:
    content, ids = (choice.get("logprobs") or {}).get("content"), choice.get("token_ids")
    logs = None if content is None else tuple(float(each["logprob"]) for each in content)
    tokens = None if ids is None else tuple(int(i) for i in ids)
    return Piece(choice.get("index", 0), said.get("content") or "", tokens, logs, choice.get("finish_reason"))


def _usage(document: Json) -> Usage | None:
    found = document.get("usage")
    return None if found is None else Usage(int(found["prompt_tokens"]), int(found.get("completion_tokens") or 0))


def usage_json(usage: Usage) -> dict[str, int]:
    """The field ``usage``."""
    return {"prompt_tokens": usage.prompt, "completion_tokens": usage.said, "total_tokens": usage.total}


def log_probs_json(piece: Piece | Reply, word: Callable[[int], str]) -> dict[str, Any]:
    """The field ``logprobs``; ``word`` names a token."""
    words = [word(token) for token in piece.tokens or ()] or [""] * len(piece.log_probs or ())
    content = [
        {"token": each, "logprob": log, "bytes": list(each.encode()), "top_logprobs": []}
        for each, log in zip(words, piece.log_probs or (), strict=True)
    ]
    return {"content": content, "refusal": None}


def document_of(answer: Answer) -> dict[str, Any]:
    """A response that holds the answer."""
    choices = []
    for i, reply in enumerate(answer.replies):
        choice: dict[str, Any] = {"index": i, "message": {"role": "assistant", "content": reply.text}}
        choice["logprobs"] = None if reply.log_probs is None else log_probs_json(reply, lambda _: "")
        if reply.tokens is not None:
            choice["token_ids"] = list(reply.tokens)
        choices.append(choice | {"finish_reason": reply.finish})
    usage = {} if answer.usage is None else {"usage": usage_json(answer.usage)}
    return {"object": "chat.completion", "choices": choices, **usage}

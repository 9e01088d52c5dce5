"""From the parts of an answer to the JSON of responses, whole or streamed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from thespis.language.engine import Piece, Reply, Usage
from thespis.language.tokens import Tokenizer
from thespis.language.wire import log_probs_json, usage_json
from thespis.serving.asked import Asked


class Shown:
    """The responses to one request, all of one id; ``chat``: chat completions, or else plain ones."""

    def __init__(self, asked: Asked, prompt: Sequence[int], tokenizer: Tokenizer, *, chat: bool):
        self.asked, self.chat, self._prompt, self._tokenizer = asked, chat, prompt, tokenizer
        kind = "chat.completion" if chat else "text_completion"
        self._kind = f"{kind}.chunk" if asked.stream and chat else kind
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._created, self._begun = int(time.time()), set[int]()

    def document(self, replies: Sequence[Reply], usage: Usage) -> dict[str, Any]:
        """The whole answer."""
        choices = []
        for i, reply in enumerate(replies):
            said = {"message": {"role": "assistant", "content": reply.text}} if self.chat else {"text": reply.text}
            choices.append({"index": i, **said, **self._details(reply), "finish_reason": reply.finish})
        asked = {"prompt_token_ids": list(self._prompt)} if self.asked.token_ids else {}
        return self._event(choices) | asked | {"usage": usage_json(usage)}

    def event(self, piece: Piece) -> dict[str, Any]:
        """A part of the answer."""
        delta: dict[str, Any] = {"content": piece.text} if piece.text or piece.finish is None else {}
        if piece.choice not in self._begun:
            self._begun.add(piece.choice)
            delta = {"role": "assistant", "content": piece.text}
        said = {"delta": delta} if self.chat else {"text": piece.text}
        return self._event([{"index": piece.choice, **said, **self._details(piece), "finish_reason": piece.finish}])

    def end(self, usage: Usage) -> dict[str, Any]:
        """The last event of a stream that is to say how many tokens there were."""
        return self._event([]) | {"usage": usage_json(usage)}

    def _event(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": self._id, "object": self._kind, "created": self._created, "model": self.asked.model}
        return about | {"choices": choices}

    def _details(self, said: Piece | Reply) -> dict[str, Any]:
        found: dict[str, Any] = {"logprobs": log_probs_json(said, self._word) if self.asked.log_probs else None}
        return found | ({"token_ids": list(said.tokens or ())} if self.asked.token_ids else {})

    def _word(self, token: int) -> str:
        return self._tokenizer.decode([token])

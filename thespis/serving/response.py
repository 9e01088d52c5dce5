"""Formatting of completions as JSON responses of the OpenAI API, whole or streamed."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from thespis.language.engine import CompletionChoice, CompletionChunk, Usage
from thespis.language.openai_schema import log_probs_json, text_log_probs_json, usage_json
from thespis.language.tokenizer import Tokenizer
from thespis.serving.request import CompletionRequest


class ResponseFormatter:
    """Formats the responses to one request, all with one id; ``is_chat``: chat or text completions.

    Choices are numbered through: those of the first prompt, those of the second, and so on.
    """

    def __init__(
        self, request: CompletionRequest, prompts: Sequence[Sequence[int]], tokenizer: Tokenizer, *, is_chat: bool
    ):
        self.request, self.is_chat, self._prompts, self._tokenizer = request, is_chat, prompts, tokenizer
        kind = "chat.completion" if is_chat else "text_completion"
        self._kind = f"{kind}.chunk" if request.stream and is_chat else kind
        self._id = f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._created, self._begun = int(time.time()), set[int]()
        self._num_characters = Counter[int]()  # of the tokens so far, by choice

    def completion_json(self, replies: Sequence[CompletionChoice], usage: Usage) -> dict[str, Any]:
        """The response with the whole completion."""
        choices = []
        for i, choice in enumerate(replies):
            text_field = (
                {"message": {"role": "assistant", "content": choice.text}} if self.is_chat else {"text": choice.text}
            )
            choices.append(
                {"index": i, **text_field, **self._token_fields(choice, i), "finish_reason": choice.finish_reason}
            )
        prompt_field = {}
        if self.request.return_token_ids and len(self._prompts) == 1:
            prompt_field = {"prompt_token_ids": list(self._prompts[0])}
        elif self.request.return_token_ids:
            for i, choice in enumerate(choices):
                choice["prompt_token_ids"] = list(self._prompts[i // self.request.config.n])
        return self._envelope(choices) | prompt_field | {"usage": usage_json(usage)}

    def chunk_json(self, prompt_index: int, chunk: CompletionChunk) -> dict[str, Any]:
        """A streamed chunk of the completion."""
        index = prompt_index * self.request.config.n + chunk.choice_index
        delta: dict[str, Any] = {"content": chunk.text} if chunk.text or chunk.finish_reason is None else {}
        if index not in self._begun:
            self._begun.add(index)
            delta = {"role": "assistant", "content": chunk.text}
        text_field = {"delta": delta} if self.is_chat else {"text": chunk.text}
        return self._envelope(
            [
                {
                    "index": index,
                    **text_field,
                    **self._token_fields(chunk, index),
                    "finish_reason": chunk.finish_reason,
                }
            ]
        )

    def usage_chunk_json(self, usage: Usage) -> dict[str, Any]:
        """The last event of a stream, with the token counts, where requested."""
        return self._envelope([]) | {"usage": usage_json(usage)}

    def _envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        header = {"id": self._id, "object": self._kind, "created": self._created, "model": self.request.model}
        return header | {"choices": choices}

    def _token_fields(self, choice: CompletionChunk | CompletionChoice, index: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"logprobs": None}
        if self.request.return_log_probs and self.is_chat:
            fields["logprobs"] = log_probs_json(choice, self._decode_token)
        elif self.request.return_log_probs:
            start = self._num_characters[index]
            fields["logprobs"] = text_log_probs_json(choice, self._decode_token, start)
            self._num_characters[index] += sum(map(len, fields["logprobs"]["tokens"]))
        return fields | ({"token_ids": list(choice.tokens or ())} if self.request.return_token_ids else {})

    def _decode_token(self, token: int) -> str:
        return self._tokenizer.decode([token])

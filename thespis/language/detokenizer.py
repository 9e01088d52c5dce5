"""Decoding of a response while it is generated: its stable text, its stop strings, and the reason why it ended."""

from __future__ import annotations

from collections.abc import Sequence

from thespis.language.engine import CompletionChunk, FinishReason, GenerationConfig, TokenLogProbs
from thespis.language.tokenizer import Tokenizer

_REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class IncrementalDetokenizer:
    """One response in progress: its tokens and log-probabilities so far, ``finish_reason`` once it has ended."""

    def __init__(self, tokenizer: Tokenizer, config: GenerationConfig, choice_index: int = 0):
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.finish_reason: FinishReason | None = None
        self._tokenizer, self._request, self._choice = tokenizer, config, choice_index
        self._given = ""

    def append(
        self, tokens: Sequence[int], log_probs: Sequence[float], top_log_probs: Sequence[TokenLogProbs] | None = None
    ) -> CompletionChunk:
        """Append sampled tokens, up to the end of the response; returns what they add."""
        num_old, num_left = len(self.tokens), self._request.max_tokens - len(self.tokens)
        end_indices = [i + 1 for i, token in enumerate(tokens) if token in self._tokenizer.stop_tokens]
        self.tokens += tokens[: min([num_left, *end_indices])]
        text = self._check_stop(num_old)
        new = tuple(self.tokens[num_old:])
        self.log_probs += [*log_probs[: len(new)]]
        top = None if top_log_probs is None else tuple(top_log_probs[: len(new)])
        stable = text if self.finish_reason is not None else self._stable_text(text)
        added, self._given = stable[len(self._given) :], self._given + stable[len(self._given) :]
        return CompletionChunk(
            self._choice, added, new, tuple(self.log_probs[num_old:]), self.finish_reason, top_log_probs=top
        )

    def _check_stop(self, before: int) -> str:
        """The text up to the first stop string; sets ``finish_reason`` and cuts the tokens if the response ends."""
        text = self._decode_prefix(len(self.tokens))
        if any(stop in text for stop in self._request.stop):
            end = next(
                n
                for n in range(before, len(self.tokens) + 1)
                if self._find_stop_string(self._decode_prefix(n)) is not None
            )
            del self.tokens[end:]
            self.finish_reason = "stop"
            text = self._decode_prefix(end)
            return text[: self._find_stop_string(text)]
        if self.tokens and self.tokens[-1] in self._tokenizer.stop_tokens:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self._request.max_tokens:
            self.finish_reason = "length"
        return text

    def _decode_prefix(self, count: int) -> str:
        return self._tokenizer.decode(self.tokens[:count], keep_special_tokens=False)

    def _find_stop_string(self, text: str) -> int | None:
        """The index of the first stop string in the text."""
        indices = [text.find(stop) for stop in self._request.stop if stop in text]
        return min(indices, default=None)

    def _stable_text(self, text: str) -> str:
        """The text without an incomplete character, and without what may be the beginning of a stop string."""
        text = text.rstrip(_REPLACEMENT_CHARACTER)
        longest = max((len(stop) for stop in self._request.stop), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._request.stop):
                return text[:-length]
        return text

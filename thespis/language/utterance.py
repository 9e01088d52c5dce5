"""The text of an utterance while its tokens come: what is settled, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from thespis.language.engine import Finish, Piece, Request
from thespis.language.tokens import Tokenizer

_HALF = "\N{REPLACEMENT CHARACTER}"


class Utterance:
    """One answer in the making: ``tokens`` and ``log_probs`` so far, and how it ended if it has."""

    def __init__(self, tokenizer: Tokenizer, request: Request, choice: int = 0):
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.finish: Finish | None = None
        self._tokenizer, self._request, self._choice = tokenizer, request, choice
        self._given = ""

    def heard(self, tokens: Sequence[int], log_probs: Sequence[float]) -> Piece:
        """What newly sampled tokens add; those after the end of the utterance are left out."""
        before, room = len(self.tokens), self._request.length - len(self.tokens)
        ends = [i + 1 for i, token in enumerate(tokens) if token in self._tokenizer.stop]
        self.tokens += tokens[: min([room, *ends])]
        text = self._ended(before)
        new = tuple(self.tokens[before:])
        self.log_probs += [*log_probs[: len(new)]]
        settled = text if self.finish is not None else self._settled(text)
        added, self._given = settled[len(self._given) :], self._given + settled[len(self._given) :]
        return Piece(self._choice, added, new, tuple(self.log_probs[before:]), self.finish)

    def _ended(self, before: int) -> str:
        """The text, up to where a string stops it; sets ``finish`` and cuts the tokens if this is the end."""
        text = self._text(len(self.tokens))
        if any(stop in text for stop in self._request.stop):
            end = next(n for n in range(before, len(self.tokens) + 1) if self._stops(self._text(n)) is not None)
            del self.tokens[end:]
            self.finish = "stop"
            text = self._text(end)
            return text[: self._stops(text)]
        if self.tokens and self.tokens[-1] in self._tokenizer.stop:
            self.finish = "stop"
        elif len(self.tokens) >= self._request.length:
            self.finish = "length"
        return text

    def _text(self, count: int) -> str:
        return self._tokenizer.decode(self.tokens[:count], special=False)

    def _stops(self, text: str) -> int | None:
        """Where the first string that stops begins."""
        found = [text.find(stop) for stop in self._request.stop if stop in text]
        return min(found, default=None)

    def _settled(self, text: str) -> str:
        """The text without half a character, and without what may be the beginning of a string that stops."""
        text = text.rstrip(_HALF)
        longest = max((len(stop) for stop in self._request.stop), default=1) - 1
        for held in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-held:]) for stop in self._request.stop):
                return text[:-held]
        return text

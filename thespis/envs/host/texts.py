"""Worlds of the user's own that are talked to in plain strings, as worlds of token ids.

A user writes three members: ``turns``, how many utterances an episode allows; ``reset(rng)``, which returns the first
message; ``step(said)``, which returns ``(answer, reward, over)``. With ``words``, all words that are spoken, it needs
no tokenizer; without them it is written as the actor's checkpoint writes. ``demonstrate()``, what one might say now, is
for those that show how it may be done.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View, time_step, view
from thespis.core.spaces import Text
from thespis.envs.host.scripts import Other, Script, Words

DEFAULTS = {"message": 64, "utterance": 16}
"""Ids of the longest message and utterance, where a world does not say."""


@runtime_checkable
class TextWorld(Protocol):
    """One conversation partner, in strings."""

    turns: int

    def reset(self, rng: np.random.Generator) -> str:
        """Begin an episode: the first message."""
        ...

    def step(self, said: str) -> tuple[str, float, bool]:
        """The answer, what the utterance earned, and whether the episode is over."""
        ...


@runtime_checkable
class Closed(Protocol):
    """A text world with a vocabulary of its own."""

    words: Any


@runtime_checkable
class Sized(Protocol):
    """A text world that says how many ids its longest message and an utterance have."""

    message: int
    utterance: int


class Texts:
    """``n`` text worlds behind the host contract. A world that raises, or takes longer than ``patience`` seconds for an
    answer, ends its episode without a reward; it is made anew, counted, and told of in :meth:`news`.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        n: int,
        name: str,
        patience: float = 60.0,
        script: Other = None,
    ):
        self._make, self._n, self._name, self._patience = make, n, name, patience
        self._partners = [_Partner(make()) for _ in range(n)]
        first = self._partners[0].world
        self._script = _script_of(first, name, script)
        sizes = (first.message, first.utterance) if isinstance(first, Sized) else tuple(DEFAULTS.values())
        self._message, self._utterance = sizes
        self._turns = int(self._partners[0].world.turns)
        self._talks: list[Any] = [self._script.begun] * n
        self._turn = np.zeros(n, int)
        self._rngs: list[np.random.Generator] = []
        self._errors: list[str] = []
        self._lost: list[int] = []

    @property
    def spec(self) -> EnvSpec:
        """Transcripts and utterances."""
        known, news = self._script.vocabulary, self._message + 1
        length = self._message + self._turns * (self._utterance + news)
        return EnvSpec(self._name, Text(length, known, news), Text(self._utterance, known), time_limit=self._turns)

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return self._n

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world; equal seeds begin alike."""
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        for i in range(self._n):
            self._begin(i)
        nothing, no = np.zeros(self._n, "float32"), np.zeros(self._n, bool)
        return time_step(self._seen(), nothing, no, no, None)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """What was said to each, and their answers."""
        said = [[int(i) for i in row if i >= 0] for row in np.asarray(actions)]
        for partner, ids in zip(self._partners, said, strict=True):
            partner.ask(self._script.text(ids))
        reward, over, failed = np.zeros(self._n, "float32"), np.zeros(self._n, bool), np.zeros(self._n, bool)
        for i, partner in enumerate(self._partners):
            self._talks[i] = self._script.said(self._talks[i], said[i])
            try:
                answer, reward[i], over[i] = partner.answer(self._patience)
            except Exception as error:
                failed[i] = True
                self._fail(i, error)
                continue
            if not over[i]:
                self._hear(i, answer)
        self._turn += 1
        over |= ~failed & (self._turn >= self._turns)  # turns can be counted in what is seen: it is no cut
        told = time_step(self._seen(), reward, over, failed, None)
        for i in np.flatnonzero(over | failed):
            self._begin(int(i))
        return told, view(self._seen(), None)

    def save(self) -> dict[str, Any] | None:
        """Not possible: what a user's world remembers is its own."""
        return None

    def load(self, saved: dict[str, Any]) -> None:
        """Never called, as nothing is saved."""

    def close(self) -> None:
        """Wait for nobody."""
        for partner in self._partners:
            partner.leave()

    def news(self) -> list[str]:
        """Episodes that failed since the last call, and messages that were cut, a line for each kind."""
        counted = {line: self._errors.count(line) for line in dict.fromkeys(self._errors)}
        told = [f"{count} episodes of {self._name} were cut: {line}" for line, count in counted.items()]
        if self._lost:
            most = max(self._lost)
            told.append(
                f"{len(self._lost)} messages of {self._name} were cut, the longest by {most} ids: give it "
                f"message = {self._message + most} or more"
            )
        self._errors, self._lost = [], []
        return told

    def demonstrated(self) -> list[list[int]]:
        """What each world would say now, as ids with the one that ends an utterance.

        Raises ``UserError`` for worlds that show nothing.
        """
        shown = []
        for partner in self._partners:
            if not isinstance(partner.world, Showing) or not isinstance(self._script, Words):
                raise UserError(f"{self._name} has no words or no demonstrate() to teach a tiny model by")
            words, known = partner.world.demonstrate(), self._script.vocabulary
            if strange := [word for word in words.split() if word not in known.words]:
                raise UserError(f"{self._name}: demonstrate() says {strange[0]!r}, which is none of its words")
            shown.append([*self._script.ids(words), *known.stop[:1]])
        return shown

    def _begin(self, i: int) -> None:
        self._talks[i], self._turn[i] = self._script.begun, 0
        try:
            message = str(self._partners[i].world.reset(self._rngs[i]))
        except Exception as error:
            raise UserError(f"{self._name} cannot begin an episode: {type(error).__name__}: {error}") from error
        self._hear(i, message)

    def _hear(self, i: int, message: str) -> None:
        self._talks[i], lost = self._script.heard(self._talks[i], message, self._message)
        if lost:
            self._lost.append(lost)

    def _seen(self) -> np.ndarray:
        """All conversations ``[row, length]``, padded with -1."""
        seen = np.full((self._n, self.spec.observation.length), -1, "int32")  # pyright: ignore
        for row, talk in zip(seen, self._talks, strict=True):
            row[: len(talk.tokens)] = talk.tokens
        return seen

    def _fail(self, i: int, error: BaseException) -> None:
        late = isinstance(error, queue.Empty)
        self._errors.append(f"no answer in {self._patience:g} s" if late else f"{type(error).__name__}: {error}")
        self._partners[i].leave()
        self._partners[i] = _Partner(self._make())


def _script_of(world: Any, name: str, other: Other) -> Script:
    """The script of whoever speaks, unless that speaks the world's words, or nobody is known who does."""
    own = Words(world.words) if isinstance(world, Closed) else None
    found = None if other is None else other(own.vocabulary.words if own else ())
    if found is None and own is None:
        raise UserError(
            f"{name} has no words of its own: give it `words`, all that are spoken in it, or a model that has a "
            "tokenizer (--model DIR)"
        )
    return found or own  # pyright: ignore


class _Partner:
    """A world and the thread that asks it: one that hangs is left behind, and does not keep the process from ending."""

    def __init__(self, world: Any):
        self.world = world
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, said: str) -> None:
        """Say something; the answer is fetched by :meth:`answer`."""
        self._said.put(said)

    def answer(self, patience: float) -> tuple[str, float, bool]:
        """What the world answered. Raises what it raised, or ``queue.Empty`` after ``patience`` seconds."""
        found = self._answers.get(timeout=patience)
        if isinstance(found, BaseException):
            raise found
        return found

    def leave(self) -> None:
        """No more questions."""
        self._said.put(None)

    def _listen(self) -> None:
        while (said := self._said.get()) is not None:
            try:
                answer, earned, over = self.world.step(said)
                self._answers.put((str(answer), float(earned), bool(over)))
            except Exception as error:
                self._answers.put(error)


@runtime_checkable
class Showing(Protocol):
    """A text world that shows how it may be done."""

    def demonstrate(self) -> str:
        """What one might say now."""
        ...

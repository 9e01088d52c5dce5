"""Compiled worlds that are talked to in turns: a :class:`Task` says what is heard, :class:`Spoken` keeps the record.

A turn is a step. What the agent sees is all that was said so far, as token ids in their order: nothing is forgotten, so
a step tells a critic or a replay all there is to know; what it does is one utterance. Ids that were said are never
written anew. Each message of the world ends with the word ``>``, which asks for an answer.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.goals import Goals
from thespis.core.keys import fold, key_of
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Text
from thespis.core.vocabulary import END, Vocabulary

ASK = ">"
"""The word that ends what the world says."""


@dataclasses.dataclass(frozen=True)
class Manners:
    """What is known of a task before it begins.

    ``turns``: utterances that an episode allows; ``utterance``: ids of one, the one that ends it included; ``opening``
    and ``answer``: ids of the longest first message of the world, and of those that follow; ``choices``: the utterances
    that mean something, without the word that ends them, where these are few.
    """

    name: str
    vocabulary: Vocabulary
    turns: int
    utterance: int
    opening: int
    answer: int
    choices: tuple[str, ...] = ()

    def id(self, word: str) -> int:
        """The id of a word."""
        return self.vocabulary.words.index(word)

    def ids(self, words: str) -> np.ndarray:
        """The ids of words with spaces between them."""
        return np.array([self.id(word) for word in words.split()], "int32")


class Heard(eqx.Module):
    """What the world answers, padded with -1 behind its end, what the utterance earned, and whether all is over."""

    answer: Int[Array, " answer"]
    reward: Float[Array, ""]
    over: Bool[Array, ""]


@runtime_checkable
class Task(Protocol):
    """Rules of a conversation: pure functions of one episode."""

    @property
    def manners(self) -> Manners:
        """Words and limits."""
        ...

    def begin(self, key: Key[Array, ""]) -> tuple[PyTree, Int[Array, " opening"]]:
        """A fresh state, and the first message."""
        ...

    def hear(self, state: PyTree, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[PyTree, Heard]:
        """What an utterance leads to."""
        ...

    def expert(self, state: PyTree, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """What a scripted demonstrator would say."""
        ...


@runtime_checkable
class Hides(Protocol):
    """A task that keeps from the actor what critics may know while it learns: an answer, a secret word."""

    def hidden(self, state: PyTree) -> Int[Array, " ids"]:
        """What is kept, as ids: always as many, none of them -1."""
        ...


@runtime_checkable
class Aims(Protocol):
    """A task that tells a goal, which could have been another."""

    @property
    def goals(self) -> Goals:
        """How its conversations are told again."""
        ...


class Talk(eqx.Module):
    """A conversation under way: where the task stands, all ids so far, and how many turns are over."""

    task: PyTree
    transcript: Int[Array, "*episodes time"]
    turn: Int[Array, "*episodes"]


class Spoken(eqx.Module):
    """A task as a world of one agent.

    Where critics are ``told``, what is privileged is the transcript behind the ids of what the task hides.
    """

    task: Task
    told: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """The transcript is seen, an utterance is done. Raises ``UserError`` if critics are to be told nothing."""
        told = self.task.manners
        more = told.answer + 1  # an utterance that was cut is ended by the world
        length, news = told.opening + told.turns * (told.utterance + more), max(told.opening, more)
        observation = Text(length, told.vocabulary, news)
        name = told.name + _changed(self.task)
        privileged = Text(self._secrets + length, told.vocabulary, news) if self.told else None
        listed = tuple(tuple(told.ids(f"{choice} {END}").tolist()) for choice in told.choices)
        said = Text(told.utterance, told.vocabulary, choices=listed)
        goals = self.task.goals if isinstance(self.task, Aims) else None
        return EnvSpec(name, observation, said, time_limit=told.turns, privileged=privileged, goals=goals)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Talk, TimeStep]:
        """A fresh conversation, with the world's first message."""
        state, message = self.task.begin(key)
        transcript = joined(jnp.full(self.spec.observation.length, -1, "int32"), message)  # pyright: ignore
        talk = Talk(state, transcript, jnp.zeros((), "int32"))
        no = jnp.zeros((), bool)
        return talk, TimeStep(transcript, jnp.zeros(()), no, no, privileged=self._privileged(talk))

    def step(self, state: Talk, action: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Talk, TimeStep]:
        """What is said, and the world's answer to it."""
        told = self.task.manners
        stop = jnp.array(told.vocabulary.stop)
        inner, heard = self.task.hear(state.task, action, fold(key, "task"))
        ended = (action[:, None] == stop).any()
        end = jnp.where(ended, -1, stop[:1])
        transcript = joined(joined(joined(state.transcript, action), end), heard.answer)
        turn, no = state.turn + 1, jnp.zeros((), bool)
        over = heard.over | (turn >= told.turns)  # turns can be counted in what is seen: nothing is to be hoped for
        talk = Talk(inner, transcript, turn)
        return talk, TimeStep(transcript, heard.reward, over, no, privileged=self._privileged(talk))

    def demonstrated(self, state: Talk, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """What the task's demonstrator says here."""
        return self.task.expert(state.task, key)

    def _privileged(self, talk: Talk) -> Int[Array, " time"] | None:
        if not self.told:
            return None
        assert isinstance(self.task, Hides)
        return jnp.concatenate([self.task.hidden(talk.task).astype("int32"), talk.transcript])

    @property
    def _secrets(self) -> int:
        """How many ids are hidden."""
        if not isinstance(self.task, Hides):
            raise UserError(f"{self.task.manners.name} hides nothing that critics could be told")
        hidden = self.task.hidden
        return jax.eval_shape(lambda: hidden(self.task.begin(key_of(0))[0])).shape[0]


def _changed(task: Any) -> str:
    """``(size=3)``: the fields of a task that are not as they are by default, so that it has a name of its own."""
    fields = dataclasses.fields(task)
    changed = [f"{f.name}={v!r}" for f in fields if (v := getattr(task, f.name)) is not f.default and v != f.default]
    return f"({', '.join(changed)})" if changed else ""


def joined(text: Int[Array, " time"], more: Int[Array, " more"]) -> Int[Array, " time"]:
    """``more`` behind the ids of ``text``; both are padded with -1, and what finds no room is lost."""
    place = jnp.arange(text.shape[0]) - (text >= 0).sum()
    added = jnp.where(place < more.shape[0], more[jnp.clip(place, 0, more.shape[0] - 1)], -1)
    return jnp.where(place < 0, text, added)


def message(width: int, *parts: Any) -> Int[Array, " width"]:
    """Ids one behind the other, padded to ``width``; those that are -1 are left out."""
    ids = jnp.concatenate([jnp.atleast_1d(jnp.asarray(part, "int32")) for part in parts])
    packed = ids[jnp.argsort(ids < 0, stable=True)]
    return jnp.pad(packed, (0, max(width - ids.shape[0], 0)), constant_values=-1)[:width]

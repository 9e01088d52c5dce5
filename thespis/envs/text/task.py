"""Compiled text environments: a :class:`Task` defines the messages, :class:`TextEnv` keeps the transcript.

A turn is a step. The observation is the whole transcript so far, as token ids in order: nothing is dropped, so a step
tells a critic or a replay buffer everything there is to know. The action is one response. Tokens of a response are
never re-tokenized. Each message of the environment ends with the word ``>``, which asks for a response.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import GoalRelabeler
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import END, Text, Vocabulary
from thespis.runtime.keys import fold, seed_key

RESPONSE_CUE = ">"
"""The word that ends every message of the environment."""


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """Static description of a task: its vocabulary, and limits of its messages and responses.

    ``max_turns``: responses that an episode allows. ``max_response_tokens``: tokens of one response, its end token
    included. ``max_opening_tokens`` and ``max_message_tokens``: tokens of the longest first message of the environment,
    and of those that follow. ``choices``: the valid responses, without the end token, where these are few.
    """

    name: str
    vocabulary: Vocabulary
    max_turns: int
    max_response_tokens: int
    max_opening_tokens: int
    max_message_tokens: int
    choices: tuple[str, ...] = ()

    def encode_word(self, word: str) -> int:
        """The token of a word."""
        return self.vocabulary.words.index(word)

    def encode(self, words: str) -> np.ndarray:
        """The tokens of words separated by spaces."""
        return np.array([self.encode_word(word) for word in words.split()], "int32")


class TaskStep(eqx.Module):
    """Result of one response: the next message, padded at its end with -1, the reward, and whether the episode ends."""

    message: Int[Array, " message"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


@runtime_checkable
class Task(Protocol):
    """Rules of a text task: pure functions of one episode."""

    @property
    def task_spec(self) -> TaskSpec:
        """Specification of the task: its vocabulary and limits."""
        ...

    def init(self, key: Key[Array, ""]) -> tuple[PyTree, Int[Array, " opening"]]:
        """An initial state and the first message."""
        ...

    def step(self, state: PyTree, response: Int[Array, " response"], key: Key[Array, ""]) -> tuple[PyTree, TaskStep]:
        """The next state and the result of a response."""
        ...

    def demonstrator_response(self, state: PyTree, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of a scripted demonstrator."""
        ...


@runtime_checkable
class HasHiddenTokens(Protocol):
    """Task with information that is hidden from the actor (a secret word) but available to critics in training."""

    def hidden_tokens(self, state: PyTree) -> Int[Array, " tokens"]:
        """The hidden information as tokens: always the same number of them, none of them -1."""
        ...


@runtime_checkable
class MarksSpans(Protocol):
    """Task that can mark the good and the bad spans of a response."""

    def span_marks(self, prompt: Int[Array, " length"], response: Int[Array, " response"]) -> Int[Array, " response"]:
        """The mark of each token, of which ``prompt``, padded with -1, is all that was said before.

        1 in a good span, -1 in a bad one, 0 elsewhere.
        """
        ...


@runtime_checkable
class GoalConditionedTask(Protocol):
    """Task whose observations name a goal, which hindsight relabeling can replace."""

    @property
    def goal_relabeler(self) -> GoalRelabeler:
        """How transcripts of this task are relabeled with another goal."""
        ...


class DialogueState(eqx.Module):
    """State of an episode: the state of the task, the transcript, and the number of finished turns."""

    task_state: PyTree
    transcript: Int[Array, "*episodes time"]
    turn: Int[Array, "*episodes"]


class TextEnv(eqx.Module):
    """Single-agent environment of a text task.

    With ``use_privileged``, the privileged observation of critics is the tokens that the task hides, followed by the
    transcript.
    """

    task: Task
    use_privileged: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Observations are transcripts, actions are responses. Raises ``UserError`` if there is nothing privileged."""
        spec = self.task.task_spec
        message_tokens = spec.max_message_tokens + 1  # the environment adds the end token to a response that was cut
        length, max_new_tokens = (
            spec.max_opening_tokens + spec.max_turns * (spec.max_response_tokens + message_tokens),
            max(spec.max_opening_tokens, message_tokens),
        )
        observation = Text(length, spec.vocabulary, max_new_tokens)
        name = spec.name + changed_fields(self.task)
        privileged = (
            Text(self._num_hidden_tokens + length, spec.vocabulary, max_new_tokens) if self.use_privileged else None
        )
        choices = tuple(tuple(spec.encode(f"{choice} {END}").tolist()) for choice in spec.choices)
        action = Text(spec.max_response_tokens, spec.vocabulary, choices=choices)
        goals = self.task.goal_relabeler if isinstance(self.task, GoalConditionedTask) else None
        return EnvSpec(
            name, observation, action, time_limit=spec.max_turns, privileged_space=privileged, goal_relabeler=goals
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[DialogueState, TimeStep]:
        """Start a conversation with the first message of the environment."""
        state, message = self.task.init(key)
        transcript = append_tokens(jnp.full(self.spec.observation_space.max_length, -1, "int32"), message)  # pyright: ignore
        dialogue = DialogueState(state, transcript, jnp.zeros((), "int32"))
        false = jnp.zeros((), bool)
        return dialogue, TimeStep(transcript, jnp.zeros(()), false, false, privileged=self._privileged(dialogue))

    def step(
        self, state: DialogueState, action: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DialogueState, TimeStep]:
        """Append a response and the answer of the environment to the transcript."""
        spec = self.task.task_spec
        stop = jnp.array(spec.vocabulary.eos_tokens)
        inner, outcome = self.task.step(state.task_state, action, fold(key, "task"))
        ended = (action[:, None] == stop).any()
        end = jnp.where(ended, -1, stop[:1])
        transcript = append_tokens(append_tokens(append_tokens(state.transcript, action), end), outcome.message)
        turn, false = state.turn + 1, jnp.zeros((), bool)
        # The number of turns can be counted in the observation: the end is a termination, without bootstrapping.
        over = outcome.terminated | (turn >= spec.max_turns)
        dialogue = DialogueState(inner, transcript, turn)
        return dialogue, TimeStep(transcript, outcome.reward, over, false, privileged=self._privileged(dialogue))

    def demonstrator_action(self, state: DialogueState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the task's demonstrator."""
        return self.task.demonstrator_response(state.task_state, key)

    def _privileged(self, talk: DialogueState) -> Int[Array, " time"] | None:
        if not self.use_privileged:
            return None
        assert isinstance(self.task, HasHiddenTokens)
        return jnp.concatenate([self.task.hidden_tokens(talk.task_state).astype("int32"), talk.transcript])

    @property
    def _num_hidden_tokens(self) -> int:
        """The number of hidden tokens."""
        if not isinstance(self.task, HasHiddenTokens):
            raise UserError(f"{self.task.task_spec.name} has no hidden information for critics")
        hidden = self.task.hidden_tokens
        return jax.eval_shape(lambda: hidden(self.task.init(seed_key(0))[0])).shape[0]


def changed_fields(task: Any, ignored: tuple[str, ...] = ()) -> str:
    """Fields of a task that differ from their defaults, e.g. ``(size=3)``: the suffix of the environment's name."""
    fields = [field for field in dataclasses.fields(task) if field.name not in ignored]
    changed = [f"{f.name}={v!r}" for f in fields if (v := getattr(task, f.name)) is not f.default and v != f.default]
    return f"({', '.join(changed)})" if changed else ""


def append_tokens(tokens: Int[Array, " time"], new_tokens: Int[Array, " new"]) -> Int[Array, " time"]:
    """Append ``new_tokens`` to ``tokens``; both are padded with -1, and what does not fit is dropped."""
    place = jnp.arange(tokens.shape[0]) - (tokens >= 0).sum()
    added = jnp.where(place < new_tokens.shape[0], new_tokens[jnp.clip(place, 0, new_tokens.shape[0] - 1)], -1)
    return jnp.where(place < 0, tokens, added)


def pack_tokens(length: int, *parts: Any) -> Int[Array, " length"]:
    """Concatenate tokens without those that are -1, padded or cut to ``length``."""
    tokens = jnp.concatenate([jnp.atleast_1d(jnp.asarray(part, "int32")) for part in parts])
    packed = tokens[jnp.argsort(tokens < 0, stable=True)]
    return jnp.pad(packed, (0, max(length - tokens.shape[0], 0)), constant_values=-1)[:length]


DIGITS = "0123456789"
"""Words of tasks with numbers, consecutive in the vocabulary: a digit's token is that of ``0`` plus its value."""


def cut_at_eos(
    task_spec: TaskSpec, response: Int[Array, " response"]
) -> tuple[Int[Array, " response"], Int[Array, ""]]:
    """Cut a response at its first end token: the tokens before it, padded with -1, and their number.

    Tokens after the end token are ignored, and a response without one counts as empty.
    """
    ends = (response[:, None] == jnp.array(task_spec.vocabulary.eos_tokens)).any(axis=-1)
    length = jnp.where(ends.any(), jnp.argmax(ends), 0)
    return jnp.where(jnp.arange(response.shape[0]) < length, response, -1), length


def number_to_tokens(value: Int[Array, ""], num_digits: int, zero_token: int) -> Int[Array, " digit"]:
    """Convert a number from 0 to ``10**num_digits - 1`` to the tokens of its digits; -1 in place of leading zeros."""
    powers = jnp.asarray(10 ** np.arange(num_digits - 1, -1, -1), "int32")
    return jnp.where((value >= powers) | (powers == 1), zero_token + value // powers % 10, -1)


def tokens_to_number(tokens: Int[Array, " n"], zero_token: int) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Parse a number, and whether the tokens are one: at least one digit, and nothing else.

    Tokens of -1 are skipped; leading zeros are allowed. At most nine digits fit.
    """
    digits = tokens - zero_token
    is_digit = (digits >= 0) & (digits < len(DIGITS))
    value = jnp.zeros((), "int32")
    for i in range(tokens.shape[0]):
        value = jnp.where(is_digit[i], 10 * value + digits[i], value)
    return value, is_digit.any() & (is_digit | (tokens < 0)).all()

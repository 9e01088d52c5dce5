"""Conversations of several seats: each reads its own transcript, and a schedule says who speaks.

:class:`Conversation` defines the rules, :class:`ConversationEnv` is the environment: a group of one agent for each
seat, of which one at a time is alive. A seat reads what was said to it and its own responses, nothing else. A
conversation of one seat is also an environment of one agent, :class:`SoloConversationEnv`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Text, Vocabulary, dict_space
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, append_tokens
from thespis.runtime.keys import fold


@dataclasses.dataclass(frozen=True)
class SeatSpec:
    """What a seat reads and writes: tokens of its first message, of the longest message after it, and of a response.

    At most one message reaches a seat between two of its turns.
    """

    name: str
    max_opening_tokens: int
    max_message_tokens: int
    max_response_tokens: int


@dataclasses.dataclass(frozen=True)
class ConversationSpec:
    """Static description of a conversation: its vocabulary, its seats, and who speaks in each turn, by name."""

    name: str
    vocabulary: Vocabulary
    seats: tuple[SeatSpec, ...]
    schedule: tuple[str, ...]

    def seat_index(self, name: str) -> int:
        """The index of a seat."""
        return [seat.name for seat in self.seats].index(name)


class ConversationStep(eqx.Module):
    """Result of a response: a message for each seat by name, padded with -1 (all -1: none), rewards, and the end."""

    messages: dict[str, Int[Array, " message"]]
    rewards: dict[str, Float[Array, ""]]
    terminated: Bool[Array, ""]


@runtime_checkable
class Conversation(Protocol):
    """Rules of a conversation of several seats: pure functions of one episode. The first seat's return is reported."""

    @property
    def conversation_spec(self) -> ConversationSpec:
        """Seats, schedule and limits."""
        ...

    def init(self, key: Key[Array, ""]) -> tuple[PyTree, dict[str, Int[Array, " opening"]]]:
        """An initial state, and the first message to each seat."""
        ...

    def step(
        self, state: PyTree, turn: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PyTree, ConversationStep]:
        """The next state and the result of the response of the seat that speaks in this turn."""
        ...

    def demonstrator_response(
        self, state: PyTree, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The scripted response in this turn."""
        ...


class EpisodeShare(eqx.Module):
    """Share of episodes, as far as one of them tells: whether it counts, and whether it is among those that could.

    In place of the episode it can be numbers of its steps: how many count, and among how many. Of many episodes,
    ``counts`` and ``among`` are numbers, too.
    """

    name: str = eqx.field(static=True)
    counts: Bool[Array, ""] | Int[Array, ""]
    among: Bool[Array, ""] | Int[Array, ""]


@runtime_checkable
class HasReportCard(Protocol):
    """Conversation that says what to report of its episodes besides returns."""

    def report_card(self, state: PyTree, rewards: dict[str, Float[Array, " turn"]]) -> tuple[EpisodeShare, ...]:
        """Shares to which an episode belongs, by its last state and the rewards of each seat in its turns."""
        ...


@runtime_checkable
class HasReportWarnings(Protocol):
    """Conversation that knows which numbers of its report card mean that something is wrong."""

    def report_warnings(self, shares: dict[str, float]) -> list[str]:
        """A sentence for each such finding, from means over seeds; a share of episodes that never occur is ``NaN``."""
        ...


class ConversationState(eqx.Module):
    """State of an episode: that of the rules, one transcript for each seat, and the number of finished turns."""

    inner: PyTree
    transcripts: dict[str, Int[Array, "*episodes time"]]
    turn: Int[Array, "*episodes"]


class ConversationEnv(eqx.Module):
    """Environment of a conversation: a group of one agent for each seat, of which one at a time is alive."""

    rules: Conversation

    @property
    def spec(self) -> EnvSpec:
        """Observations are the seats' transcripts, actions their responses."""
        spec = self.rules.conversation_spec
        observations, actions = {}, {}
        for seat in spec.seats:
            num_turns = spec.schedule.count(seat.name)
            length = seat.max_opening_tokens + num_turns * (seat.max_response_tokens + 1 + seat.max_message_tokens)
            max_new_tokens = seat.max_opening_tokens + seat.max_message_tokens + 1  # the end of a response that was cut
            observations[seat.name] = Text(length, spec.vocabulary, max_new_tokens)
            actions[seat.name] = Text(seat.max_response_tokens, spec.vocabulary)
        return EnvSpec(
            spec.name,
            dict_space(**observations),
            dict_space(**actions),
            time_limit=len(spec.schedule),
            groups=tuple(AgentGroup(seat.name, 1, spec.schedule.count(seat.name)) for seat in spec.seats),
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ConversationState, TimeStep]:
        """Start a conversation with the first messages."""
        inner, openings = self.rules.init(key)
        spaces: Any = self.spec.observation_space
        transcripts = {
            name: append_tokens(jnp.full(space.max_length, -1, "int32"), openings[name])
            for name, space in spaces.spaces
        }
        state = ConversationState(inner, transcripts, jnp.zeros((), "int32"))
        zero = jnp.zeros(())
        return state, self._time_step(state, {name: zero for name in transcripts}, jnp.zeros((), bool))

    def step(
        self, state: ConversationState, action: dict[str, Int[Array, "agent response"]], key: Key[Array, ""]
    ) -> tuple[ConversationState, TimeStep]:
        """Append the response of the seat whose turn it is, and the messages; responses of others are ignored."""
        spec = self.rules.conversation_spec
        speaker, stop = self._speaker(state.turn), jnp.array(spec.vocabulary.eos_tokens)
        width = max(seat.max_response_tokens for seat in spec.seats)
        responses = jnp.stack([pad_tokens(action[seat.name][0], width) for seat in spec.seats])
        response = responses[speaker]
        inner, result = self.rules.step(state.inner, state.turn, response, fold(key, "rules"))
        end = jnp.where((response[:, None] == stop).any(), -1, stop[:1])
        transcripts = {}
        for i, seat in enumerate(spec.seats):
            before = state.transcripts[seat.name]
            spoken = append_tokens(append_tokens(before, response), end)
            transcripts[seat.name] = append_tokens(jnp.where(speaker == i, spoken, before), result.messages[seat.name])
        turn = state.turn + 1
        next_state = ConversationState(inner, transcripts, turn)
        over = result.terminated | (turn >= len(spec.schedule))
        return next_state, self._time_step(next_state, result.rewards, over)

    def demonstrator_action(
        self, state: ConversationState, key: Key[Array, ""]
    ) -> dict[str, Int[Array, "agent response"]]:
        """The scripted response of the seat whose turn it is; none of the others."""
        spec, speaker = self.rules.conversation_spec, self._speaker(state.turn)
        response = self.rules.demonstrator_response(state.inner, state.turn, key)
        return {
            seat.name: jnp.where(speaker == i, pad_tokens(response, seat.max_response_tokens), -1)[None]
            for i, seat in enumerate(spec.seats)
        }

    def _speaker(self, turn: Int[Array, ""]) -> Int[Array, ""]:
        """Index of the seat that speaks in a turn."""
        spec = self.rules.conversation_spec
        schedule = jnp.asarray([spec.seat_index(name) for name in spec.schedule])
        return schedule[jnp.minimum(turn, len(spec.schedule) - 1)]

    def _time_step(self, state: ConversationState, rewards: dict[str, Any], over: Bool[Array, ""]) -> TimeStep:
        spec, speaker = self.rules.conversation_spec, self._speaker(state.turn)
        names = [seat.name for seat in spec.seats]
        return TimeStep(
            {name: state.transcripts[name][None] for name in names},
            rewards[names[0]],
            over,
            jnp.zeros((), bool),
            alive={name: ((speaker == i) & ~over)[None] for i, name in enumerate(names)},
            agent_outcomes={name: AgentOutcome(rewards[name][None], over[None]) for name in names},
        )


class SoloConversationEnv(eqx.Module):
    """Environment of a conversation of one seat, for methods of one agent: observations are its transcript.

    It is :class:`ConversationEnv` without groups of agents, so that a method needs no cast.
    """

    rules: Conversation

    def __check_init__(self):
        """Raise ``ValueError`` for several seats."""
        names = [seat.name for seat in self.rules.conversation_spec.seats]
        if len(names) > 1:
            raise ValueError(f"a conversation of {' and '.join(names)} needs a ConversationEnv and a Cast")

    @property
    def spec(self) -> EnvSpec:
        """Observations are the seat's transcript, actions its responses."""
        spec: Any = self._env.spec
        (_, observation), (_, action) = spec.observation_space.spaces[0], spec.action_space.spaces[0]
        return EnvSpec(spec.name, observation, action, time_limit=spec.time_limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ConversationState, TimeStep]:
        """Start a conversation with the first message."""
        state, step = self._env.reset(params, key)
        return state, self._without_groups(step)

    def step(
        self, state: ConversationState, action: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[ConversationState, TimeStep]:
        """Append the response and the message after it."""
        state, step = self._env.step(state, {self._name: action[None]}, key)
        return state, self._without_groups(step)

    def demonstrator_action(self, state: ConversationState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The scripted response in this turn."""
        return self._env.demonstrator_action(state, key)[self._name][0]

    @property
    def _env(self) -> ConversationEnv:
        return ConversationEnv(self.rules)

    @property
    def _name(self) -> str:
        return self.rules.conversation_spec.seats[0].name

    def _without_groups(self, step: TimeStep) -> TimeStep:
        return TimeStep(step.observation[self._name][0], step.reward, step.terminated, step.truncated)


def check_one_turn(task_spec: TaskSpec, purpose: str) -> None:
    """Raise ``ValueError`` for a task of several turns; ``purpose``: what needs one, ``only ... can be judged``."""
    if task_spec.max_turns != 1:
        raise ValueError(f"{task_spec.name} has up to {task_spec.max_turns} turns: only {purpose}")


def pad_tokens(tokens: Int[Array, " token"], length: int) -> Int[Array, " length"]:
    """Tokens cut or padded with -1 to a length."""
    return jnp.pad(tokens, (0, max(length - tokens.shape[0], 0)), constant_values=-1)[:length]


def without_cue(spec: TaskSpec, message: Int[Array, " message"]) -> Int[Array, " message"]:
    """A message without the word that asks for a response."""
    return jnp.where(message == spec.encode_word(RESPONSE_CUE), -1, message)

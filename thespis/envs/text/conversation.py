"""Conversations of several seats: each reads its own transcript, and a schedule says who speaks.

:class:`Conversation` defines the rules, :class:`ConversationEnv` is the environment: a group of one agent for each
seat, of which one at a time is alive. A seat reads what was said to it and its own responses, nothing else.

:class:`CritiqueConversation` makes a conversation of a task of one turn: a solver answers, a critic responds to the
answer, and the solver answers again.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Text, Vocabulary, dict_space
from thespis.envs.text.task import RESPONSE_CUE, Task, TaskSpec, append_tokens, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

SOLVER, CRITIC = "solver", "critic"


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
            groups=tuple(AgentGroup(seat.name, 1) for seat in spec.seats),
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


def pad_tokens(tokens: Int[Array, " token"], length: int) -> Int[Array, " length"]:
    """Tokens cut or padded with -1 to a length."""
    return jnp.pad(tokens, (0, max(length - tokens.shape[0], 0)), constant_values=-1)[:length]


@runtime_checkable
class CriticDemonstrator(Protocol):
    """Task of one turn whose demonstrator can also criticize an answer, and answer again after a critique."""

    def demonstrator_critique(
        self, state: PyTree, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """A critique of an answer, with its end token."""
        ...

    def demonstrator_revision(
        self, state: PyTree, answer: Int[Array, " response"], critique: Int[Array, " critique"], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The answer after a critique of the first one."""
        ...


class CritiqueConversationState(eqx.Module):
    """State of a conversation: that of the task, its first message, the first answer and its reward, the critique."""

    task_state: PyTree
    opening: Int[Array, "*episodes opening"]
    answer: Int[Array, "*episodes response"]
    answer_reward: Float[Array, "*episodes"]
    critique: Int[Array, "*episodes critique"]


class CritiqueConversation(eqx.Module):
    """Conversation of a solver and a critic: an answer to a task of one turn, a critique of it, and a second answer.

    The solver reads the task and the critique, the critic the task and the answer. The solver earns the reward of its
    second answer, and ``first_reward`` times that of the first. ``critic_reward``: the critic earns how much better the
    second answer is than the first (``improvement``), or its reward (``outcome``). ``max_critique_tokens``: tokens of a
    critique, its end token included.
    """

    task: Task
    critic_reward: Literal["improvement", "outcome"] = eqx.field(static=True, default="improvement")
    first_reward: float = 0.0
    max_critique_tokens: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns."""
        if self.task.task_spec.max_turns != 1:
            raise ValueError(
                f"{self.task.task_spec.name} has up to {self.task.task_spec.max_turns} turns: only the answer to a "
                "task of one turn can be criticized"
            )

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The words of the task, solver and critic."""
        spec = self.task.task_spec
        solver = SeatSpec(SOLVER, spec.max_opening_tokens, self.max_critique_tokens, spec.max_response_tokens)
        answer = spec.max_opening_tokens + spec.max_response_tokens
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        return ConversationSpec(
            f"text:critiqued-{spec.name.removeprefix('text:')}{settings}",
            spec.vocabulary,
            (solver, SeatSpec(CRITIC, 0, answer, self.max_critique_tokens)),
            (SOLVER, CRITIC, SOLVER),
        )

    def init(self, key: Key[Array, ""]) -> tuple[CritiqueConversationState, dict[str, Int[Array, " opening"]]]:
        """A task for the solver; the critic waits."""
        state, opening = self.task.init(key)
        critique = jnp.full(self.max_critique_tokens, -1, "int32")
        answer = jnp.full(self.task.task_spec.max_response_tokens, -1, "int32")
        openings = {SOLVER: opening, CRITIC: jnp.full(1, -1, "int32")}
        return CritiqueConversationState(state, opening.astype("int32"), answer, jnp.zeros(()), critique), openings

    def step(
        self,
        state: CritiqueConversationState,
        turn: Int[Array, ""],
        response: Int[Array, " response"],
        key: Key[Array, ""],
    ) -> tuple[CritiqueConversationState, ConversationStep]:
        """The answer goes to the critic, the critique to the solver; the second answer ends the episode."""
        spec = self.task.task_spec
        is_answer, is_critique, is_last = turn == 0, turn == 1, turn == 2
        answer = pad_tokens(response, spec.max_response_tokens)
        reward = self.task.step(state.task_state, answer, fold(key, "task"))[1].reward
        to_critic = pack_tokens(
            spec.max_opening_tokens + spec.max_response_tokens,
            without_cue(spec, state.opening),
            cut_at_eos(spec, answer)[0],
            spec.encode(RESPONSE_CUE),
        )
        critique = pad_tokens(response, self.max_critique_tokens)
        to_solver = pack_tokens(self.max_critique_tokens, cut_at_eos(spec, critique)[0], spec.encode(RESPONSE_CUE))
        messages = {
            SOLVER: jnp.where(is_critique, to_solver, -1).astype("int32"),
            CRITIC: jnp.where(is_answer, to_critic, -1).astype("int32"),
        }
        earned = jnp.where(is_last, reward, jnp.where(is_answer, self.first_reward * reward, 0.0))
        lift = reward - state.answer_reward if self.critic_reward == "improvement" else reward
        next_state = CritiqueConversationState(
            state.task_state,
            state.opening,
            jnp.where(is_answer, answer, state.answer),
            jnp.where(is_answer, reward, state.answer_reward),
            jnp.where(is_critique, critique, state.critique),
        )
        return next_state, ConversationStep(messages, {SOLVER: earned, CRITIC: jnp.where(is_last, lift, 0.0)}, is_last)

    def demonstrator_response(
        self, state: CritiqueConversationState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The task's demonstrator in all three turns. Raises ``UserError`` if it cannot criticize."""
        if not isinstance(self.task, CriticDemonstrator):
            raise UserError(
                f"the demonstrator of {self.task.task_spec.name} gives no critiques: --model blank or a checkpoint"
            )
        width = max(self.task.task_spec.max_response_tokens, self.max_critique_tokens)
        answer = self.task.demonstrator_response(state.task_state, fold(key, "answer"))
        critique = self.task.demonstrator_critique(state.task_state, state.answer, fold(key, "critique"))
        revision = self.task.demonstrator_revision(
            state.task_state, state.answer, state.critique, fold(key, "revision")
        )
        return jnp.stack([pad_tokens(tokens, width) for tokens in (answer, critique, revision)])[turn].astype("int32")


def without_cue(spec: TaskSpec, message: Int[Array, " message"]) -> Int[Array, " message"]:
    """A message without the word that asks for a response."""
    return jnp.where(message == spec.encode_word(RESPONSE_CUE), -1, message)

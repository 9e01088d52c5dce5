"""Conversation of a solver and a critic: an answer to a task of one turn, a critique of it, and a second answer."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.envs.text.conversation import (
    ConversationSpec,
    ConversationStep,
    EpisodeShare,
    SeatSpec,
    check_one_turn,
    pad_tokens,
    without_cue,
)
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

SOLVER, CRITIC = "solver", "critic"

RIGHT_BEFORE, RIGHT_AFTER, RIGHT_JUDGMENTS = (
    "right before the critique",
    "right after the critique",
    "judgments that are right",
)
MIN_RIGHT_JUDGMENTS, MAX_HARM = 0.4, 0.05
"""Share of right judgments below which a critic is said to lie, and what right answers critiques may cost."""


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


@runtime_checkable
class HasCritiqueJudgments(Protocol):
    """Task of one turn that can tell whether a critique calls an answer right or wrong."""

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of the answer: 1 that it is right, 0 that it is wrong, -1 if neither."""
        ...


@runtime_checkable
class HasErrorLocations(Protocol):
    """Task of one turn that knows where an answer goes wrong, and can tell whether a critique names the place."""

    def names_error(
        self, state: PyTree, answer: Int[Array, " response"], critique: Int[Array, " critique"]
    ) -> Bool[Array, ""]:
        """Whether a critique names the first error of an answer."""
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
    second answer, and ``first_reward`` times that of the first. The critic earns ``judgment_reward`` if it says rightly
    whether the first answer is right, which means a reward of at least 1, and ``refinement_reward`` times how much
    better the second answer is than the first (``critic_reward="improvement"``), or times its reward (``outcome``).

    ``first_answer``: who gives the first answer. That of the ``demonstrator`` is part of the initial state, so that
    critiques of a group are of the same answer, and the critic speaks first. ``max_critique_tokens``: tokens of a
    critique, its end token included.
    """

    task: Task
    critic_reward: Literal["improvement", "outcome"] = eqx.field(static=True, default="improvement")
    first_reward: float = 0.0
    max_critique_tokens: int = eqx.field(static=True, default=3)
    first_answer: Literal["solver", "demonstrator"] = eqx.field(static=True, default="solver")
    judgment_reward: float = 0.0
    refinement_reward: float = 1.0

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns, and for rewards of judgments that a task cannot read."""
        spec = self.task.task_spec
        check_one_turn(spec, "the answer to a task of one turn can be criticized")
        if not isinstance(self.task, HasCritiqueJudgments) and self.judgment_reward:
            raise ValueError(f"{spec.name} does not say what a critique's judgment is: judgment_reward=0")

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The words of the task, solver and critic."""
        spec = self.task.task_spec
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        answer = spec.max_opening_tokens + spec.max_response_tokens
        if self.first_answer == "solver":
            openings, message, schedule = (spec.max_opening_tokens, 0), answer, (SOLVER, CRITIC, SOLVER)
        else:
            openings, message, schedule = (answer + 1, answer), 0, (CRITIC, SOLVER)
        return ConversationSpec(
            f"text:critiqued-{spec.name.removeprefix('text:')}{settings}",
            spec.vocabulary,
            (
                SeatSpec(SOLVER, openings[0], self.max_critique_tokens, spec.max_response_tokens),
                SeatSpec(CRITIC, openings[1], message, self.max_critique_tokens),
            ),
            schedule,
        )

    def init(self, key: Key[Array, ""]) -> tuple[CritiqueConversationState, dict[str, Int[Array, " opening"]]]:
        """A task for the solver, and the critic waits; or a task and an answer for both."""
        task_state, opening = self.task.init(key)
        if self.first_answer == "demonstrator":
            answer = self.task.demonstrator_response(task_state, fold(key, "first answer"))
            return self.init_from_answer(task_state, opening, answer, fold(key, "first reward"))
        critique = jnp.full(self.max_critique_tokens, -1, "int32")
        answer = jnp.full(self.task.task_spec.max_response_tokens, -1, "int32")
        openings = {SOLVER: opening, CRITIC: jnp.full(1, -1, "int32")}
        return CritiqueConversationState(task_state, opening.astype("int32"), answer, jnp.zeros(()), critique), openings

    def init_from_answer(
        self,
        task_state: PyTree,
        opening: Int[Array, " opening"],
        answer: Int[Array, " response"],
        key: Key[Array, ""],
    ) -> tuple[CritiqueConversationState, dict[str, Int[Array, " _"]]]:
        """The state in which the critic is about to speak of an answer, and what both seats have read by then."""
        spec = self.task.task_spec
        stop = jnp.array(spec.vocabulary.eos_tokens)
        answer = pad_tokens(answer, spec.max_response_tokens)
        end = jnp.where((answer[:, None] == stop).any(), -1, stop[:1])
        to_solver = pack_tokens(spec.max_opening_tokens + spec.max_response_tokens + 1, opening, answer, end)
        reward = self.task.step(task_state, answer, key)[1].reward
        critique = jnp.full(self.max_critique_tokens, -1, "int32")
        state = CritiqueConversationState(task_state, opening.astype("int32"), answer, reward, critique)
        return state, {SOLVER: to_solver, CRITIC: self._to_critic(state.opening, answer)}

    def step(
        self,
        state: CritiqueConversationState,
        turn: Int[Array, ""],
        response: Int[Array, " response"],
        key: Key[Array, ""],
    ) -> tuple[CritiqueConversationState, ConversationStep]:
        """The answer goes to the critic, the critique to the solver; the second answer ends the episode."""
        spec = self.task.task_spec
        is_answer, is_critique, is_last = (self._turn(turn) == i for i in range(3))
        answer = pad_tokens(response, spec.max_response_tokens)
        reward = self.task.step(state.task_state, answer, fold(key, "task"))[1].reward
        critique = pad_tokens(response, self.max_critique_tokens)
        to_solver = pack_tokens(self.max_critique_tokens, cut_at_eos(spec, critique)[0], spec.encode(RESPONSE_CUE))
        messages = {
            SOLVER: jnp.where(is_critique, to_solver, -1).astype("int32"),
            CRITIC: jnp.where(is_answer, self._to_critic(state.opening, answer), -1).astype("int32"),
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
        judged = jnp.where(is_critique, self.judgment_reward * self.judges_rightly(next_state), 0.0)
        rewards = {SOLVER: earned, CRITIC: jnp.where(is_last, self.refinement_reward * lift, judged)}
        return next_state, ConversationStep(messages, rewards, is_last)

    def judges_rightly(self, state: CritiqueConversationState) -> Bool[Array, ""]:
        """Whether the critique says rightly that the first answer is right or wrong; false if it says neither."""
        if not isinstance(self.task, HasCritiqueJudgments):
            return jnp.zeros((), bool)
        return self.task.critique_judgment(state.critique) == (state.answer_reward >= 1.0).astype("int32")

    def report_card(
        self, state: CritiqueConversationState, rewards: dict[str, Float[Array, " turn"]]
    ) -> tuple[EpisodeShare, ...]:
        """What critiques repair and spoil; whether they find errors, where the task can read what they say."""
        task, always = self.task, jnp.ones((), bool)
        is_right, is_right_after = state.answer_reward >= 1.0, rewards[SOLVER][-1] >= 1.0
        shares = [
            EpisodeShare(RIGHT_BEFORE, is_right, always),
            EpisodeShare(RIGHT_AFTER, is_right_after, always),
            EpisodeShare("wrong answers repaired", is_right_after, ~is_right),
            EpisodeShare("right answers spoiled", ~is_right_after, is_right),
        ]
        if isinstance(task, HasCritiqueJudgments):
            calls_wrong = task.critique_judgment(state.critique) == 0
            shares += [
                EpisodeShare(RIGHT_JUDGMENTS, self.judges_rightly(state), always),
                EpisodeShare("wrong answers called wrong (recall)", calls_wrong, ~is_right),
                EpisodeShare("right answers called wrong (false alarms)", calls_wrong, is_right),
                EpisodeShare("answers called wrong that are (precision)", ~is_right, calls_wrong),
            ]
        if isinstance(task, HasErrorLocations):
            is_named = task.names_error(state.task_state, state.answer, state.critique)
            shares += [EpisodeShare("wrong answers whose first error is named", is_named, ~is_right)]
        return tuple(shares)

    def report_warnings(self, shares: dict[str, float]) -> list[str]:
        """That critiques do harm, or say the opposite of the truth."""
        before, after, judgments = shares[RIGHT_BEFORE], shares[RIGHT_AFTER], shares.get(RIGHT_JUDGMENTS, 1.0)
        warnings = []
        if judgments < MIN_RIGHT_JUDGMENTS:
            warnings += [f"The critic lies: {judgments:.0%} of its judgments are right, fewer than those of a coin."]
        if after < before - MAX_HARM:
            warnings += [
                f"Critiques do harm: {before:.0%} of the answers are right before them, and {after:.0%} after."
            ]
        return warnings

    def demonstrator_response(
        self, state: CritiqueConversationState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The task's demonstrator in all turns. Raises ``UserError`` if it cannot criticize."""
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
        responses = jnp.stack([pad_tokens(tokens, width) for tokens in (answer, critique, revision)])
        return responses[self._turn(turn)].astype("int32")

    def _turn(self, turn: Int[Array, ""]) -> Int[Array, ""]:
        """0 for the first answer, 1 for the critique, 2 for the second answer."""
        return turn if self.first_answer == "solver" else turn + 1

    def _to_critic(self, opening: Int[Array, " opening"], answer: Int[Array, " response"]) -> Int[Array, " message"]:
        """What the critic reads of a task and an answer."""
        spec = self.task.task_spec
        return pack_tokens(
            spec.max_opening_tokens + spec.max_response_tokens,
            without_cue(spec, opening),
            cut_at_eos(spec, answer)[0],
            spec.encode(RESPONSE_CUE),
        )

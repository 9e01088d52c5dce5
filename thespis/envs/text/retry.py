"""Second tries: an attempt, a reflection on it if it failed, and another attempt with the reflection in its context.

:class:`RetryConversation` makes a conversation of a task of one turn. The actor attempts the task. If that succeeds,
the episode ends. If not, the reflector reads the task, the attempt and what the task says of it, and writes a
reflection; the actor reads it and tries again. Both seats may also be one model, which reflects on its own attempt.
Further tries remember all that was said: reflections, or with ``memory="attempts"`` the failed attempts themselves.

Sources: Reflexion (Shinn et al., 2023) for the loop; Retroformer (Yao et al., 2023) for a frozen actor and a reflector
that is paid the gain of the next attempt; Reflect, Retry, Reward (Bensal et al., 2025) for one model.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
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
from thespis.envs.text.critique import CriticDemonstrator
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold, seed_key

ACTOR, REFLECTOR = "actor", "reflector"


@runtime_checkable
class HasAttemptFeedback(Protocol):
    """Task of one turn that says something of a failed attempt, which its first message did not say."""

    def attempt_feedback(self, state: PyTree, answer: Int[Array, " response"]) -> Int[Array, " feedback"]:
        """What is said of an attempt, padded with -1: always as many tokens."""
        ...


@runtime_checkable
class ReflectionDemonstrator(Protocol):
    """Task of one turn whose demonstrator reflects on all failed attempts, not on the last one alone."""

    def demonstrator_reflection(
        self, state: PyTree, answers: Int[Array, "attempt response"], key: Key[Array, ""]
    ) -> Int[Array, " reflection"]:
        """A reflection with its end token; ``answers``: the attempts so far, all -1 where there was none yet."""
        ...


class RetryState(eqx.Module):
    """State of a conversation: that of the task, its first message, attempts, the last reflection, and rewards."""

    task_state: PyTree
    opening: Int[Array, "*episodes opening"]
    answers: Int[Array, "*episodes attempt response"]
    """All attempts so far."""
    reflection: Int[Array, "*episodes reflection"]
    reward: Float[Array, "*episodes"]
    """Reward of the last attempt."""


class RetryConversation(eqx.Module):
    """Conversation of an actor and a reflector: attempts at a task of one turn, and reflections on those that failed.

    An attempt fails if its reward is less than ``success_reward``. The actor earns the reward of the last attempt.
    ``reflector_reward``: for each reflection the reflector earns how much better the next attempt is than the one
    before (``gain``), or its reward (``outcome``). ``num_retries``: attempts after the first one. With
    ``self_reflection`` there is one seat, which attempts and reflects, and earns as the actor. ``memory``: what the
    actor reads of its failures. With ``attempts`` nobody reflects: the actor is told what the task says of its attempt,
    and tries again at once. ``max_reflection_tokens``: tokens of a reflection, its end token included.
    """

    task: Task
    success_reward: float = 1.0
    reflector_reward: Literal["gain", "outcome"] = eqx.field(static=True, default="gain")
    num_retries: int = eqx.field(static=True, default=1)
    self_reflection: bool = eqx.field(static=True, default=False)
    max_reflection_tokens: int = eqx.field(static=True, default=3)
    memory: Literal["reflections", "attempts"] = eqx.field(static=True, default="reflections")

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns, or for no second attempt."""
        check_one_turn(self.task.task_spec, "a task of one turn can be tried again")
        if self.num_retries < 1:
            raise ValueError(f"num_retries={self.num_retries}: at least 1")

    @property
    def reflects(self) -> bool:
        """Whether there are reflections."""
        return self.memory == "reflections"

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The words of the task; actor and reflector, or the actor alone."""
        spec, feedback = self.task.task_spec, self._num_feedback_tokens
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        name = f"text:retried-{spec.name.removeprefix('text:')}{settings}"
        if not self.reflects:
            seats = (SeatSpec(ACTOR, spec.max_opening_tokens, feedback + 1, spec.max_response_tokens),)
            return ConversationSpec(name, spec.vocabulary, seats, (ACTOR,) * (1 + self.num_retries))
        if self.self_reflection:
            longest = max(spec.max_response_tokens, self.max_reflection_tokens)
            seats = (SeatSpec(ACTOR, spec.max_opening_tokens, feedback + 1, longest),)
            return ConversationSpec(name, spec.vocabulary, seats, (ACTOR,) * (1 + 2 * self.num_retries))
        seats = (
            SeatSpec(ACTOR, spec.max_opening_tokens, self.max_reflection_tokens, spec.max_response_tokens),
            SeatSpec(REFLECTOR, 0, self._num_report_tokens, self.max_reflection_tokens),
        )
        return ConversationSpec(name, spec.vocabulary, seats, (ACTOR, *(REFLECTOR, ACTOR) * self.num_retries))

    def init(self, key: Key[Array, ""]) -> tuple[RetryState, dict[str, Int[Array, " opening"]]]:
        """A task for the actor; the reflector waits."""
        spec = self.task.task_spec
        task_state, opening = self.task.init(key)
        state = RetryState(
            task_state,
            opening.astype("int32"),
            jnp.full((1 + self.num_retries, spec.max_response_tokens), -1, "int32"),
            jnp.full(self.max_reflection_tokens, -1, "int32"),
            jnp.zeros(()),
        )
        has_reflector = self.reflects and not self.self_reflection
        openings = {ACTOR: opening} | ({REFLECTOR: jnp.full(1, -1, "int32")} if has_reflector else {})
        return state, openings

    def step(
        self, state: RetryState, turn: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[RetryState, ConversationStep]:
        """A failed attempt goes to the reflector, a reflection to the actor; success or the last attempt ends."""
        spec, (attempt, is_attempt), is_first = self.task.task_spec, self._attempt(turn), turn == 0
        answer, reflection = (
            pad_tokens(response, spec.max_response_tokens),
            pad_tokens(response, self.max_reflection_tokens),
        )
        reward = self.task.step(state.task_state, answer, fold(key, "task"))[1].reward
        is_over = is_attempt & ((reward >= self.success_reward) | (attempt >= self.num_retries))
        next_state = RetryState(
            state.task_state,
            state.opening,
            jnp.where(is_attempt, state.answers.at[attempt].set(answer, mode="drop"), state.answers),
            jnp.where(is_attempt, state.reflection, reflection),
            jnp.where(is_attempt, reward, state.reward),
        )
        gain = reward - state.reward if self.reflector_reward == "gain" else reward
        rewards = {
            ACTOR: jnp.where(is_over, reward, 0.0),
            REFLECTOR: jnp.where(is_attempt & ~is_first, gain, 0.0),
        }
        messages = self._messages(state, answer, reflection, is_attempt, is_over)
        names = [seat.name for seat in self.conversation_spec.seats]
        return next_state, ConversationStep(
            {name: messages[name] for name in names}, {name: rewards[name] for name in names}, is_over
        )

    def _messages(
        self,
        state: RetryState,
        answer: Int[Array, " response"],
        reflection: Int[Array, " reflection"],
        is_attempt: Bool[Array, ""],
        is_over: Bool[Array, ""],
    ) -> dict[str, Int[Array, " message"]]:
        """The message to each seat after an attempt or a reflection."""
        spec = self.task.task_spec
        cue, feedback, expects_reflection = (
            spec.encode(RESPONSE_CUE),
            self._feedback(state.task_state, answer),
            is_attempt & ~is_over,
        )
        if self.self_reflection or not self.reflects:
            size = self._num_feedback_tokens + 1
            to_reflect, to_retry = pack_tokens(size, feedback, cue), pack_tokens(size, cue)
            message = jnp.where(expects_reflection, to_reflect, jnp.where(is_attempt, -1, to_retry))
            return {ACTOR: message.astype("int32")}
        report = pack_tokens(
            self._num_report_tokens, without_cue(spec, state.opening), cut_at_eos(spec, answer)[0], feedback, cue
        )
        hint = pack_tokens(self.max_reflection_tokens, cut_at_eos(spec, reflection)[0], cue)
        return {
            ACTOR: jnp.where(is_attempt, -1, hint).astype("int32"),
            REFLECTOR: jnp.where(expects_reflection, report, -1).astype("int32"),
        }

    def report_card(self, state: RetryState, rewards: dict[str, Float[Array, " turn"]]) -> tuple[EpisodeShare, ...]:
        """Which attempts succeed, and which of those that fail at first succeed later."""
        is_success, always = rewards[ACTOR] >= self.success_reward, jnp.ones((), bool)
        is_first = is_success[0]
        return (
            EpisodeShare("first attempts that succeed", is_first, always),
            EpisodeShare("failed ones that succeed after reflection", is_success.any(), ~is_first),
            EpisodeShare("episodes that succeed", is_success.any(), always),
        )

    def demonstrator_response(
        self, state: RetryState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The task's demonstrator in all turns, in both seats. Raises ``UserError`` if it cannot reflect.

        Where nobody reflects, it tries again as if it had.
        """
        spec = self.task.task_spec
        if not isinstance(self.task, CriticDemonstrator):
            raise UserError(f"the demonstrator of {spec.name} does not reflect: --model blank or a checkpoint")
        width = max(spec.max_response_tokens, self.max_reflection_tokens)
        attempt, is_attempt = self._attempt(turn)
        answer = state.answers[jnp.maximum(attempt - is_attempt, 0)]
        if isinstance(self.task, ReflectionDemonstrator):
            reflection = self.task.demonstrator_reflection(state.task_state, state.answers, fold(key, "reflection"))
        else:
            reflection = self.task.demonstrator_critique(state.task_state, answer, fold(key, "critique"))
        memory = state.reflection if self.reflects else reflection
        first = self.task.demonstrator_response(state.task_state, fold(key, "answer"))
        retry = self.task.demonstrator_revision(state.task_state, answer, memory, fold(key, "revision"))
        first, retry, reflection = (pad_tokens(tokens, width) for tokens in (first, retry, reflection))
        spoken = jnp.where(is_attempt, jnp.where(turn == 0, first, retry), reflection)
        return spoken.astype("int32")

    def _attempt(self, turn: Int[Array, ""]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The number of the attempt, from 0, that is made or reflected on in a turn; and whether it is made."""
        return (turn // 2, turn % 2 == 0) if self.reflects else (turn, turn >= 0)

    def _feedback(self, task_state: PyTree, answer: Int[Array, " response"]) -> Int[Array, " feedback"]:
        """What the task says of an attempt."""
        if not isinstance(self.task, HasAttemptFeedback):
            return jnp.zeros(0, "int32")
        return self.task.attempt_feedback(task_state, answer)

    @property
    def _num_feedback_tokens(self) -> int:
        """The number of tokens that the task says of an attempt."""
        answer = jnp.zeros(self.task.task_spec.max_response_tokens, "int32")
        return jax.eval_shape(lambda: self._feedback(self.task.init(seed_key(0))[0], answer)).shape[0]

    @property
    def _num_report_tokens(self) -> int:
        """Tokens of the longest message to the reflector: a task, an attempt, and what is said of it."""
        spec = self.task.task_spec
        return spec.max_opening_tokens + spec.max_response_tokens + self._num_feedback_tokens

r"""Dense rewards for text: feedbacks that reward single tokens of a response, beside the reward of the whole.

.. math:: r_t = w \, R \, \mathbb{1}[t = T] + e_t

:math:`R` is what the environment gives for the response, and :math:`e_t` what its token :math:`t` earns. The sum over
the response is the reward that any method sees. Methods with a value for each token
(:class:`~thespis.learners.language.advantage_estimators.TokenGAE`) also see which token earned what.

A subclass of :class:`TokenFeedback` says what tokens earn: a reward model of tokens, for instance. One of
:class:`SpanFeedback` marks spans as good or bad, and earnings follow from the marks.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, Metrics, Number, Rewards
from thespis.envs.registry import make_compiled
from thespis.envs.text.task import MarksSpans
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues, is_last_token
from thespis.objectives.statistics import masked_mean

GOOD, BAD = 1, -1
"""Marks of tokens; 0 is a token of no marked span."""
Payment = Literal["token", "span", "response"]


class TokenFeedback(TextFeedback):
    """Base of feedbacks for text that reward single tokens, beside what the environment gives for the response."""

    outcome_weight: Number = eqx.field(default=1.0, kw_only=True)
    """Weight of the environment's reward; with 0 tokens alone are rewarded, as in a sum of feedbacks."""

    @abc.abstractmethod
    def score_tokens(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row token"]:
        """What each token of a response earns; where there is no token it does not count."""

    def score_turns(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The weighted reward of the environment, and the sum of what tokens earn."""
        return self.outcome_weight * dialogues.reward + self._earned(state, dialogues, key).sum(axis=-1)

    def score(self, state: PyTree, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """Rewards of responses, and what part of them each token earns, also by an earlier feedback of a chain."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        earned = self._earned(state, dialogues, key)
        total = self.outcome_weight * dialogues.reward + earned.sum(axis=-1)
        if batch.steps.token_rewards is not None:
            earned += self.outcome_weight * jnp.where(dialogues.response_mask, batch.steps.token_rewards, 0.0)
        return Rewards(jnp.where(dialogues.alive, total, 0.0), tokens=earned)

    def _earned(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row token"]:
        return jnp.where(dialogues.response_mask, self.score_tokens(state, dialogues, key), 0.0)


class SpanFeedback(TokenFeedback):
    """Base of feedbacks for text that mark spans of responses as good or bad, and reward the tokens of each."""

    good_reward: Number = eqx.field(default=0.1, kw_only=True)
    """What a good token or span earns."""
    bad_reward: Number = eqx.field(default=-0.1, kw_only=True)
    """What a bad token or span earns; below 0 it costs."""
    payment: Payment = eqx.field(static=True, default="token", kw_only=True)
    """What is paid, and when: each token of a span, each span once and at its end (span), or each token of a span, but
    all at the end of the response (response): not dense any more."""
    max_outcome: Number = eqx.field(default=float("inf"), kw_only=True)
    """Responses with a larger reward of the environment are not marked: they are good enough."""

    @abc.abstractmethod
    def marks(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Int[Array, "time row token"]:
        """The mark of each token: 1 in a good span, -1 in a bad one, 0 elsewhere."""

    def score_tokens(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row token"]:
        """What the spans earn."""
        marks = jnp.where(dialogues.reward[..., None] <= self.max_outcome, self.marks(state, dialogues, key), 0)
        return span_rewards(marks, dialogues.response_mask, self.good_reward, self.bad_reward, self.payment)

    def learn(
        self, state: PyTree, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[PyTree, Metrics]:
        """The same state, and the shares of good and of bad tokens."""
        marks, mask = self.marks(state, dialogues, key), dialogues.response_mask
        shares = {"good": marks == GOOD, "bad": marks == BAD}
        return state, {name: masked_mean(share.astype("float32"), mask) for name, share in shares.items()}


def span_rewards(
    marks: Int[Array, "time row token"],
    mask: Bool[Array, "time row token"],
    good_reward: Number,
    bad_reward: Number,
    payment: Payment = "token",
) -> Float[Array, "time row token"]:
    """Rewards of tokens from the marks of spans; a span is a longest run of tokens of one mark, other than 0.

    See :attr:`SpanFeedback.payment`. ``mask``: where there are tokens; they come first in each response.
    """
    marks = jnp.where(mask, marks, 0)
    rewards = jnp.where(marks == GOOD, good_reward, jnp.where(marks == BAD, bad_reward, 0.0))
    following = jnp.pad(marks[..., 1:], ((0, 0), (0, 0), (0, 1)))
    if payment == "span":
        return jnp.where(marks != following, rewards, 0.0)
    if payment == "response":
        return jnp.where(is_last_token(mask), rewards.sum(axis=-1, keepdims=True), 0.0)
    return rewards


def mark_dialogues(task: MarksSpans, dialogues: Dialogues) -> Int[Array, "time row token"]:
    """The task's marks of all tokens of all responses; 0 where there is none."""

    def mark(turn: int) -> Int[Array, "row token"]:
        return jax.vmap(task.span_marks)(dialogues.text_before(turn), dialogues.responses[turn])

    marks = jnp.stack([mark(turn) for turn in range(len(dialogues.alive))])
    return jnp.where(dialogues.response_mask, marks, 0)


def marking_task(name: str, marking_env: str) -> Any:
    """The task of the environment that marks spans. Raises ``UserError`` if there is none, or it marks nothing."""
    if not marking_env:
        raise UserError(f"the feedback {name} needs marks of spans: set feedback.marking_env")
    env: Any = make_compiled(marking_env)
    if not isinstance(env.task, MarksSpans):
        raise UserError(f"{env.spec.name} marks no spans: its task needs span_marks(prompt, response)")
    return env.task


class ScriptedSpans(SpanFeedback):
    """Scripted span critic, for text: spans are marked by the rule of an environment's task, without any error."""

    marking_env: str = eqx.field(static=True, default="")
    """Environment whose task has ``span_marks(prompt, response)``."""

    name: ClassVar[str] = "scripted-spans"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def marks(self, state: PyTree, dialogues: Dialogues, key: Key[Array, ""]) -> Int[Array, "time row token"]:
        """The marks of the task. Raises ``UserError`` if no environment is named, or if it marks nothing."""
        return mark_dialogues(marking_task(self.name, self.marking_env), dialogues)

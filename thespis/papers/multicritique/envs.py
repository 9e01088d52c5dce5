"""Panel of critics with blind spots, lessons made of their critiques, and critiques that several revisers validate.

Lists of digits with a slip in one step (:mod:`thespis.papers.refcritic.envs`), and three critics. Each overlooks most
slips in certain steps, of which two critics share one. From the critiques of an answer a lesson is made: that of one
critic, or what remains of all of them after a judge has dropped those that it holds to be wrong.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END
from thespis.envs.text.conversation import ConversationEnv, ConversationStep, pad_tokens
from thespis.envs.text.critique import CRITIC, CritiqueConversation, CritiqueConversationState
from thespis.envs.text.derivation import noisy_verdict, write_verdict
from thespis.envs.text.task import pack_tokens
from thespis.papers.refcritic.envs import DigitList, Successors
from thespis.runtime.keys import fold, indexed_keys


class CriticPanel(Successors):
    """Successor task whose demonstrated critiques come from a panel of critics with blind spots.

    Critic ``i`` overlooks a share ``leniency`` of the errors in the steps ``blind_steps[i]``, and says ``right``; a
    share ``critic_noise`` of its verdicts is any. ``lessons``: what the demonstrated critique is made of. ``critic``:
    the verdict of the critic of that index; ``pool``: of a random one; ``vote``: the most frequent verdict;
    ``aggregate``: a judge says of each named step whether it is wrong, and errs in a share ``judge_noise``; what it
    drops is left out, and of the rest the most frequent step is named, or none if nothing is left. Ties go to the
    earliest step.
    """

    critic_noise: float = 0.15
    leniency: float = 0.8
    habit: float = 0.0
    lessons: Literal["critic", "pool", "vote", "aggregate"] = eqx.field(static=True, default="aggregate")
    critic: int = eqx.field(static=True, default=0)
    blind_steps: tuple[tuple[int, ...], ...] = eqx.field(static=True, default=((0,), (1,), (1, 2)))
    judge_noise: float = 0.2

    def verdicts(self, state: DigitList, answer: Int[Array, " response"], key: Key[Array, ""]) -> Int[Array, " critic"]:
        """The verdict of each critic: index of the step that it names, the number of steps for ``right``."""
        count, error = self.num_steps, self.first_error(state, answer)
        is_blind = jnp.asarray([[step in steps for step in range(count + 1)] for steps in self.blind_steps])

        def judge(is_blind: Bool[Array, " verdict"], key: Key[Array, ""]) -> Int[Array, ""]:
            overlooks = is_blind[error] & (jax.random.uniform(fold(key, "oversight")) < self.leniency)
            has_habit = jax.random.uniform(fold(key, "habit")) < self.habit
            located = jnp.where(has_habit & (error < count), 0, error)
            return noisy_verdict(jnp.where(overlooks, count, located), count, self.critic_noise, key)

        return jax.vmap(judge)(is_blind, indexed_keys(fold(key, "panel"), len(self.blind_steps)))

    def accepted(
        self, verdicts: Int[Array, " critic"], error: Int[Array, ""], key: Key[Array, ""]
    ) -> Bool[Array, " critic"]:
        """Whether the judge holds the step that a critic names to be wrong; false where none is named."""
        is_mistaken = jax.random.uniform(fold(key, "judge"), verdicts.shape) < self.judge_noise
        return (verdicts < self.num_steps) & ((verdicts == error) ^ is_mistaken)

    def demonstrator_critique(
        self, state: DigitList, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """The lesson of the panel."""
        spec, count = self.task_spec, self.num_steps
        verdicts = self.verdicts(state, answer, key)
        is_kept = jnp.ones(verdicts.shape, bool)
        if self.lessons == "aggregate":
            is_kept = self.accepted(verdicts, self.first_error(state, answer), key)
        elif self.lessons != "vote":
            any_critic = jax.random.randint(fold(key, "critic"), (), 0, len(verdicts))
            is_kept = jnp.arange(len(verdicts)) == (any_critic if self.lessons == "pool" else self.critic)
        verdict = most_frequent(verdicts, is_kept, count)
        return pack_tokens(3, write_verdict(spec, verdict, count), spec.encode(END))


def most_frequent(verdicts: Int[Array, " critic"], is_kept: Bool[Array, " critic"], num_steps: int) -> Int[Array, ""]:
    """The most frequent of the verdicts that are kept; the smallest of those that tie, ``num_steps`` if none is."""
    votes = (is_kept & (verdicts == jnp.arange(num_steps + 1)[:, None])).sum(axis=1)
    return jnp.where(is_kept.any(), jnp.argmax(votes), num_steps)


class ValidatedConversation(CritiqueConversation):
    """Conversation whose critic earns what its critique is worth to several revisers: the mean reward of revisions.

    Revisers are the task's demonstrator with the shares ``reviser_noises`` of random digits. The solver's second answer
    counts for the solver alone.
    """

    reviser_noises: tuple[float, ...] = eqx.field(static=True, default=(0.2, 0.4, 0.6))

    def step(
        self,
        state: CritiqueConversationState,
        turn: Int[Array, ""],
        response: Int[Array, " response"],
        key: Key[Array, ""],
    ) -> tuple[CritiqueConversationState, ConversationStep]:
        """The step of the conversation, with the mean of the revisions as reward of a critique."""
        next_state, step = super().step(state, turn, response, key)
        critique = pad_tokens(response, self.max_critique_tokens)
        rewards = []
        for i, noise in enumerate(self.reviser_noises):
            task = dataclasses.replace(self.task, revision_noise=noise)  # pyright: ignore[reportArgumentType]
            revision = task.demonstrator_revision(  # pyright: ignore[reportAttributeAccessIssue]
                state.task_state, state.answer, critique, fold(key, "reviser", i)
            )
            rewards.append(task.step(state.task_state, revision, key)[1].reward)
        earned = jnp.where(self._turn(turn) == 1, jnp.stack(rewards).mean(), 0.0)
        return next_state, dataclasses.replace(step, rewards=step.rewards | {CRITIC: earned})


def _conversation(task: Successors) -> ConversationEnv:
    """The conversation about a demonstrator's answer, of which the critic's turn is a lesson."""
    return ConversationEnv(CritiqueConversation(task, "outcome", first_answer="demonstrator"))


AGGREGATED, VOTED, POOLED = (_conversation(CriticPanel(lessons=x)) for x in ("aggregate", "vote", "pool"))
"""Lessons made of all critiques of an answer, with and without a judge, and of a random critic."""
FIRST_CRITIC = _conversation(CriticPanel(lessons="critic"))
"""Lessons of the first critic, which overlooks slips in the first step."""
VALIDATED = ConversationEnv(ValidatedConversation(Successors(), "outcome", first_answer="demonstrator"))
"""Critiques that earn the mean reward of three revisions."""
AGGREGATED_ENV, VOTED_ENV, POOLED_ENV, FIRST_CRITIC_ENV, VALIDATED_ENV = (
    f"{__name__}:{name}" for name in ("AGGREGATED", "VOTED", "POOLED", "FIRST_CRITIC", "VALIDATED")
)

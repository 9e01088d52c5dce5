"""Graded answers: what counts of an answer follows from the query, and a judge has to say it before it grades.

``2 1 >`` is a query of two digits, and ``3 1 4 <end>`` an answer with three qualities: its truth, its warmth and its
length, each a grade from 0 to 4. One of the three counts, and which one follows from the query: the sum of its digits
modulo 3. The reward is that grade, divided by the largest one.

A judge (:class:`~thespis.envs.text.judging.JudgedConversation`) reads the query and two answers. Its reasons are a
principle and a grade for each answer, ``warmth 1 warmth 3 second <end>``: what the answers are judged by, which nobody
tells it, and how good they are by that.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.judging import JudgedConversation, JudgedState
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold, indexed_keys

PRINCIPLES = ("truth", "warmth", "length")
"""Qualities of an answer, in their order in the text."""
HABIT = PRINCIPLES.index("length")
"""What teachers judge by out of habit."""
NUM_GRADES = 5


class GradedQuery(eqx.Module):
    """A query of two digits, and whether whoever judges answers to it does so out of habit."""

    digits: Int[Array, "*episodes 2"]
    is_habitual: Bool[Array, "*episodes"]


class GradedAnswers(eqx.Module):
    """Task of answers with three qualities, of which the query decides which one counts.

    ``base``: the number of digits in a query. The demonstrator's qualities are random. Its critique of an answer is a
    principle and the grade that the answer has by it. In a share ``habit`` of the episodes the principle is the length,
    whatever the query is, and a share ``grade_noise`` of the grades is random.
    """

    base: int = eqx.field(static=True, default=4)
    habit: float = 0.5
    grade_noise: float = 0.1

    @property
    def task_spec(self) -> TaskSpec:
        """Digits, and the words of the principles."""
        return TaskSpec(
            "text:graded-answers",
            word_vocabulary((RESPONSE_CUE, *PRINCIPLES, *DIGITS)),
            1,
            max_response_tokens=len(PRINCIPLES) + 1,
            max_opening_tokens=3,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[GradedQuery, Int[Array, " opening"]]:
        """A random query as the prompt."""
        spec = self.task_spec
        digits = jax.random.randint(fold(key, "digits"), (2,), 0, self.base)
        opening = pack_tokens(spec.max_opening_tokens, digits + spec.encode_word("0"), spec.encode(RESPONSE_CUE))
        return self.with_habit(GradedQuery(digits, jnp.zeros((), bool)), fold(key, "habit")), opening

    def with_habit(self, state: GradedQuery, key: Key[Array, ""]) -> GradedQuery:
        """The same query, judged out of habit or not anew."""
        return GradedQuery(state.digits, jax.random.uniform(key) < self.habit)

    def principle(self, state: GradedQuery) -> Int[Array, ""]:
        """Index of the quality that counts."""
        return state.digits.sum() % len(PRINCIPLES)

    def qualities(self, answer: Int[Array, " response"]) -> Int[Array, " principle"]:
        """The grades of an answer by each principle; -1 where there is none."""
        spec = self.task_spec
        grades = cut_at_eos(spec, answer)[0][: len(PRINCIPLES)] - spec.encode_word("0")
        return jnp.where((grades >= 0) & (grades < NUM_GRADES), grades, -1)

    def step(
        self, state: GradedQuery, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[GradedQuery, TaskStep]:
        """The end, with the grade that counts."""
        grade = jnp.maximum(self.qualities(response)[self.principle(state)], 0)
        reward = (grade / (NUM_GRADES - 1)).astype("float32")
        return state, TaskStep(-jnp.ones(1, "int32"), reward, jnp.ones((), bool))

    def demonstrator_response(self, state: GradedQuery, key: Key[Array, ""]) -> Int[Array, " response"]:
        """An answer whose qualities are random grades."""
        spec = self.task_spec
        grades = jax.random.randint(key, (len(PRINCIPLES),), 0, NUM_GRADES)
        return pack_tokens(spec.max_response_tokens, grades + spec.encode_word("0"), spec.encode(END))

    def demonstrator_critique(
        self, state: GradedQuery, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """A principle, and the answer's grade by it."""
        spec = self.task_spec
        named = jnp.where(state.is_habitual, HABIT, self.principle(state))
        is_random = jax.random.uniform(fold(key, "wander")) < self.grade_noise
        random_grade = jax.random.randint(fold(key, "grade"), (), 0, NUM_GRADES)
        grade = jnp.where(is_random, random_grade, jnp.maximum(self.qualities(answer)[named], 0))
        words = jnp.stack([named + spec.encode_word(PRINCIPLES[0]), grade + spec.encode_word("0")])
        return pack_tokens(3, words, spec.encode(END))

    def demonstrator_revision(
        self,
        state: GradedQuery,
        answer: Int[Array, " response"],
        critique: Int[Array, " critique"],
        key: Key[Array, ""],
    ) -> Int[Array, " response"]:
        """The answer with the best grade by the principle that the critique names."""
        spec = self.task_spec
        is_named = jnp.arange(len(PRINCIPLES)) == self.named_principle(critique)
        grades = jnp.where(is_named, NUM_GRADES - 1, jnp.maximum(self.qualities(answer), 0))
        return pack_tokens(spec.max_response_tokens, grades + spec.encode_word("0"), spec.encode(END))

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """The grade that a critique gives; -1 if it is none."""
        spec = self.task_spec
        words, length = cut_at_eos(spec, critique)
        grade = words[1] - spec.encode_word("0")
        is_graded = (length == 2) & (self.named_principle(critique) >= 0) & (grade >= 0) & (grade < NUM_GRADES)
        return jnp.where(is_graded, grade, -1)

    def named_principle(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """Index of the principle that the first word names; -1 for none."""
        index = critique[0] - self.task_spec.encode_word(PRINCIPLES[0])
        return jnp.where((index >= 0) & (index < len(PRINCIPLES)), index, -1)


class RejectiveLessons(JudgedConversation):
    """Conversation with a judge whose demonstrated judgments were sampled several times, and wrong ones rejected.

    Of ``num_samples`` judgments of the teacher the first is demonstrated whose verdict is right, whatever its reasons
    are (rejective fine-tuning); of the direct judge's lessons too. The task is :class:`GradedAnswers`.
    """

    num_samples: int = eqx.field(static=True, default=3)

    def demonstrator_response(
        self, state: JudgedState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The first judgment with a right verdict."""
        task = self.task
        assert isinstance(task, GradedAnswers)

        def sample(key: Key[Array, ""]) -> tuple[Int[Array, " response"], Bool[Array, ""]]:
            query = task.with_habit(state.task_state, fold(key, "habit"))
            sampled = dataclasses.replace(state, task_state=query)
            judgment = super(RejectiveLessons, self).demonstrator_response(sampled, turn, fold(key, "judgment"))
            return judgment, self.is_right(dataclasses.replace(sampled, verdict=self.read_verdict(judgment)))

        judgments, is_right = jax.vmap(sample)(indexed_keys(key, self.num_samples))
        return judgments[jnp.argmax(is_right)]

"""Tasks of one turn written in spans, a few words per turn, so that a critic can read each span before the next.

``food was stale >`` is answered by ``room was clean and <end>``, then ``> staff was rude and <end>``, and so on. A span
that is shorter than the others ends the text, and the whole text earns what it earns in the task. In a conversation
with a critic of actions (:class:`~thespis.envs.text.pre_act.PreActConversation`) each span is criticized, ``yes <end>``
or ``no <end>``, before the next one builds on it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.commands import APPROVAL, OBJECTION, approval_judgment
from thespis.envs.text.conversation import check_one_turn
from thespis.envs.text.judging import NUM_CANDIDATES
from thespis.envs.text.task import (
    RESPONSE_CUE,
    MarksSpans,
    Task,
    TaskSpec,
    TaskStep,
    changed_fields,
    cut_at_eos,
    pack_tokens,
)
from thespis.runtime.keys import fold, indexed_keys


class SpanwiseState(eqx.Module):
    """State of a text: that of the task, its prompt, the words so far, and the text that the demonstrator writes."""

    task_state: PyTree
    prompt: Int[Array, "*episodes opening"]
    written: Int[Array, "*episodes response"]
    demonstration: Int[Array, "*episodes response"]


class SpanwiseTask(eqx.Module):
    """Task of one turn whose response is written in spans of ``span_words`` words, one per turn.

    A span is right if the task marks none of its words as bad. The demonstrator writes the spans of one text of the
    task's demonstrator, and after an objection the same span of the least bad of several others. ``critic_noise``: the
    share of its critiques that are random.
    """

    task: Task
    span_words: int = eqx.field(static=True, default=4)
    critic_noise: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` for a task of several turns or without marks, and for spans without words."""
        check_one_turn(self.task.task_spec, "responses of a task of one turn can be written in spans")
        if not isinstance(self.task, MarksSpans):
            raise ValueError(f"{self.task.task_spec.name} marks no spans: it needs span_marks(prompt, response)")
        if self.span_words < 1:
            raise ValueError(f"span_words={self.span_words}: at least 1")

    @property
    def task_spec(self) -> TaskSpec:
        """The words of the task and those of critiques, and as many turns as the longest response has spans."""
        spec = self.task.task_spec
        words = [word for word in (APPROVAL, OBJECTION) if word not in spec.vocabulary.words]
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        return TaskSpec(
            f"text:spanwise-{spec.name.removeprefix('text:')}{settings}",
            word_vocabulary([*spec.vocabulary.words[3:], *words]),  # the first three are special
            -(-(spec.max_response_tokens - 1) // self.span_words),
            max_response_tokens=self.span_words + 1,
            max_opening_tokens=spec.max_opening_tokens,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[SpanwiseState, Int[Array, " opening"]]:
        """The first message of the task, and no words."""
        spec = self.task.task_spec
        task_state, opening = self.task.init(fold(key, "task"))
        demonstration = self.task.demonstrator_response(task_state, fold(key, "demonstration"))
        prompt = pack_tokens(spec.max_opening_tokens, opening)
        empty = jnp.full(spec.max_response_tokens, -1, "int32")
        words = pack_tokens(spec.max_response_tokens, cut_at_eos(spec, demonstration)[0])
        return SpanwiseState(task_state, prompt, empty, words), prompt

    def step(
        self, state: SpanwiseState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[SpanwiseState, TaskStep]:
        """The text with one more span; after the last one its end, and the task's reward."""
        spec = self.task.task_spec
        words, length = cut_at_eos(self.task_spec, response)
        written = self._append(state, words)
        is_last = (length < self.span_words) | ((written >= 0).sum() >= spec.max_response_tokens - 1)
        whole = pack_tokens(spec.max_response_tokens, written[:-1], spec.encode(END))
        _, outcome = self.task.step(state.task_state, whole, key)
        message = jnp.where(is_last, -1, self.task_spec.encode(RESPONSE_CUE))
        next_state = SpanwiseState(state.task_state, state.prompt, written, state.demonstration)
        return next_state, TaskStep(message, jnp.where(is_last, outcome.reward, 0.0), is_last)

    def is_right_action(self, state: SpanwiseState, response: Int[Array, " response"]) -> Bool[Array, ""]:
        """Whether none of a span's words are marked as bad."""
        return self._num_bad(state, cut_at_eos(self.task_spec, response)[0]) == 0

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of a span: 1 that it is right, 0 that it is wrong, -1 if neither."""
        return approval_judgment(self.task_spec, critique)

    def demonstrator_response(self, state: SpanwiseState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The next span of the demonstrator's text."""
        return self._span_of(state, state.demonstration)

    def demonstrator_critique(
        self, state: SpanwiseState, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """Approval of a right span, or an objection; at times random."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "noise")) < self.critic_noise
        is_approval = jnp.where(
            is_noise, jax.random.bernoulli(fold(key, "verdict")), self.is_right_action(state, answer)
        )
        verdict = jnp.where(is_approval, spec.encode_word(APPROVAL), spec.encode_word(OBJECTION))
        return pack_tokens(2, verdict, spec.encode(END))

    def demonstrator_revision(
        self,
        state: SpanwiseState,
        answer: Int[Array, " response"],
        critique: Int[Array, " critique"],
        key: Key[Array, ""],
    ) -> Int[Array, " response"]:
        """The same span of the least bad of several texts of the task's demonstrator."""
        spec = self.task.task_spec

        def candidate(key: Key[Array, ""]) -> tuple[Array, Array]:
            text = self.task.demonstrator_response(state.task_state, key)
            span = self._span_of(state, pack_tokens(spec.max_response_tokens, cut_at_eos(spec, text)[0]))
            return span, self._num_bad(state, cut_at_eos(self.task_spec, span)[0])

        spans, num_bad = jax.vmap(candidate)(indexed_keys(fold(key, "texts"), NUM_CANDIDATES))
        return spans[jnp.argmin(num_bad)]

    def _append(self, state: SpanwiseState, words: Int[Array, " response"]) -> Int[Array, " text"]:
        """The text with more words; there is always room for its end token."""
        size = self.task.task_spec.max_response_tokens
        return pack_tokens(size, pack_tokens(size - 1, state.written, words))

    def _num_bad(self, state: SpanwiseState, words: Int[Array, " response"]) -> Int[Array, ""]:
        """How many of a span's words are marked as bad."""
        task, written = self.task, self._append(state, words)
        assert isinstance(task, MarksSpans)
        is_new = jnp.arange(written.shape[0]) >= (state.written >= 0).sum()
        return (is_new & (task.span_marks(state.prompt, written) < 0)).sum()

    def _span_of(self, state: SpanwiseState, text: Int[Array, " text"]) -> Int[Array, " response"]:
        """The next span of a text, after as many words as are written."""
        start, size = (state.written >= 0).sum(), self.span_words
        padded = jnp.pad(text, (0, size), constant_values=-1)
        return pack_tokens(size + 1, jax.lax.dynamic_slice(padded, (start,), (size,)), self.task_spec.encode(END))

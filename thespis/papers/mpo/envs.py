r"""Writing that is judged by a rubric: what a text is worth, and checks that a rubric may give points for.

The prompt is that of :class:`~thespis.envs.text.writing.Writing` about one topic and without a reader. A text is worth
its grammar, times the mean of topic, variety, length and warmth, each in [0, 1]. A rubric has no access to that: it
gives points for checks, each of which can be met by texts that are worth little.

- sentences: the share of sentences that are sentences;
- topic: the share of nouns that belong to the topic;
- mentions: the number of nouns of the topic, 1 for four of them or more, which no text of right sentences has;
- variety: the share of nouns, adjectives, verbs and adverbs that have not occurred before;
- length: 0 for one right sentence, 1 for ``max_sentences`` of them;
- words: the number of words, 1 for the most that a text can have;
- adjectives: the share of the words that are adjectives, doubled;
- adverbs: that of adverbs, doubled;
- warmth: warm adjectives rather than cold ones, 1/2 where there are none.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.envs.text.task import RESPONSE_CUE, TaskStep, TextEnv, cut_at_eos
from thespis.envs.text.writing import ADVERBS, COLD, NOUNS, TOPICS, WARM, Grades, Writing, WritingState

_TOPIC = "sea"
_TOPIC_PLACE = 2
"""Place of the topic in a prompt."""
_NOUNS_PER_TOPIC = len(NOUNS) // len(TOPICS)
_MOST_MENTIONS = 4
"""Nouns of the topic for which there are all points."""


class RubricWriting(Writing):
    """Writing task about one topic whose texts can be checked by items of a rubric, and have a worth of their own."""

    shows_reader: bool = eqx.field(static=True, default=False)

    check_names: ClassVar[tuple[str, ...]] = (
        "sentences",
        "topic",
        "mentions",
        "variety",
        "length",
        "words",
        "adjectives",
        "adverbs",
        "warmth",
    )

    def init(self, key: Key[Array, ""]) -> tuple[WritingState, Int[Array, " opening"]]:
        """The prompt, which is always the same."""
        topic = jnp.asarray(tuple(TOPICS).index(_TOPIC))
        opening = self.task_spec.encode(f"write about {_TOPIC} {RESPONSE_CUE}")
        return WritingState(topic, jnp.zeros_like(topic)), jnp.asarray(opening)

    def step(
        self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WritingState, TaskStep]:
        """What the text is worth; the episode ends."""
        return state, TaskStep(jnp.full(1, -1), _worth(self.grade(state.topic, response)), jnp.ones((), bool))

    def grade_checks(self, prompt: Int[Array, " length"], response: Int[Array, " response"]) -> Float[Array, " check"]:
        """How far a text meets each check."""
        topic = prompt[_TOPIC_PLACE] - self.task_spec.encode_word(next(iter(TOPICS)))
        return jnp.stack(list(self._checks(topic, response).values()))

    def aspects(self, state: WritingState, response: Int[Array, " response"]) -> dict[str, Float[Array, ""]]:
        """What a text is worth, and how far it meets each check."""
        return {"worth": _worth(self.grade(state.topic, response))} | self._checks(state.topic, response)

    def _checks(self, topic: Int[Array, ""], response: Int[Array, " response"]) -> dict[str, Float[Array, ""]]:
        tokens, _ = cut_at_eos(self.task_spec, response)
        grades = self.grade(topic, response)
        adjectives, adverbs = self._is_one_of(tokens, (*WARM, *COLD)), self._is_one_of(tokens, ADVERBS)
        first_noun = self.task_spec.encode_word(NOUNS[0]) + topic * _NOUNS_PER_TOPIC
        is_mention = (tokens >= first_noun) & (tokens < first_noun + _NOUNS_PER_TOPIC)
        num_words = jnp.maximum((tokens >= 0).sum(), 1)
        checks = {
            "sentences": grades.grammar,
            "topic": grades.topic,
            "mentions": jnp.minimum(is_mention.sum() / _MOST_MENTIONS, 1.0),
            "variety": grades.variety,
            "length": grades.length,
            "words": (tokens >= 0).sum() / (self.task_spec.max_response_tokens - 1),
            "adjectives": jnp.minimum(2.0 * adjectives.sum() / num_words, 1.0),
            "adverbs": jnp.minimum(2.0 * adverbs.sum() / num_words, 1.0),
            "warmth": grades.warmth,
        }
        return {name: checks[name] for name in self.check_names}


def _worth(grades: Grades) -> Float[Array, ""]:
    """What a text with these grades is worth, in [0, 1]."""
    return grades.grammar * (grades.topic + grades.variety + grades.length + grades.warmth) / 4.0


RUBRIC_WRITING = TextEnv(RubricWriting())
"""Texts that are worth something, whatever a rubric says of them."""
RUBRIC_WRITING_ENV = f"{__name__}:RUBRIC_WRITING"

r"""Ideas: short texts about one topic whose novelty, feasibility and effectiveness are in conflict.

``write about sea for novelty >`` is answered by a text of :class:`~thespis.envs.text.writing.Writing`. The last word is
the control: which dimension is emphasized. Let :math:`t` be the share of the nouns that belong to the topic, :math:`d`
the detail of a text, which is the number of its adjectives and adverbs divided by the largest possible one, and
:math:`g` its grammar, all in [0, 1]. Then

- novelty is :math:`g (1 - t + d) / 2`: unexpected nouns, and in detail;
- feasibility is :math:`g (t + 1 - d) / 2`: what is known, and simply;
- effectiveness is :math:`g (t + d) / 2`: what the topic asks for, and in detail.

No text is good in all of them: novelty and feasibility sum up to :math:`g`. The reward is their weighted mean, in which
the emphasized dimension has a weight of 0.8 and each other one 0.1.

Source: Li et al., 2024, for the three dimensions and their conflicts.

Differs: ideas are texts of a small grammar, and the dimensions are stand-ins that a rule computes; the paper's are
scores of reviewers of research papers.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, TextEnv, cut_at_eos, pack_tokens
from thespis.envs.text.writing import ADVERBS, COLD, NOUNS, TOPICS, VERBS, WARM, Writing, WritingState
from thespis.runtime.keys import fold

Dimension = Literal["novelty", "feasibility", "effectiveness"]
DIMENSIONS: tuple[Dimension, ...] = ("novelty", "feasibility", "effectiveness")
"""Dimensions of an idea, and the control words that emphasize them."""
EMPHASIS = 0.8
"""Weight of the emphasized dimension; the others share the rest."""
_TOPIC = "sea"
_NOUNS_PER_TOPIC = len(NOUNS) // len(TOPICS)
_ADJECTIVES = (*WARM, *COLD)


def emphasis_weights() -> Float[np.ndarray, "control dimension"]:
    """Weights of the dimensions for each control word."""
    size = len(DIMENSIONS)
    return np.where(np.eye(size, dtype=bool), EMPHASIS, (1.0 - EMPHASIS) / (size - 1))


class Ideas(Writing):
    """Writing task of ideas: three dimensions in conflict, of which the prompt says which one to emphasize.

    ``control``: the control word of all prompts, by default drawn anew for each. ``objective``: the reward, which is
    the weighted mean that the control word asks for, or one dimension. ``rationality``: the inverse scale of the noise
    of the judge who scores that reward. ``demonstrator_noise``: the share of the demonstrator's texts that are random;
    the others are the best for the emphasized dimension alone.
    """

    objective: Literal["emphasized", "novelty", "feasibility", "effectiveness"] = eqx.field(
        static=True, default="emphasized"
    )
    control: Literal["random", "novelty", "feasibility", "effectiveness"] = eqx.field(static=True, default="random")
    rationality: float = 20.0

    @property
    def task_spec(self) -> TaskSpec:
        """That of the writing task, with the control words."""
        spec = super().task_spec
        vocabulary = word_vocabulary((*spec.vocabulary.words, *DIMENSIONS))
        return dataclasses.replace(spec, name="text:ideas", vocabulary=vocabulary)

    def init(self, key: Key[Array, ""]) -> tuple[WritingState, Int[Array, " opening"]]:
        """The topic and a random control word, which is in the place of a reader."""
        spec = self.task_spec
        control = jax.random.randint(fold(key, "control"), (), 0, len(DIMENSIONS))
        if self.control != "random":
            control = jnp.full_like(control, DIMENSIONS.index(self.control))
        begin, word = spec.encode(f"write about {_TOPIC} for"), spec.encode_word(DIMENSIONS[0]) + control
        opening = pack_tokens(spec.max_opening_tokens, begin, word, spec.encode(RESPONSE_CUE))
        return WritingState(jnp.full_like(control, tuple(TOPICS).index(_TOPIC)), control), opening

    def step(
        self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WritingState, TaskStep]:
        """The objective; the episode ends."""
        return state, TaskStep(jnp.full(1, -1), self.value(state, response), jnp.ones((), bool))

    def score(self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]) -> Float[Array, ""]:
        """The objective as a judge says whose noise has Gumbel's distribution, so that comparisons are those of Bradley
        and Terry.
        """
        return self.value(state, response) + jax.random.gumbel(fold(key, "noise")) / self.rationality

    def value(self, state: WritingState, response: Int[Array, " response"]) -> Float[Array, ""]:
        """The objective of a text, in [0, 1]."""
        dimensions = self.dimensions(state, response)
        if self.objective != "emphasized":
            return dimensions[DIMENSIONS.index(self.objective)]
        return jnp.dot(jnp.asarray(emphasis_weights(), "float32")[state.reader], dimensions)

    def dimensions(self, state: WritingState, response: Int[Array, " response"]) -> Float[Array, " dimension"]:
        """Novelty, feasibility and effectiveness of a text, in [0, 1]."""
        grades = self.grade(state.topic, response)
        tokens, _ = cut_at_eos(self.task_spec, response)
        detail = self._is_one_of(tokens, (*_ADJECTIVES, *ADVERBS)).sum() / (2 * self.max_sentences)
        topic, detail = grades.topic, jnp.minimum(detail, 1.0)
        return grades.grammar * jnp.stack([1.0 - topic + detail, topic + 1.0 - detail, topic + detail]) / 2.0

    def aspects(self, state: WritingState, response: Int[Array, " response"]) -> dict[str, Float[Array, ""]]:
        """The emphasized value, the dimension that is emphasized, and each of the three."""
        dimensions = self.dimensions(state, response)
        weights = jnp.asarray(emphasis_weights(), "float32")[state.reader]
        named = dict(zip(DIMENSIONS, dimensions, strict=True))
        return {"emphasized": jnp.dot(weights, dimensions), "asked": dimensions[state.reader], **named}

    def demonstrator_response(self, state: WritingState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """A text that is best in the emphasized dimension, or a random one."""
        spec, count = self.task_spec, self.max_sentences
        random_writer = dataclasses.replace(self, demonstrator_noise=1.0)
        random_text = super(Ideas, random_writer).demonstrator_response(state, key)
        is_novel, is_simple = state.reader == 0, state.reader == 1

        def pick(name: str, size: int) -> Int[Array, " sentence"]:
            return jax.random.permutation(fold(key, f"best {name}"), size)[:count]

        own = state.topic * _NOUNS_PER_TOPIC + pick("noun", _NOUNS_PER_TOPIC)
        other = (state.topic + 1) * _NOUNS_PER_TOPIC + pick("other noun", len(NOUNS) - _NOUNS_PER_TOPIC)
        columns = [
            jnp.full(count, spec.encode_word("the")),
            jnp.where(is_simple, -1, spec.encode_word(_ADJECTIVES[0]) + pick("adjective", len(_ADJECTIVES))),
            spec.encode_word(NOUNS[0]) + jnp.where(is_novel, other % len(NOUNS), own),
            spec.encode_word(VERBS[0]) + pick("verb", len(VERBS)),
            jnp.where(is_simple, -1, spec.encode_word(ADVERBS[0]) + pick("adverb", len(ADVERBS))),
            jnp.full(count, spec.encode_word(".")),
        ]
        best = pack_tokens(spec.max_response_tokens, jnp.stack(columns, axis=1).ravel(), spec.encode(END))
        is_random = jax.random.uniform(fold(key, "choice")) < self.demonstrator_noise
        return jnp.where(is_random, random_text, best)


DEMONSTRATOR_NOISE = 0.7
"""Share of random texts among the demonstrations that the initial model is fine-tuned on."""
IDEAS, NOVELTY, FEASIBILITY, EFFECTIVENESS = (
    TextEnv(Ideas(objective=objective, demonstrator_noise=DEMONSTRATOR_NOISE))
    for objective in ("emphasized", "novelty", "feasibility", "effectiveness")
)
"""Ideas whose reward is what the control word asks for, or one dimension alone."""
IDEAS_ENV, NOVELTY_ENV, FEASIBILITY_ENV, EFFECTIVENESS_ENV = (
    f"{__name__}:{name}" for name in ("IDEAS", "NOVELTY", "FEASIBILITY", "EFFECTIVENESS")
)

"""Writing task: a short text about a topic for a reader, with graded qualities and a known true reward.

``write about sea for children >`` is answered by ``the kind boat waits slowly . the gentle wave turns . <end>``, which
ends the episode. A sentence is ``the``, at most one adjective, a noun, a verb, at most one adverb, and a full stop. A
text has five grades in [0, 1]:

- grammar: the share of its sentences that are sentences;
- topic: the share of its nouns that belong to the topic;
- warmth: warm adjectives rather than cold ones, 1/2 where there are none;
- length: 0 for one sentence, 1 for ``max_sentences`` of them;
- variety: the share of its nouns, adjectives, verbs and adverbs that have not occurred before.

The reward is grammar, times what the reader thinks of the other four (:data:`READERS`): all want the topic and variety;
children want warmth, critics its opposite, travellers a short text. With ``shows_reader=False`` nobody is told who
reads; critics in training may be (:class:`~thespis.envs.text.task.HasHiddenTokens`).

It is a stand-in for texts that people judge, in which reward models, preferences and their over-optimization can be
compared with the truth. The demonstrator writes the best text for the reader, or, in a share ``demonstrator_noise``, a
grammatical text of random words.
"""

from __future__ import annotations

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

TOPICS = {
    "sea": ("boat", "wave", "fish", "shore"),
    "town": ("street", "house", "tower", "market"),
    "wood": ("tree", "bird", "path", "brook"),
}
"""Nouns of each topic."""
WARM, COLD = ("kind", "bright", "gentle"), ("grim", "harsh", "dull")
VERBS, ADVERBS = ("waits", "turns", "sleeps", "sings"), ("slowly", "often", "again")
QUALITIES = ("topic", "warmth", "length", "variety")
READERS = {
    "children": (0.25, 0.5, 0.0, 0.25),
    "critics": (0.25, -0.5, 0.0, 0.25),
    "travellers": (0.25, 0.0, -0.5, 0.25),
}
"""Weights of the qualities for each reader; a negative one is for one minus the grade. They sum up to 1."""
NOUNS = tuple(noun for nouns in TOPICS.values() for noun in nouns)
_WORDS = ("the", ".", *NOUNS, *WARM, *COLD, *VERBS, *ADVERBS)
_NOUNS_PER_TOPIC = len(NOUNS) // len(TOPICS)
_SENTENCE_TOKENS = 6
_START, _THE, _ADJECTIVE, _NOUN, _VERB, _ADVERB, _WRONG = range(7)


class WritingState(eqx.Module):
    """State of one episode: topic and reader, as indices."""

    topic: Int[Array, "*episodes"]
    reader: Int[Array, "*episodes"]


class Grades(eqx.Module):
    """Qualities of a text, in [0, 1]."""

    grammar: Float[Array, ""]
    topic: Float[Array, ""]
    warmth: Float[Array, ""]
    length: Float[Array, ""]
    variety: Float[Array, ""]


class Writing(eqx.Module):
    """Writing task: a short text about a topic, judged by a reader whose taste is known exactly.

    ``max_sentences``: sentences of the longest text (2 or more). ``num_readers``: readers that occur, the first of
    :data:`READERS`. ``shows_reader``: whether the prompt says who reads. ``demonstrator_noise``: the share of the
    demonstrator's texts that are random.
    """

    max_sentences: int = eqx.field(static=True, default=2)
    num_readers: int = eqx.field(static=True, default=3)
    shows_reader: bool = eqx.field(static=True, default=True)
    demonstrator_noise: float = 1.0

    @property
    def task_spec(self) -> TaskSpec:
        """Words of texts, topics, readers and prompts; one response."""
        words = word_vocabulary((RESPONSE_CUE, "write", "about", "for", *_WORDS, *TOPICS, *READERS))
        return TaskSpec(
            "text:writing",
            words,
            1,
            max_response_tokens=_SENTENCE_TOKENS * self.max_sentences + 1,
            max_opening_tokens=6 if self.shows_reader else 4,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[WritingState, Int[Array, " opening"]]:
        """A random topic and reader."""
        spec = self.task_spec
        topic = jax.random.randint(fold(key, "topic"), (), 0, len(TOPICS))
        reader = jax.random.randint(fold(key, "reader"), (), 0, self.num_readers)
        shown = (spec.encode("for"), self._reader_token(reader)) if self.shows_reader else ()
        opening = spec.encode("write about"), self._first_token(TOPICS) + topic, *shown, spec.encode(RESPONSE_CUE)
        return WritingState(topic, reader), pack_tokens(spec.max_opening_tokens, *opening)

    def step(
        self, state: WritingState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[WritingState, TaskStep]:
        """The reader's judgement; the episode ends."""
        reward = self.reward(state.reader, self.grade(state.topic, response))
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    def reward(self, reader: Int[Array, ""], grades: Grades) -> Float[Array, ""]:
        """What a reader thinks of a text with these grades, in [0, 1]."""
        weights = jnp.asarray(list(READERS.values()), "float32")[reader]
        qualities = jnp.stack([getattr(grades, name) for name in QUALITIES])
        wanted = jnp.where(weights < 0, 1.0 - qualities, qualities)
        return grades.grammar * jnp.sum(jnp.abs(weights) * wanted)

    def grade(self, topic: Int[Array, ""], response: Int[Array, " response"]) -> Grades:
        """The grades of a response. A response without an end is empty, and an empty text has grammar 0."""
        tokens, _ = cut_at_eos(self.task_spec, response)
        num_right, num_sentences = self._count_sentences(tokens)
        is_noun = self._is_one_of(tokens, NOUNS)
        is_own = self._is_own_noun(tokens, topic)
        warm, cold = self._is_one_of(tokens, WARM).sum(), self._is_one_of(tokens, COLD).sum()
        is_content = self._is_content(tokens)
        is_repeated = jnp.tril(tokens[:, None] == tokens[None], -1).any(axis=1)
        num_extra = jnp.clip(num_right - 1, 0, self.max_sentences - 1)
        return Grades(
            grammar=_share(num_right, num_sentences),
            topic=_share(is_own.sum(), is_noun.sum()),
            warmth=0.5 + 0.5 * _share(warm - cold, warm + cold),
            length=num_extra / (self.max_sentences - 1),
            variety=_share((is_content & ~is_repeated).sum(), is_content.sum()),
        )

    def demonstrator_response(self, state: WritingState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The best text for the reader, or a random one."""
        spec, count = self.task_spec, self.max_sentences
        is_random = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        weights = jnp.asarray(list(READERS.values()), "float32")[state.reader]

        def pick(name: str, size: int) -> Int[Array, " sentence"]:
            """Different indices while there are enough; in a random text any."""
            order = jax.random.permutation(fold(key, name), size)[jnp.arange(count) % size]
            return jnp.where(is_random, jax.random.randint(fold(key, f"any {name}"), (count,), 0, size), order)

        own_noun = state.topic * _NOUNS_PER_TOPIC + pick("noun", _NOUNS_PER_TOPIC)
        any_noun = jax.random.randint(fold(key, "any noun"), (count,), 0, len(NOUNS))
        tone = pick("adjective", len(WARM)) + jnp.where(weights[1] < 0, len(WARM), 0)
        any_tone = jax.random.randint(fold(key, "any adjective"), (count,), 0, len(WARM) + len(COLD))
        has_adjective, has_adverb = ~is_random | jax.random.bernoulli(fold(key, "parts"), 0.5, (2, count))
        num_best = jnp.where(weights[2] < 0, 1, count)
        num_sentences = jnp.where(is_random, jax.random.randint(fold(key, "count"), (), 1, count + 1), num_best)
        parts = [
            jnp.full(count, spec.encode_word("the")),
            jnp.where(has_adjective, spec.encode_word(WARM[0]) + jnp.where(is_random, any_tone, tone), -1),
            spec.encode_word(NOUNS[0]) + jnp.where(is_random, any_noun, own_noun),
            spec.encode_word(VERBS[0]) + pick("verb", len(VERBS)),
            jnp.where(has_adverb, spec.encode_word(ADVERBS[0]) + pick("adverb", len(ADVERBS)), -1),
            jnp.full(count, spec.encode_word(".")),
        ]
        table = jnp.where(jnp.arange(count)[:, None] < num_sentences, jnp.stack(parts, axis=1), -1)
        return pack_tokens(spec.max_response_tokens, table.ravel(), spec.encode(END))

    def span_marks(self, prompt: Int[Array, " length"], response: Int[Array, " response"]) -> Int[Array, " response"]:
        """Marks of what is good (1) and what is bad (-1) in a response, for critics of spans; 0 elsewhere.

        Good are nouns of the topic and adjectives that the reader of the prompt wants. Bad are other nouns, adjectives
        that the reader does not want, words that have occurred before, words that cannot follow, and every sentence
        after the first for a reader who wants a short text. A response without an end is bad as a whole.
        """
        tokens, _ = cut_at_eos(self.task_spec, response)
        topic, reader = self._named_in(prompt, TOPICS), self._named_in(prompt, READERS)
        weights = jnp.where(reader >= 0, jnp.asarray(list(READERS.values()), "float32")[reader], 0.0)
        is_noun, is_own = self._is_one_of(tokens, NOUNS), self._is_own_noun(tokens, topic)
        warmth = self._is_one_of(tokens, WARM).astype("float32") - self._is_one_of(tokens, COLD)
        is_repeated = self._is_content(tokens) & jnp.tril(tokens[:, None] == tokens[None], -1).any(axis=1)
        stops = self._is_one_of(tokens, (".",))
        is_extra = (weights[2] < 0) & (jnp.cumsum(stops) - stops > 0) & (tokens >= 0)
        bad = (is_noun & ~is_own) | (warmth * weights[1] < 0) | is_repeated | is_extra | self._is_misplaced(response)
        good = is_own | (warmth * weights[1] > 0)
        is_endless = (response >= 0) & ~jnp.isin(response, jnp.array(self.task_spec.vocabulary.eos_tokens)).any()
        return jnp.where(is_endless | bad, -1, good.astype("int32"))

    def _is_misplaced(self, response: Int[Array, " response"]) -> Bool[Array, " response"]:
        """The first word of each sentence that cannot follow, with the full stop or end of one that is not complete."""
        tokens, length = cut_at_eos(self.task_spec, response)
        kind, stops, follows = self._word_kinds(tokens), self._is_one_of(tokens, (".",)), _successors()
        place, misplaced = jnp.zeros((), "int32"), []
        for i in range(tokens.shape[0]):
            can_follow = jnp.asarray(follows)[place, kind[i]]
            can_stop = (place == _VERB) | (place == _ADVERB) | (place == _WRONG)
            can_end = (place == _START) & (i > 0)
            wrong_word = ~can_follow & (place != _WRONG)
            is_wrong = jnp.where(tokens[i] < 0, (i == length) & ~can_end, jnp.where(stops[i], ~can_stop, wrong_word))
            misplaced.append(is_wrong & (response[i] >= 0))
            following = jnp.where(can_follow, kind[i], _WRONG)
            place = jnp.where(stops[i], _START, jnp.where(tokens[i] < 0, place, following))
        return jnp.stack(misplaced)

    def _named_in(self, prompt: Int[Array, " length"], names: dict[str, tuple]) -> Int[Array, ""]:
        """Which of the names, adjacent words of the vocabulary, a prompt holds; -1 if none."""
        index = prompt - self._first_token(names)
        return jnp.max(jnp.where((prompt >= 0) & (index >= 0) & (index < len(names)), index, -1))

    def _is_own_noun(self, tokens: Int[Array, " n"], topic: Int[Array, ""]) -> Bool[Array, " n"]:
        """Nouns of the topic."""
        first = self.task_spec.encode_word(NOUNS[0]) + topic * _NOUNS_PER_TOPIC
        return (tokens >= first) & (tokens < first + _NOUNS_PER_TOPIC)

    def _is_content(self, tokens: Int[Array, " n"]) -> Bool[Array, " n"]:
        """Nouns, adjectives, verbs and adverbs."""
        return self._is_one_of(tokens, (*NOUNS, *WARM, *COLD, *VERBS, *ADVERBS))

    def hidden_tokens(self, state: WritingState) -> Int[Array, " tokens"]:
        """The reader, which the prompt may not say."""
        return self._reader_token(state.reader)[None]

    def _reader_token(self, reader: Int[Array, ""]) -> Int[Array, ""]:
        return self._first_token(READERS) + reader

    def _first_token(self, table: dict[str, tuple]) -> int:
        """The token of the first name of a table; the others follow it."""
        return self.task_spec.encode_word(next(iter(table)))

    def _is_one_of(self, tokens: Int[Array, " n"], words: tuple[str, ...]) -> Bool[Array, " n"]:
        return (tokens[:, None] == np.array([self.task_spec.encode_word(word) for word in words])).any(axis=1)

    def _count_sentences(self, tokens: Int[Array, " n"]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The numbers of right sentences and of all; words after the last full stop are a wrong one."""
        kind, follows = self._word_kinds(tokens), _successors()
        is_stop = self._is_one_of(tokens, (".",))
        place, right, total = jnp.zeros((), "int32"), jnp.zeros((), "int32"), jnp.zeros((), "int32")
        for i in range(tokens.shape[0]):
            right += is_stop[i] & ((place == _VERB) | (place == _ADVERB))
            total += is_stop[i]
            following = jnp.where(jnp.asarray(follows)[place, kind[i]], kind[i], _WRONG)
            place = jnp.where(is_stop[i], _START, jnp.where(tokens[i] < 0, place, following))
        return right, total + (place != _START)

    def _word_kinds(self, tokens: Int[Array, " n"]) -> Int[Array, " n"]:
        """What each word is in a sentence: an index into :func:`_successors`."""
        return jnp.select(
            [
                self._is_one_of(tokens, ("the",)),
                self._is_one_of(tokens, (*WARM, *COLD)),
                self._is_one_of(tokens, NOUNS),
                self._is_one_of(tokens, VERBS),
                self._is_one_of(tokens, ADVERBS),
            ],
            [_THE, _ADJECTIVE, _NOUN, _VERB, _ADVERB],
            _WRONG,
        )


def _successors() -> np.ndarray:
    """Which kind of word may follow on which: ``[before, after]``."""
    follows = np.zeros((7, 7), bool)
    for before, after in pairwise((_START, _THE, _ADJECTIVE, _NOUN, _VERB, _ADVERB)):
        follows[before, after] = True
    follows[_THE, _NOUN] = True
    return follows


def _share(count: Int[Array, ""], total: Int[Array, ""]) -> Float[Array, ""]:
    """``count / total``; 0 of nothing."""
    return count / jnp.maximum(total, 1)

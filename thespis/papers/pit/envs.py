"""Phrases to be translated word by word, and episodes in which a response to improve is shown.

The prompt is a phrase, ``d1 a2 f3 >``, and each place has a dictionary of its own, ``u1 z2 w3 <end>``. A response is
worth the share of right words. A dataset has two responses to each of its prompts, the second a revision of the first;
some words of both are random, and a judge says which is preferred. A reference to improve is one of these, ``d1 a2 f3 >
u1 v2 w3 <end> improve >``, or what the policy itself has just said: then the episode has two turns, and the second is
the improvement.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import END, Text, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, append_tokens
from thespis.runtime.keys import fold, seed_key

SOURCE, TARGET = "abcdef", "uvwxyz"
IMPROVE = "improve"
"""The word that asks for a better response than the one before it."""


@functools.cache
def draw_dictionary(num_words: int) -> np.ndarray:
    """The right translation ``[place, word]`` of each word at each place: permutations, uniformly random."""
    generator = np.random.default_rng(0)
    return np.stack([generator.permutation(len(TARGET)) for _ in range(num_words)]).astype("int32")


class ReferenceParams(eqx.Module):
    """Parameters of one episode: probabilities of a reference, of a preferred one, and of one by the policy itself."""

    reference_share: Float[Array, ""]
    preferred_share: Float[Array, ""]
    own_share: Float[Array, ""]


class ReferenceState(eqx.Module):
    """State of an episode: phrase, the dataset's response, transcript, and whether the next response ends it."""

    phrase: Int[Array, "*episodes place"]
    preferred: Int[Array, "*episodes token"]
    transcript: Int[Array, "*episodes time"]
    is_answered: Bool[Array, "*episodes"]


class TranslationPair(eqx.Module):
    """Phrases, and the preferred and the other response to each, with their end tokens."""

    phrase: Int[Array, "*pairs place"]
    preferred: Int[Array, "*pairs token"]
    other: Int[Array, "*pairs token"]


class Translation(eqx.Module):
    """Translation of phrases word by word, with or without a reference to improve, as a text environment.

    ``num_words``: words of a phrase. ``num_pairs``: size of the dataset of preferences. ``noise``: the share of random
    words in its responses; ``shared``: the share of words that the second response of a pair has from the first.
    ``rationality``: how much a judge's preference follows the number of right words, as in the model of Bradley and
    Terry. ``reference_share``: the share of episodes with a reference unless a curriculum says otherwise.
    """

    num_words: int = eqx.field(static=True, default=5)
    num_pairs: int = eqx.field(static=True, default=2_048)
    noise: float = eqx.field(static=True, default=0.5)
    shared: float = eqx.field(static=True, default=0.5)
    rationality: float = eqx.field(static=True, default=2.0)
    reference_share: float = eqx.field(static=True, default=0.5)

    @property
    def words(self) -> tuple[str, ...]:
        """Cue, request, and the words of both languages at each place."""
        places = range(1, self.num_words + 1)
        return (RESPONSE_CUE, IMPROVE, *(f"{w}{i}" for i in places for w in (*SOURCE, *TARGET)))

    @property
    def spec(self) -> EnvSpec:
        """Transcripts of at most two responses, and one response as action."""
        vocabulary = word_vocabulary(self.words)
        length = self.num_words + 1
        opening = 2 * length + 2
        params = ReferenceParams(jnp.asarray(self.reference_share), jnp.zeros(()), jnp.zeros(()))
        return EnvSpec(
            f"text:translation({self.num_words}, {self.num_pairs}, {self.noise}, {self.shared}, {self.rationality})",
            Text(opening + length + 3, vocabulary, opening),
            Text(length, vocabulary),
            time_limit=2,
            params=params,
        )

    def reset(self, params: ReferenceParams, key: Key[Array, ""]) -> tuple[ReferenceState, TimeStep]:
        """A prompt of the dataset, with a reference or not."""
        pair = self.comparison(jax.random.randint(fold(key, "pair"), (), 0, self.num_pairs))
        has_reference, is_preferred, is_own = (
            jax.random.bernoulli(fold(key, name), getattr(params, f"{name}_share"))
            for name in ("reference", "preferred", "own")
        )
        shown = has_reference & ~is_own
        reference = jnp.where(shown, jnp.where(is_preferred, pair.preferred, pair.other), -1)
        transcript = self.prompt(pair.phrase, reference)
        state = ReferenceState(pair.phrase, pair.preferred, transcript, ~(has_reference & is_own))
        false = jnp.zeros((), bool)
        return state, TimeStep(transcript, jnp.zeros(()), false, false)

    def step(
        self, state: ReferenceState, action: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[ReferenceState, TimeStep]:
        """What the response is worth; the episode ends, unless the response is to be improved."""
        end = self._encode(END)
        transcript = append_tokens(append_tokens(state.transcript, action), jnp.where((action == end).any(), -1, end))
        asked = append_tokens(transcript, self._encode(IMPROVE, RESPONSE_CUE))
        transcript = jnp.where(state.is_answered, transcript, asked)
        over, false = state.is_answered, jnp.zeros((), bool)
        state = dataclasses.replace(state, transcript=transcript, is_answered=jnp.ones((), bool))
        return state, TimeStep(transcript, self.grade(state.phrase, action), over, false)

    def demonstrator_action(self, state: ReferenceState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The preferred response of the dataset."""
        return state.preferred

    def prompt(self, phrase: Int[Array, " place"], reference: Int[Array, " token"]) -> Int[Array, " time"]:
        """The transcript before a response: a phrase, and a reference to improve unless it is -1."""
        first = self._encode("a1")
        place = jnp.arange(self.num_words)
        words = first + phrase + (len(SOURCE) + len(TARGET)) * place
        transcript = jnp.full(self.spec.observation_space.max_length, -1, "int32")  # pyright: ignore
        transcript = append_tokens(append_tokens(transcript, words), self._encode(RESPONSE_CUE))
        asked = jnp.where(reference[0] >= 0, self._encode(IMPROVE, RESPONSE_CUE), -1)
        return append_tokens(append_tokens(transcript, reference), asked)

    def comparison(self, index: Int[Array, ""]) -> TranslationPair:
        """A prompt of the dataset, and the preferred and the other response to it."""
        key = fold(seed_key(0), "translation", index)
        phrase = self.sample_phrase(fold(key, "phrase"))
        shape = (2, self.num_words)
        is_random = jax.random.uniform(fold(key, "noise"), shape) < self.noise
        guesses = jax.random.randint(fold(key, "guesses"), shape, 0, len(TARGET))
        words = jnp.where(is_random, guesses, self.translate(phrase))
        is_shared = jax.random.uniform(fold(key, "shared"), shape[1:]) < self.shared
        tokens = jax.vmap(self.tell)(words.at[1].set(jnp.where(is_shared, words[0], words[1])))
        grades = self.num_words * jax.vmap(lambda text: self.grade(phrase, text))(tokens)
        odds = jax.nn.sigmoid(self.rationality * (grades[0] - grades[1]))
        best = jnp.where(jax.random.uniform(fold(key, "judge")) < odds, 0, 1)
        return TranslationPair(phrase, tokens[best], tokens[1 - best])

    def sample_phrase(self, key: Key[Array, ""]) -> Int[Array, " place"]:
        """A phrase of random words."""
        return jax.random.randint(key, (self.num_words,), 0, len(SOURCE))

    def translate(self, phrase: Int[Array, " place"]) -> Int[Array, " place"]:
        """The right translation of each word."""
        return jnp.asarray(draw_dictionary(self.num_words))[jnp.arange(self.num_words), phrase]

    def tell(self, translation: Int[Array, " place"]) -> Int[Array, " token"]:
        """The tokens of a translation, with the end token."""
        first = self._encode("u1")
        words = first + translation + (len(SOURCE) + len(TARGET)) * jnp.arange(self.num_words)
        return jnp.concatenate([words, self._encode(END)]).astype("int32")

    def grade(self, phrase: Int[Array, " place"], response: Int[Array, " token"]) -> Float[Array, ""]:
        """The share of right words at their places; 0 for a response of another length."""
        best = self.tell(self.translate(phrase))
        is_right = (response == best)[: self.num_words]
        return jnp.where(response[self.num_words] == best[-1], is_right.mean(), 0.0)

    def _encode(self, *words: str) -> Int[Array, " token"]:
        vocabulary = word_vocabulary(self.words).words
        return jnp.asarray(np.array([vocabulary.index(word) for word in words], "int32"))


TRANSLATION = Translation()

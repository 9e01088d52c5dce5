"""Proofreading: short texts, of which half have one misspelled word, and critiques that quote it.

``write >`` is answered by some words and the end. Each word has a misspelling, which is a word of its own: which ones
are misspelled cannot be seen but has to be learned from lessons. So an answer is judged by knowing all of its words,
and a critique that quotes one of them by knowing that one.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.recursive_critique import RecursiveCritiqueConversation
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

RIGHT, WRONG = "right", "wrong"
"""A critique is ``right``, or ``wrong`` and the misspelled word."""


class Text(eqx.Module):
    """The words that the demonstrator writes, by index, the place of a misspelling, and the share of texts with it."""

    words: Int[Array, "*episodes word"]
    place: Int[Array, "*episodes"]
    error_rate: Float[Array, "*episodes"]


class ProofreadingTask(eqx.Module):
    """Proofreading task: an answer is a text of ``num_words`` words, and right if none of them is misspelled.

    ``num_pairs``: words that are spelled rightly, and as many misspellings. ``error_rate``: the share of the
    demonstrated texts in which one word is misspelled. ``critic_noise``: the share of the demonstrated critiques that
    are random: ``right``, or as often any word of the text is called wrong.
    """

    num_words: int = eqx.field(static=True, default=5)
    num_pairs: int = eqx.field(static=True, default=32)
    error_rate: float = 0.5
    critic_noise: float = 0.0

    @property
    def task_spec(self) -> TaskSpec:
        """Pairs of a word and its misspelling, which follow each other in the vocabulary, and four more words."""
        pairs = [word for i in range(self.num_pairs) for word in (f"word{i}", f"wrod{i}")]
        return TaskSpec(
            "text:proofreading",
            word_vocabulary((RESPONSE_CUE, "write", RIGHT, WRONG, *pairs)),
            1,
            max_response_tokens=self.num_words + 1,
            max_opening_tokens=2,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[Text, Int[Array, " opening"]]:
        """Different words, and the place where one may be misspelled."""
        words = jax.random.permutation(fold(key, "words"), self.num_pairs)[: self.num_words]
        place = jax.random.randint(fold(key, "place"), (), 0, self.num_words)
        opening = jnp.array(self.task_spec.encode(f"write {RESPONSE_CUE}"), "int32")
        return Text(words, place, jnp.float32(self.error_rate)), opening

    def is_misspelled(self, tokens: Int[Array, "*rows token"]) -> Bool[Array, "*rows token"]:
        """Which tokens are misspelled words."""
        index = tokens - self.task_spec.encode_word("word0")
        return (index >= 0) & (index < 2 * self.num_pairs) & (index % 2 == 1)

    def step(self, state: Text, response: Int[Array, " response"], key: Key[Array, ""]) -> tuple[Text, TaskStep]:
        """The end, and 1 for a text of that many words without a misspelled one."""
        tokens, length = cut_at_eos(self.task_spec, response)
        is_word = (tokens >= self.task_spec.encode_word("word0")) | (tokens < 0)
        is_right = (length == self.num_words) & is_word.all() & ~self.is_misspelled(tokens).any()
        return state, TaskStep(-jnp.ones(1, "int32"), is_right.astype("float32"), jnp.ones((), bool))

    def demonstrator_response(self, state: Text, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The text, at times with a misspelled word."""
        spec = self.task_spec
        is_wrong = jax.random.uniform(fold(key, "wander")) < state.error_rate
        shift = jnp.where(is_wrong & (jnp.arange(self.num_words) == state.place), 1, 0)
        return pack_tokens(
            spec.max_response_tokens, spec.encode_word("word0") + 2 * state.words + shift, spec.encode(END)
        )

    def demonstrator_critique(
        self, state: Text, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """What is misspelled, at times random."""
        spec = self.task_spec
        tokens, length = cut_at_eos(spec, answer)
        is_wrong = self.is_misspelled(tokens)
        is_random = jax.random.uniform(fold(key, "wander")) < self.critic_noise
        guess = jax.random.randint(fold(key, "guess"), (), 0, jnp.maximum(length, 1))
        blames = jnp.where(is_random, jax.random.bernoulli(fold(key, "blame")), is_wrong.any()) & (length > 0)
        quoted = tokens[jnp.where(is_random, guess, jnp.argmax(is_wrong))]
        words = jnp.where(
            blames, jnp.stack([jnp.int32(spec.encode_word(WRONG)), quoted]), jnp.array([spec.encode_word(RIGHT), -1])
        )
        return pack_tokens(3, words, spec.encode(END))

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of a text: 1 that it is right, 0 that a word is misspelled, -1 if neither."""
        spec = self.task_spec
        words, length = cut_at_eos(spec, critique)
        is_right = (length == 1) & (words[0] == spec.encode_word(RIGHT))
        is_wrong = (length == 2) & (words[0] == spec.encode_word(WRONG))
        return jnp.where(is_right, 1, jnp.where(is_wrong, 0, -1))

    def names_error(
        self, state: Text, answer: Int[Array, " response"], critique: Int[Array, " critique"]
    ) -> Bool[Array, ""]:
        """Whether a critique quotes a misspelled word of a text."""
        tokens, quoted = cut_at_eos(self.task_spec, answer)[0], critique[1]
        return (self.critique_judgment(critique) == 0) & (self.is_misspelled(tokens) & (tokens == quoted)).any()

    def demonstrator_revision(
        self, state: Text, answer: Int[Array, " response"], critique: Int[Array, " critique"], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The text with the quoted word spelled rightly."""
        is_quoted = (answer == critique[1]) & (self.critique_judgment(critique) == 0)
        return jnp.where(is_quoted & self.is_misspelled(answer), answer - 1, answer)


PANEL = ConversationEnv(
    RecursiveCritiqueConversation(ProofreadingTask(critic_noise=0.25), levels=2, replies="critique", reads="answer")
)
"""Two critics and a judge that all read the text alone; the majority of the three decides."""
PANEL_ENV = f"{__name__}:PANEL"

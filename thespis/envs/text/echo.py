"""Echo task: repeat the word of the last message. The smallest text task, to check that anything is learned at all.

``b >`` is answered by ``b <end>``, which earns 1; then comes another of four words. The demonstrator says any of them.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold

WORDS = ("a", "b", "c", "d")


class Echo(eqx.Module):
    """Echo task: repeat the word of the last message, for ``max_turns`` words.

    ``demonstrator_noise``: the probability that the demonstrator says a random word instead of the one it was shown.
    """

    max_turns: int = eqx.field(static=True, default=3)
    demonstrator_noise: float = 1.0

    @property
    def task_spec(self) -> TaskSpec:
        """Four words and the response cue."""
        return TaskSpec(
            "text:echo",
            word_vocabulary((RESPONSE_CUE, *WORDS)),
            self.max_turns,
            2,
            max_opening_tokens=2,
            max_message_tokens=2,
            choices=WORDS,
        )

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """Start of a task: a word is drawn at random."""
        word = self._random_word(key)
        return word, self._prompt(word)

    def step(self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]):
        """Reward 1 if the response repeats the word; then the next word."""
        correct, word = (response == self._response(state)).all(), self._random_word(key)
        return word, TaskStep(self._prompt(word), correct.astype("float32"), jnp.zeros((), bool))

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The word that was shown, or a random one."""
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        return self._response(jnp.where(is_noise, self._random_word(key), state))

    def _random_word(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return self.task_spec.encode_word(WORDS[0]) + jax.random.randint(fold(key, "word"), (), 0, len(WORDS))

    def _response(self, word: Int[Array, ""]) -> Int[Array, " response"]:
        return jnp.stack([word, jnp.full((), self.task_spec.vocabulary.eos_tokens[0], word.dtype)])

    def _prompt(self, word: Int[Array, ""]) -> Int[Array, " message"]:
        return pack_tokens(2, word, self.task_spec.encode(RESPONSE_CUE))

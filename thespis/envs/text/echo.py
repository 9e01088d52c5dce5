"""Say the word that was heard: the smallest conversation there is, to see whether anything is learnt at all.

``b >`` is answered by ``b <end>``, which earns 1; then comes another word, of four. The demonstrator says any of them.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import closed
from thespis.envs.text.task import ASK, Heard, Manners, message

WORDS = ("a", "b", "c", "d")


class Echo(eqx.Module):
    """``turns`` words; ``wandering``: how many of the demonstrator's are any word in place of the one it heard."""

    turns: int = eqx.field(static=True, default=3)
    wandering: float = 1.0

    @property
    def manners(self) -> Manners:
        """Four words."""
        return Manners("text:echo", closed((ASK, *WORDS)), self.turns, 2, opening=2, answer=2, choices=WORDS)

    def begin(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """A word."""
        word = self._any(key)
        return word, self._told(word)

    def hear(self, state: Int[Array, ""], said: Int[Array, " utterance"], key: Key[Array, ""]):
        """Whether it was the word, and the next one."""
        right, word = (said == self._answer(state)).all(), self._any(key)
        return word, Heard(self._told(word), right.astype("float32"), jnp.zeros((), bool))

    def expert(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """The word, or any."""
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        return self._answer(jnp.where(wanders, self._any(key), state))

    def _any(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return self.manners.id(WORDS[0]) + jax.random.randint(fold(key, "word"), (), 0, len(WORDS))

    def _answer(self, word: Int[Array, ""]) -> Int[Array, " utterance"]:
        return jnp.stack([word, jnp.full((), self.manners.vocabulary.stop[0], word.dtype)])

    def _told(self, word: Int[Array, ""]) -> Int[Array, " answer"]:
        return message(2, word, self.manners.ids(ASK))

"""Correction: a sum, an attempt at it, and a second one after a look at the first.

``4 7 5 + 3 8 6 >`` is answered by ``8 5 1 <end>``. Whatever that was, the world says ``check and correct >``, which
tells nothing; then ``8 6 1 <end>`` ends all and earns 1 if it is right. The first attempt earns ``first`` if it is
right, by default nothing. Where ``bonus`` is not 0 progress, 1 if only the second attempt is right and -1 if only the
first was, is paid ``bonus`` times, at the end.

The demonstrator gets a digit wrong in ``wandering`` of its first attempts, and in as many of the second it only says
the first again. After SCoRe (Kumar et al., 2024), two attempts, the prompt between them, and the bonus (its alpha);
differs: sums in place of mathematics and programs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import DIGITS, before_end, digits, number
from thespis.envs.text.task import ASK, Heard, Manners, message


class Attempts(eqx.Module):
    """What is to be added, how many attempts there were, and the first: -1 if it was none or no number."""

    terms: Int[Array, "*episodes 2"]
    attempts: Int[Array, "*episodes"]
    first: Int[Array, "*episodes"]


class Correction(eqx.Module):
    """``figures``: digits of each of the two terms; ``bonus``: what progress is paid; ``first``: what a right first
    attempt is paid, at once; ``wandering``: how many err.
    """

    figures: int = eqx.field(static=True, default=3)
    bonus: float = 0.0
    first: float = 0.0
    wandering: float = 0.7

    @property
    def manners(self) -> Manners:
        """Digits and five words more."""
        words, n = (ASK, "+", "check", "and", "correct", *DIGITS), self.figures
        return Manners("text:correction", closed(words), 2, utterance=n + 2, opening=2 * n + 2, answer=4)

    def begin(self, key: Key[Array, ""]) -> tuple[Attempts, Int[Array, " opening"]]:
        """Any two numbers of so many digits."""
        told, n, zero = self.manners, self.figures, self.manners.id("0")
        terms = jax.random.randint(fold(key, "terms"), (2,), 10 ** (n - 1), 10**n)
        parts = digits(terms[0], n, zero), told.ids("+"), digits(terms[1], n, zero), told.ids(ASK)
        return Attempts(terms, jnp.zeros((), "int32"), -jnp.ones((), "int32")), message(told.opening, *parts)

    def hear(self, state: Attempts, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Attempts, Heard]:
        """The same words after every first attempt; the end after the second."""
        told, true = self.manners, state.terms.sum()
        claim, is_number = number(before_end(told, said)[0], told.id("0"))
        claim = jnp.where(is_number, claim, -1)
        second = state.attempts == 1
        right, was_right = (claim == true).astype("float32"), (state.first == true).astype("float32")
        reward = jnp.where(second, right + self.bonus * (right - was_right), self.first * right)
        answer = jnp.where(second, -1, jnp.asarray(told.ids(f"check and correct {ASK}")))
        first = jnp.where(second, state.first, claim)
        return Attempts(state.terms, state.attempts + 1, first), Heard(answer, reward, second)

    def expert(self, state: Attempts, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """The sum, with one digit changed now and then; later the sum, or what was said before."""
        told, true, n = self.manners, state.terms.sum(), self.figures + 1
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        power = 10 ** jax.random.randint(fold(key, "place"), (), 0, self.figures)
        figure = true // power % 10
        other = (figure + jax.random.randint(fold(key, "figure"), (), 1, 10)) % 10
        slip = jnp.where(state.attempts == 0, true + (other - figure) * power, jnp.maximum(state.first, 0))
        claim = jnp.where(wanders, slip, true)
        return message(told.utterance, digits(claim, n, told.id("0")), told.ids(END))

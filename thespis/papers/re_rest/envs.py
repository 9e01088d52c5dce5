"""Answers that are seldom right, with tests of their parts: an attempt, what its tests say, and another attempt.

``c >`` is answered by ``3 4 5 <end>``: a letter stands for a digit, from which the answer counts on, which nobody says.
An attempt is right if all of its digits are. Of a wrong one the environment repeats the digits that pass their test and
puts ``?`` in place of the others: ``3 ? 5 >`` after ``3 3 5``. Then a second attempt ends the episode.

The demonstrator does not know the rule: its first attempts are random digits, and its second ones keep what passed.
So a model that is pretrained on it succeeds about as often as chance, and knows what the tests mean.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

LETTERS = "abcdefghij"
FAILED = "?"
"""What the environment writes in place of a digit that fails its test."""


class CheckedAnswer(eqx.Module):
    """State of one episode: the letter of the prompt, whether there was an attempt, and its right digits (or -1)."""

    letter: Int[Array, "*episodes"]
    is_answered: Bool[Array, "*episodes"]
    right_digits: Int[Array, "*episodes digit"]


class CheckedCounting(eqx.Module):
    """Counting from a letter, ``num_digits`` digits modulo ``base``, with tests of each digit of a failed attempt.

    A right first attempt earns 1, a right second one ``second_reward``. ``demonstrator_noise``: the share of random
    digits in the demonstrator's attempts, of those that were not told.
    """

    num_digits: int = eqx.field(static=True, default=3)
    base: int = eqx.field(static=True, default=4)
    second_reward: float = 1.0
    demonstrator_noise: float = 1.0

    @property
    def task_spec(self) -> TaskSpec:
        """Letters, digits and two more words, and two attempts."""
        return TaskSpec(
            "text:checked-counting",
            word_vocabulary((RESPONSE_CUE, FAILED, *LETTERS[: self.base], *DIGITS[: self.base])),
            2,
            max_response_tokens=self.num_digits + 1,
            max_opening_tokens=2,
            max_message_tokens=self.num_digits + 1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[CheckedAnswer, Int[Array, " opening"]]:
        """A random letter as the prompt, not answered yet."""
        spec, letter = self.task_spec, jax.random.randint(fold(key, "letter"), (), 0, self.base)
        opening = pack_tokens(2, letter + spec.encode_word(LETTERS[0]), spec.encode(RESPONSE_CUE))
        return CheckedAnswer(letter, jnp.zeros((), bool), jnp.full(self.num_digits, -1)), opening

    def step(
        self, state: CheckedAnswer, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[CheckedAnswer, TaskStep]:
        """The end after a right attempt or the second one; else the results of the tests."""
        spec, solution = self.task_spec, self.solution(state.letter)
        tokens, length = cut_at_eos(spec, response)
        passes = tokens[: self.num_digits] - spec.encode_word(DIGITS[0]) == solution
        is_right = passes.all() & (length == self.num_digits)
        right_digits = jnp.where(passes, solution, -1)
        is_over = is_right | state.is_answered
        message = jnp.where(is_over, -1, self._write(right_digits, RESPONSE_CUE))
        reward = jnp.where(is_right, jnp.where(state.is_answered, self.second_reward, 1.0), 0.0)
        next_state = CheckedAnswer(state.letter, jnp.ones((), bool), right_digits)
        return next_state, TaskStep(message, reward.astype("float32"), is_over)

    def demonstrator_response(self, state: CheckedAnswer, key: Key[Array, ""]) -> Int[Array, " response"]:
        """What was told, and the right digits in place of what was not, a share of them random."""
        is_random = jax.random.uniform(fold(key, "wander"), (self.num_digits,)) < self.demonstrator_noise
        guess = jax.random.randint(fold(key, "guess"), (self.num_digits,), 0, self.base)
        values = jnp.where(is_random, guess, self.solution(state.letter))
        return self._write(jnp.where(state.right_digits >= 0, state.right_digits, values), END)

    def solution(self, letter: Int[Array, ""]) -> Int[Array, " digit"]:
        """The digits that follow a letter."""
        return (letter + 1 + jnp.arange(self.num_digits)) % self.base

    def _write(self, values: Int[Array, " digit"], last_word: str) -> Int[Array, " token"]:
        """The words of digits, ``?`` where one is -1, and one more word."""
        spec = self.task_spec
        words = jnp.where(values < 0, spec.encode_word(FAILED), values + spec.encode_word(DIGITS[0]))
        return pack_tokens(self.num_digits + 1, words, spec.encode(last_word))

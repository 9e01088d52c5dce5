"""Self-correction task: a sum, a first attempt at it, and a second attempt after a prompt to check it.

``4 7 5 + 3 8 6 >`` is answered by ``8 5 1 <end>``. Whatever that was, the environment says ``check and correct >``,
which reveals nothing; then ``8 6 1 <end>`` ends the episode and earns 1 if it is right. The first attempt earns
``first_reward`` if it is right, by default nothing. Where ``progress_bonus`` is not 0, progress (1 if only the second
attempt is right, -1 if only the first was) is paid ``progress_bonus`` times, at the end.

The demonstrator gets a digit wrong in a share ``demonstrator_noise`` of its first attempts, and in the same share of
second attempts it only repeats the first. With ``demonstrator_copies`` it cannot correct itself: it repeats the first
answer in this share of second attempts, right or wrong, and makes the others as if they were first ones. After SCoRe
(Kumar et al., 2024): two attempts, the prompt between them, and the bonus (its alpha). Differs from it: sums in place
of mathematics and programs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import (
    DIGITS,
    RESPONSE_CUE,
    TaskSpec,
    TaskStep,
    cut_at_eos,
    number_to_tokens,
    pack_tokens,
    tokens_to_number,
)
from thespis.runtime.keys import fold


class CorrectionState(eqx.Module):
    """State of one episode: the terms of the sum, the number of attempts, and the first answer.

    The answer is -1 if there was none or it was no number.
    """

    terms: Int[Array, "*episodes 2"]
    num_attempts: Int[Array, "*episodes"]
    first_answer: Int[Array, "*episodes"]


class Correction(eqx.Module):
    """Self-correction task: a sum, a first attempt at it, and a second attempt after a prompt to check it.

    ``num_digits``: digits of each of the two terms. ``progress_bonus``: weight of the reward for progress.
    ``first_reward``: what a right first attempt earns, at once. ``demonstrator_noise``: the share of attempts in which
    the demonstrator errs. ``demonstrator_copies``: the share of second attempts in which the demonstrator repeats its
    first answer, where it makes the others as first attempts; ``None``: it corrects its errors, except for its noise.
    """

    num_digits: int = eqx.field(static=True, default=3)
    progress_bonus: float = 0.0
    first_reward: float = 0.0
    demonstrator_noise: float = 0.7
    demonstrator_copies: float | None = None

    @property
    def task_spec(self) -> TaskSpec:
        """Digits and five more words."""
        words, n = (RESPONSE_CUE, "+", "check", "and", "correct", *DIGITS), self.num_digits
        return TaskSpec(
            "text:correction",
            word_vocabulary(words),
            2,
            max_response_tokens=n + 2,
            max_opening_tokens=2 * n + 2,
            max_message_tokens=4,
        )

    def init(self, key: Key[Array, ""]) -> tuple[CorrectionState, Int[Array, " opening"]]:
        """Two random numbers of ``num_digits`` digits."""
        spec, n, zero = self.task_spec, self.num_digits, self.task_spec.encode_word("0")
        terms = jax.random.randint(fold(key, "terms"), (2,), 10 ** (n - 1), 10**n)
        parts = (
            number_to_tokens(terms[0], n, zero),
            spec.encode("+"),
            number_to_tokens(terms[1], n, zero),
            spec.encode(RESPONSE_CUE),
        )
        return CorrectionState(terms, jnp.zeros((), "int32"), -jnp.ones((), "int32")), pack_tokens(
            spec.max_opening_tokens, *parts
        )

    def step(
        self, state: CorrectionState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[CorrectionState, TaskStep]:
        """The same prompt after every first attempt; the end after the second."""
        spec, total = self.task_spec, state.terms.sum()
        value, is_number = tokens_to_number(cut_at_eos(spec, response)[0], spec.encode_word("0"))
        value = jnp.where(is_number, value, -1)
        is_second = state.num_attempts == 1
        correct, first_correct = (value == total).astype("float32"), (state.first_answer == total).astype("float32")
        reward = jnp.where(
            is_second, correct + self.progress_bonus * (correct - first_correct), self.first_reward * correct
        )
        message = jnp.where(is_second, -1, jnp.asarray(spec.encode(f"check and correct {RESPONSE_CUE}")))
        first_answer = jnp.where(is_second, state.first_answer, value)
        return CorrectionState(state.terms, state.num_attempts + 1, first_answer), TaskStep(message, reward, is_second)

    def demonstrator_response(self, state: CorrectionState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The sum, at times with one digit changed, or in a second attempt the first answer."""
        spec, total, n = self.task_spec, state.terms.sum(), self.num_digits + 1
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        power = 10 ** jax.random.randint(fold(key, "place"), (), 0, self.num_digits)
        digit = total // power % 10
        new_digit = (digit + jax.random.randint(fold(key, "figure"), (), 1, 10)) % 10
        is_second, first_answer = state.num_attempts > 0, jnp.maximum(state.first_answer, 0)
        misread = total + (new_digit - digit) * power
        if self.demonstrator_copies is None:
            answer = jnp.where(is_noise, jnp.where(is_second, first_answer, misread), total)
        else:
            copies = is_second & (jax.random.uniform(fold(key, "same")) < self.demonstrator_copies)
            answer = jnp.where(copies, first_answer, jnp.where(is_noise, misread, total))
        return pack_tokens(
            spec.max_response_tokens, number_to_tokens(answer, n, spec.encode_word("0")), spec.encode(END)
        )

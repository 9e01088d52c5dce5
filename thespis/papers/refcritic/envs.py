"""Successor task: lists of digits with a slip in one step, and lessons that rarely find it.

``4 0 2 >`` is answered by ``0 1 3 <end>``, the successor of each digit modulo ``base``, which earns 1. A slip leaves
one digit unreduced, ``0 6 3 <end>``, which can be seen in the answer alone. So a critique has two parts: whether the
answer is right, and if not, which step is wrong.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.derivation import WORDS, noisy_verdict, read_values, read_verdict, write_values, write_verdict
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


class DigitList(eqx.Module):
    """A list of digits, the step of its slip, and the share of answers with that slip."""

    digits: Int[Array, "*episodes step"]
    slip_step: Int[Array, "*episodes"]
    slip_share: Float[Array, "*episodes"]


class Successors(eqx.Module):
    """Successor task: a list of digits is answered by the successor of each, modulo ``base``.

    Every list has one tempting wrong answer, in which one digit is ``base`` too large; the demonstrator gives it in a
    share of its answers that differs between lists, uniformly from ``slip_shares``. Its critiques are lessons of a
    superficial critic: a share ``critic_noise`` is any verdict; of the others a share ``leniency`` says ``right``,
    whatever the answer is, and of the rest that find an error a share ``habit`` names the first step, wherever the
    error is. After a critique the demonstrator changes the named step and nothing else, to a random digit in a share
    ``revision_noise`` of the cases.
    """

    num_steps: int = eqx.field(static=True, default=3)
    base: int = eqx.field(static=True, default=5)
    slip_shares: tuple[float, float] = eqx.field(static=True, default=(0.3, 0.9))
    critic_noise: float = 0.25
    leniency: float = 0.6
    habit: float = 0.6
    revision_noise: float = 0.2

    def __check_init__(self):
        """Raise ``ValueError`` where a slip is no digit."""
        if not 2 <= self.base <= 5:
            raise ValueError(f"base={self.base}: 2 to 5, as a slip adds it to a digit below it")

    @property
    def task_spec(self) -> TaskSpec:
        """The words of derivations, of which a list needs the digits and the verdicts."""
        return TaskSpec(
            "text:successors",
            word_vocabulary(WORDS),
            1,
            max_response_tokens=self.num_steps + 1,
            max_opening_tokens=self.num_steps + 1,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[DigitList, Int[Array, " opening"]]:
        """A random list as the prompt."""
        spec, count = self.task_spec, self.num_steps
        digits = jax.random.randint(fold(key, "digits"), (count,), 0, self.base)
        step = jax.random.randint(fold(key, "slip step"), (), 0, count)
        low, high = self.slip_shares
        share = jax.random.uniform(fold(key, "slip share"), (), minval=low, maxval=high)
        opening = pack_tokens(spec.max_opening_tokens, digits + spec.encode_word("0"), spec.encode(RESPONSE_CUE))
        return DigitList(digits, step, share), opening

    def successors(self, state: DigitList) -> Int[Array, " step"]:
        """The successor of each digit, which is the right answer."""
        return (state.digits + 1) % self.base

    def step(
        self, state: DigitList, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DigitList, TaskStep]:
        """The end, and 1 for the right answer."""
        is_right = (read_values(self.task_spec, response, self.num_steps) == self.successors(state)).all()
        return state, TaskStep(-jnp.ones(1, "int32"), is_right.astype("float32"), jnp.ones((), bool))

    def demonstrator_response(self, state: DigitList, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The right answer, or the list's wrong one."""
        right = self.successors(state)
        is_wrong = jax.random.uniform(fold(key, "wander")) < state.slip_share
        wrong = right.at[state.slip_step].add(self.base)
        return write_values(self.task_spec, jnp.where(is_wrong, wrong, right))

    def first_error(self, state: DigitList, answer: Int[Array, " response"]) -> Int[Array, ""]:
        """Index of the first wrong step of an answer; the number of steps if there is none."""
        wrong = read_values(self.task_spec, answer, self.num_steps) != self.successors(state)
        return jnp.where(wrong.any(), jnp.argmax(wrong), self.num_steps).astype("int32")

    def demonstrator_critique(
        self, state: DigitList, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """The verdict of a superficial critic."""
        spec, count = self.task_spec, self.num_steps
        error = self.first_error(state, answer)
        has_habit = jax.random.uniform(fold(key, "habit")) < self.habit
        named = jnp.where(has_habit & (error < count), 0, error)
        is_lenient = jax.random.uniform(fold(key, "leniency")) < self.leniency
        verdict = noisy_verdict(jnp.where(is_lenient, count, named), count, self.critic_noise, key)
        return pack_tokens(3, write_verdict(spec, verdict, count), spec.encode(END))

    def named_step(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """Index of the step that a critique calls wrong; the number of steps for ``right``, -1 if it is no verdict."""
        return read_verdict(self.task_spec, critique, self.num_steps)

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of an answer: 1 that it is right, 0 that a step is wrong, -1 if it is no verdict."""
        verdict = self.named_step(critique)
        return jnp.where(verdict < 0, -1, (verdict == self.num_steps).astype("int32"))

    def demonstrator_revision(
        self, state: DigitList, answer: Int[Array, " response"], critique: Int[Array, " critique"], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The answer with the named step made right, or with a random digit there; the same if no step is named."""
        spec, values = self.task_spec, read_values(self.task_spec, answer, self.num_steps)
        is_random = jax.random.uniform(fold(key, "wander")) < self.revision_noise
        digit = jax.random.randint(fold(key, "digit"), (), 0, self.base)
        is_named = jnp.arange(self.num_steps) == self.named_step(critique)
        changed = jnp.where(is_random, digit, self.successors(state))
        return write_values(spec, jnp.where(is_named | (values < 0), changed, values))

"""Hidden-rule task: name the digit that a hidden rule picks.

``4 2 7 >`` is answered by ``7 <end>``, which ends the episode and earns 1 if the hidden rule picks 7. The rule picks
the first digit, the last, the largest or the smallest; the digits differ, and two rules can pick the same one. Nothing
in the prompt says which rule it is: who does not know can only guess.

It is the smallest task in which a failed attempt teaches something. A wrong answer is followed by ``more`` or ``less``,
which says whether the right digit is larger or smaller, in conversations that allow a second try
(:class:`~thespis.envs.text.retry.RetryConversation`). It leaves some of the rules, and a hint, ``largest <end>``, can
name one of them. How often each hint leads to the right digit is known exactly (:meth:`HiddenRule.hint_accuracies`).
The demonstrator knows the rule; it answers and hints as a teacher does.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

RULES = ("first", "last", "largest", "smallest")
"""Names of the rules, which are the hints."""
MORE, LESS = "more", "less"
"""What is said of a wrong answer: the right digit is larger, or smaller."""


class HiddenRuleState(eqx.Module):
    """State of one episode: the digits of the prompt, and the index of the rule."""

    digits: Int[Array, "*episodes digit"]
    rule: Int[Array, "*episodes"]


class HiddenRule(eqx.Module):
    """Hidden-rule task: name the digit that a hidden rule picks.

    ``num_digits``: different digits in a prompt, 2 to ``base``. ``base``: the digits that there are, up to 10.
    ``demonstrator_noise``: the share of the demonstrator's answers that are another digit of the prompt.
    ``critic_noise``: the share of its hints that are random, any of the rules or none; the others name the hidden rule.
    """

    num_digits: int = eqx.field(static=True, default=3)
    base: int = eqx.field(static=True, default=10)
    demonstrator_noise: float = 0.7
    critic_noise: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` where the digits of a prompt cannot all differ."""
        if not 2 <= self.num_digits <= self.base <= len(DIGITS):
            raise ValueError(
                f"num_digits={self.num_digits}, base={self.base}: 2 or more digits, at most base, up to 10"
            )

    @property
    def task_spec(self) -> TaskSpec:
        """Rules, digits and what is said of an answer."""
        return TaskSpec(
            "text:hidden-rule",
            word_vocabulary((RESPONSE_CUE, *RULES, MORE, LESS, *DIGITS)),
            1,
            max_response_tokens=2,
            max_opening_tokens=self.num_digits + 1,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[HiddenRuleState, Int[Array, " opening"]]:
        """Different digits in a random order as the prompt, and any of the rules."""
        spec = self.task_spec
        digits = jax.random.permutation(fold(key, "digits"), self.base)[: self.num_digits]
        rule = jax.random.randint(fold(key, "rule"), (), 0, len(RULES))
        opening = pack_tokens(spec.max_opening_tokens, digits + spec.encode_word(DIGITS[0]), spec.encode(RESPONSE_CUE))
        return HiddenRuleState(digits, rule), opening

    def step(
        self, state: HiddenRuleState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[HiddenRuleState, TaskStep]:
        """The end, with 1 for the digit that the rule picks."""
        is_right = self.read_answer(response) == self.picked_digits(state.digits)[state.rule]
        return state, TaskStep(-jnp.ones(1, "int32"), is_right.astype("float32"), jnp.ones((), bool))

    def picked_digits(self, digits: Int[Array, " digit"]) -> Int[Array, " rule"]:
        """The digit that each rule picks."""
        return jnp.stack([digits[0], digits[-1], digits.max(), digits.min()])

    def read_answer(self, response: Int[Array, " response"]) -> Int[Array, ""]:
        """The digit that a response names; -1 if it is none."""
        words, length = cut_at_eos(self.task_spec, response)
        digit = words[0] - self.task_spec.encode_word(DIGITS[0])
        return jnp.where((length == 1) & (digit >= 0) & (digit < len(DIGITS)), digit, -1)

    def read_hint(self, hint: Int[Array, " hint"]) -> Int[Array, ""]:
        """The index of the rule that a hint names; -1 if it names none."""
        words, length = cut_at_eos(self.task_spec, hint)
        index = words[0] - self.task_spec.encode_word(RULES[0])
        return jnp.where((length == 1) & (index >= 0) & (index < len(RULES)), index, -1)

    def attempt_feedback(self, state: HiddenRuleState, answer: Int[Array, " response"]) -> Int[Array, " 1"]:
        """Whether the right digit is larger or smaller than the answer; nothing of an answer without a digit."""
        spec, digit = self.task_spec, self.read_answer(answer)
        right = self.picked_digits(state.digits)[state.rule]
        word = jnp.where(right > digit, spec.encode_word(MORE), spec.encode_word(LESS))
        return jnp.where((digit < 0) | (digit == right), -1, word)[None].astype("int32")

    def hint_accuracies(
        self, digits: Int[Array, " digit"], answer: Int[Array, ""], feedback: Int[Array, ""]
    ) -> Float[Array, " rule"]:
        """How often the digit of each rule is the right one, after a wrong answer and what is said of it: exact.

        ``answer``: the digit; ``feedback``: the token of :meth:`attempt_feedback`, or -1. By Bayes' rule for who does
        not know the rule: all rules that agree with what is said are equally likely.
        """
        spec, picked = self.task_spec, self.picked_digits(digits)
        is_more, is_less = feedback == spec.encode_word(MORE), feedback == spec.encode_word(LESS)
        agrees = jnp.where(is_more, picked > answer, jnp.where(is_less, picked < answer, True))
        is_right = (picked[:, None] == picked[None]) & agrees
        return is_right.sum(axis=1) / jnp.maximum(agrees.sum(), 1)

    def demonstrator_response(self, state: HiddenRuleState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The right digit, at times another one of the prompt."""
        right = self.picked_digits(state.digits)[state.rule]
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        others = jnp.where(state.digits == right, -jnp.inf, 0.0)
        other = state.digits[jax.random.categorical(fold(key, "other"), others)]
        return self._write_digit(jnp.where(is_noise, other, right))

    def demonstrator_critique(
        self, state: HiddenRuleState, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " hint"]:
        """A hint: the name of the hidden rule, at times any rule's or none."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "wander")) < self.critic_noise
        guess = jax.random.randint(fold(key, "guess"), (), 0, len(RULES) + 1)
        hint = jnp.where(is_noise, guess, state.rule)
        word = jnp.where(hint < len(RULES), spec.encode_word(RULES[0]) + hint, -1)
        return pack_tokens(2, word, spec.encode(END))

    def demonstrator_revision(
        self,
        state: HiddenRuleState,
        answer: Int[Array, " response"],
        critique: Int[Array, " hint"],
        key: Key[Array, ""],
    ) -> Int[Array, " response"]:
        """The digit that the hinted rule picks; without a hint that of a random rule."""
        hint = self.read_hint(critique)
        rule = jnp.where(hint >= 0, hint, jax.random.randint(fold(key, "guess"), (), 0, len(RULES)))
        return self._write_digit(self.picked_digits(state.digits)[rule])

    def _write_digit(self, digit: Int[Array, ""]) -> Int[Array, " response"]:
        """The response with this digit."""
        spec = self.task_spec
        return pack_tokens(spec.max_response_tokens, spec.encode_word(DIGITS[0]) + digit, spec.encode(END))

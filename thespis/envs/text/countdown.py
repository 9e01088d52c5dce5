"""Countdown task: make a target number out of given numbers, each used at most once, with +, - and *.

``make 2 4 from 3 9 3 >`` is answered by ``3 9 * 3 - <end>``, in postfix notation: an operator stands behind its two
operands, so no brackets are needed. Making the target earns 1. An expression with another value is answered by
``gives 2 7 >``, anything else by ``wrong >``; there are a few attempts. Numbers are 1 to 9. The target is 1 to 99, can
be made of all numbers together, and is none of them.

The demonstrator samples one of the expressions that make the target, but a share ``demonstrator_noise`` of its attempts
are random expressions of all numbers. After the numbers game of the television programme, as in TinyZero (Pan et al.,
2025). Differs from it: smaller numbers, no division, postfix notation, several attempts whose value is reported.
"""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, number_to_tokens, pack_tokens
from thespis.runtime.keys import fold

OPERATORS = "+-*"
_MAX_TARGET = 99


class CountdownState(eqx.Module):
    """State of one episode: the given numbers (1 to 9), the target, and the number of attempts so far."""

    numbers: Int[Array, "*episodes number"]
    target: Int[Array, "*episodes"]
    num_attempts: Int[Array, "*episodes"]


class Countdown(eqx.Module):
    """Countdown task: make a target number out of given numbers with +, - and *.

    ``num_numbers``: how many numbers are given (2 to 4). ``max_turns``: attempts. ``demonstrator_noise``: the share of
    the demonstrator's attempts that are random.
    """

    num_numbers: int = eqx.field(static=True, default=3)
    max_turns: int = eqx.field(static=True, default=3)
    demonstrator_noise: float = 0.85

    @property
    def task_spec(self) -> TaskSpec:
        """Digits, operators and five more words."""
        words = (RESPONSE_CUE, "make", "from", "gives", "wrong", *DIGITS, *OPERATORS)
        n = self.num_numbers
        return TaskSpec(
            "text:countdown",
            word_vocabulary(words),
            self.max_turns,
            2 * n,
            max_opening_tokens=n + 5,
            max_message_tokens=n + 3,
        )

    def init(self, key: Key[Array, ""]) -> tuple[CountdownState, Int[Array, " opening"]]:
        """Random numbers, and as target the value of a random allowed expression of them all."""
        spec = self.task_spec
        numbers = jax.random.randint(fold(key, "given"), (self.num_numbers,), 1, 10)
        values, _ = jax.vmap(self.evaluate_expression, in_axes=(0, None))(self._expression_tokens(numbers), numbers)
        allowed = (values >= 1) & (values <= _MAX_TARGET) & (values[:, None] != numbers).all(axis=-1)
        target = values[jax.random.categorical(fold(key, "target"), jnp.where(allowed, 0.0, -jnp.inf))]
        zero = spec.encode_word("0")
        parts = (
            spec.encode("make"),
            number_to_tokens(target, 2, zero),
            spec.encode("from"),
            zero + numbers,
            spec.encode(RESPONSE_CUE),
        )
        return CountdownState(numbers, target, jnp.zeros((), "int32")), pack_tokens(spec.max_opening_tokens, *parts)

    def step(
        self, state: CountdownState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[CountdownState, TaskStep]:
        """The value of an attempt."""
        spec = self.task_spec
        tokens, _ = cut_at_eos(spec, response)
        value, is_valid = self.evaluate_expression(tokens[:-1], state.numbers)
        correct, attempts = is_valid & (value == state.target), state.num_attempts + 1
        done = correct | (attempts >= self.max_turns)
        sign = jnp.where(value < 0, spec.encode_word("-"), -1)
        digits = number_to_tokens(jnp.abs(value), self.num_numbers, spec.encode_word("0"))
        value_message = pack_tokens(
            spec.max_message_tokens, spec.encode("gives"), sign, digits, spec.encode(RESPONSE_CUE)
        )
        message = jnp.where(
            is_valid, value_message, pack_tokens(spec.max_message_tokens, spec.encode(f"wrong {RESPONSE_CUE}"))
        )
        outcome = TaskStep(jnp.where(done, -1, message), correct.astype("float32"), done)
        return CountdownState(state.numbers, state.target, attempts), outcome

    def demonstrator_response(self, state: CountdownState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """A random expression among those that make the target, or among all."""
        spec, expressions = self.task_spec, self._expression_tokens(state.numbers)
        values, _ = jax.vmap(self.evaluate_expression, in_axes=(0, None))(expressions, state.numbers)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        logits = jnp.where((values == state.target) | is_noise, 0.0, -jnp.inf)
        return pack_tokens(
            spec.max_response_tokens, expressions[jax.random.categorical(fold(key, "lot"), logits)], spec.encode(END)
        )

    def evaluate_expression(
        self, tokens: Int[Array, " n"], numbers: Int[Array, " number"]
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The value of a postfix expression padded with -1, and whether it is valid (uses numbers at most once)."""
        spec = self.task_spec
        digits, operators = tokens - spec.encode_word("0"), tokens - spec.encode_word(OPERATORS[0])
        is_number, is_operator = (digits > 0) & (digits < 10), (operators >= 0) & (operators < len(OPERATORS))
        valid = ((tokens < 0) | is_number | is_operator).all()
        is_digit = (digits[:, None] == jnp.arange(1, 10)) & is_number[:, None]
        valid &= (is_digit.sum(axis=0) <= (numbers[:, None] == jnp.arange(1, 10)).sum(axis=0)).all()
        # Two more entries, to look below the last operand.
        stack, depth = jnp.zeros(tokens.shape[0] + 2, "int32"), jnp.zeros((), "int32")
        for i in range(tokens.shape[0]):
            a, b = stack[depth], stack[depth + 1]
            result = jnp.stack([a + b, a - b, a * b])[jnp.clip(operators[i], 0, len(OPERATORS) - 1)]
            valid &= ~is_operator[i] | (depth >= 2)
            depth += jnp.where(is_number[i], 1, jnp.where(is_operator[i], -1, 0))
            depth = jnp.maximum(depth, 0)
            stack = jnp.where(
                tokens[i] < 0, stack, stack.at[depth + 1].set(jnp.where(is_operator[i], result, digits[i]))
            )
        valid &= depth == 1
        return jnp.where(valid, stack[2], 0), valid

    def _expression_tokens(self, given: Int[Array, " number"]) -> Int[Array, "expression n"]:
        """Tokens of all expressions of all given numbers."""
        spec, forms = self.task_spec, jnp.asarray(all_expressions(self.num_numbers))
        numbers = spec.encode_word("0") + given[jnp.clip(forms, 0, self.num_numbers - 1)]
        return jnp.where(forms < self.num_numbers, numbers, spec.encode_word(OPERATORS[0]) + forms - self.num_numbers)


@functools.cache
def all_expressions(num_numbers: int) -> np.ndarray:
    """Enumerate all postfix expressions of ``num_numbers`` numbers, as indices.

    An entry is the index of a number, or ``num_numbers`` plus that of an operator.
    """

    def shapes(ahead: int, left: int) -> list[list[bool]]:
        """All patterns of numbers (True) and operators: ``ahead`` values are on the stack, ``left`` are to come."""
        if not ahead + left - 1:
            return [[]] if not left else [[True]]
        longer = [[True, *rest] for rest in shapes(ahead + 1, left - 1)] if left else []
        return longer + ([[False, *rest] for rest in shapes(ahead - 1, left)] if ahead > 1 else [])

    rows = []
    for shape in shapes(0, num_numbers):
        for order in itertools.permutations(range(num_numbers)):
            for operators in itertools.product(range(len(OPERATORS)), repeat=num_numbers - 1):
                number_iter, operator_iter = iter(order), iter(operators)
                rows.append(
                    [next(number_iter) if is_number else num_numbers + next(operator_iter) for is_number in shape]
                )
    return np.array(rows, "int32")

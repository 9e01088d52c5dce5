"""Calculator task: a two-step arithmetic problem with a calculator tool that computes one step per call.

``what is 4 7 * 8 3 then - 6 >`` is answered by ``call 4 7 * 8 3 <end>``, then by ``result 3 9 0 1 >``;
``call 3 9 0 1 - 6 <end>`` returns ``result 3 8 9 5 >``, and ``answer 3 8 9 5 <end>`` ends the episode and earns 1 if it
is right. What is neither a call nor an answer is answered by ``error >``. Each takes one of the turns. The factors have
two digits, followed by +, - or * and a number from 2 to 9.

The demonstrator calls, copies and answers, but in a share ``demonstrator_noise`` of its turns it mistypes the first
number of a call, or answers with the last result, or with a random number if there is none. After the calculator calls
of Toolformer (Schick et al., 2023). Differs from it: calls are turns of a conversation, and are learned from whether
the answer is right.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

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

OPERATORS = "+-*"
_MAX_DIGITS = 5


class CalculatorState(eqx.Module):
    """State of one episode: the problem, the last result of the tool, and whether it was called.

    A problem has two factors, an operator and a last number.
    """

    factors: Int[Array, "*episodes 2"]
    operator: Int[Array, "*episodes"]
    last_number: Int[Array, "*episodes"]
    result: Int[Array, "*episodes"]
    called: Bool[Array, "*episodes"]
    turn: Int[Array, "*episodes"]

    @property
    def product(self) -> Int[Array, "*episodes"]:
        """The result of the first step."""
        return self.factors[..., 0] * self.factors[..., 1]

    @property
    def correct_answer(self) -> Int[Array, "*episodes"]:
        """The result of both steps."""
        return apply_operator(self.operator, self.product, self.last_number)


def apply_operator(operator: Int[Array, ""], a: Int[Array, ""], b: Int[Array, ""]) -> Int[Array, ""]:
    """Apply an operator: ``a + b``, ``a - b`` or ``a * b`` for ``operator`` 0, 1 or 2."""
    return jnp.stack([a + b, a - b, a * b])[operator]


class Calculator(eqx.Module):
    """Calculator task: a two-step arithmetic problem with a calculator tool.

    ``max_turns``: calls and answer together. ``demonstrator_noise``: the share of turns in which the demonstrator errs.
    """

    max_turns: int = eqx.field(static=True, default=4)
    demonstrator_noise: float = 0.25

    @property
    def task_spec(self) -> TaskSpec:
        """Digits, operators and eight more words."""
        words = (RESPONSE_CUE, "what", "is", "then", "call", "result", "answer", "error", *DIGITS, *OPERATORS)
        vocabulary = word_vocabulary(words)
        return TaskSpec(
            "text:calculator",
            vocabulary,
            self.max_turns,
            max_response_tokens=_MAX_DIGITS + 3,
            max_opening_tokens=11,
            max_message_tokens=_MAX_DIGITS + 2,
        )

    def init(self, key: Key[Array, ""]) -> tuple[CalculatorState, Int[Array, " opening"]]:
        """Random factors, operator and last number."""
        spec, zero = self.task_spec, self.task_spec.encode_word("0")
        a, b = factors = jax.random.randint(fold(key, "factors"), (2,), 10, 100)
        operator = jax.random.randint(fold(key, "operator"), (), 0, len(OPERATORS))
        c = jax.random.randint(fold(key, "last"), (), 2, 10)
        first = spec.encode("what is"), number_to_tokens(a, 2, zero), spec.encode("*"), number_to_tokens(b, 2, zero)
        second = spec.encode("then"), spec.encode_word(OPERATORS[0]) + operator, zero + c, spec.encode(RESPONSE_CUE)
        nothing = jnp.zeros((), "int32")
        problem = CalculatorState(factors, operator, c, nothing, jnp.zeros((), bool), nothing)
        return problem, pack_tokens(spec.max_opening_tokens, *first, *second)

    def step(
        self, state: CalculatorState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[CalculatorState, TaskStep]:
        """The result of a call, or whether the answer is right."""
        spec, zero = self.task_spec, self.task_spec.encode_word("0")
        tokens, _ = cut_at_eos(spec, response)
        is_call, result = self._parse_call(tokens)
        answer, is_number = tokens_to_number(tokens[1:], zero)
        is_answer = (tokens[0] == spec.encode_word("answer")) & is_number
        correct, turn = is_answer & (answer == state.correct_answer), state.turn + 1
        done = is_answer | (turn >= self.max_turns)
        sign = jnp.where(result < 0, spec.encode_word("-"), -1)
        parts = (
            spec.encode("result"),
            sign,
            number_to_tokens(jnp.abs(result), _MAX_DIGITS, zero),
            spec.encode(RESPONSE_CUE),
        )
        message = jnp.where(
            is_call,
            pack_tokens(spec.max_message_tokens, *parts),
            pack_tokens(spec.max_message_tokens, spec.encode(f"error {RESPONSE_CUE}")),
        )
        result = jnp.where(is_call, result, state.result)
        new_state = CalculatorState(
            state.factors, state.operator, state.last_number, result, state.called | is_call, turn
        )
        return new_state, TaskStep(jnp.where(done, -1, message), correct.astype("float32"), done)

    def demonstrator_response(self, state: CalculatorState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The next call or the answer, with occasional errors."""
        spec, zero = self.task_spec, self.task_spec.encode_word("0")
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        answers_early = jax.random.bernoulli(fold(key, "haste"))
        is_second = state.called & (state.result == state.product)
        random_numbers = jax.random.randint(fold(key, "slip"), (2,), 0, jnp.array([10**2, 10**4]))
        a = jnp.where(is_second, state.product, state.factors[0])
        a = jnp.where(is_noise, jnp.where(is_second, random_numbers[1], random_numbers[0]), a)
        b = number_to_tokens(jnp.where(is_second, state.last_number, state.factors[1]), 2, zero)
        operator = spec.encode_word(OPERATORS[0]) + jnp.where(is_second, state.operator, OPERATORS.index("*"))
        call = pack_tokens(
            spec.max_response_tokens, spec.encode("call"), number_to_tokens(a, 4, zero), operator, b, spec.encode(END)
        )
        ready = state.called & (state.result == state.correct_answer)
        result = jnp.where(state.called, jnp.abs(state.result), random_numbers[1])
        answer = pack_tokens(
            spec.max_response_tokens,
            spec.encode("answer"),
            number_to_tokens(result, _MAX_DIGITS, zero),
            spec.encode(END),
        )
        return jnp.where(jnp.where(is_noise, answers_early, ready), answer, call)

    def _parse_call(self, spoken: Int[Array, " response"]) -> tuple[Bool[Array, ""], Int[Array, ""]]:
        """Whether a response is a call with two numbers around an operator, and its result."""
        spec, arguments = self.task_spec, spoken[1:]
        operators = arguments - spec.encode_word(OPERATORS[0])
        is_operator = (operators >= 0) & (operators < len(OPERATORS))
        at, positions = jnp.argmax(is_operator), np.arange(arguments.shape[0])
        a, first = tokens_to_number(jnp.where(positions < at, arguments, -1), spec.encode_word("0"))
        b, second = tokens_to_number(jnp.where(positions > at, arguments, -1), spec.encode_word("0"))
        is_call = (spoken[0] == spec.encode_word("call")) & is_operator.any() & first & second
        value = apply_operator(jnp.clip(operators[at], 0, len(OPERATORS) - 1), a, b)
        return is_call, jnp.where(is_call, value, 0)

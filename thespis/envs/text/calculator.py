"""Calculator: a problem in two steps, too large for the head, and a tool that computes one step when it is called.

``what is 4 7 * 8 3 then - 6 >`` is answered by ``call 4 7 * 8 3 <end>``, then by ``result 3 9 0 1 >``;
``call 3 9 0 1 - 6 <end>`` brings ``result 3 8 9 5 >``, and ``answer 3 8 9 5 <end>`` ends all and earns 1 if it is
right. What is neither a call nor an answer is heard as ``error >``. Each takes one of the turns. The factors have two
digits, what follows is + - or * and a number from 2 to 9.

The demonstrator calls, copies and answers, but in ``wandering`` of its turns it mistypes the first number of a call,
or answers with what it heard last, or with any number if it has heard none. After the calculator calls of Toolformer
(Schick et al., 2023); differs: calls are turns of a conversation, and learnt from whether the answer is right.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import DIGITS, before_end, digits, number
from thespis.envs.text.task import ASK, Heard, Manners, message

OPERATORS = "+-*"
_SIZE = 5


class Problem(eqx.Module):
    """Two factors, then an operator and a last number; what the tool gave last, and whether it was called at all."""

    factors: Int[Array, "*episodes 2"]
    operator: Int[Array, "*episodes"]
    last_number: Int[Array, "*episodes"]
    result: Int[Array, "*episodes"]
    called: Bool[Array, "*episodes"]
    turn: Int[Array, "*episodes"]

    @property
    def product(self) -> Int[Array, "*episodes"]:
        """What the first step comes to."""
        return self.factors[..., 0] * self.factors[..., 1]

    @property
    def answer(self) -> Int[Array, "*episodes"]:
        """What both come to."""
        return done(self.operator, self.product, self.last_number)


def done(operator: Int[Array, ""], a: Int[Array, ""], b: Int[Array, ""]) -> Int[Array, ""]:
    """``a`` and ``b`` added, subtracted or multiplied."""
    return jnp.stack([a + b, a - b, a * b])[operator]


class Calculator(eqx.Module):
    """``turns``: calls and answer together; ``wandering``: in how many of them the demonstrator errs."""

    turns: int = eqx.field(static=True, default=4)
    wandering: float = 0.25

    @property
    def manners(self) -> Manners:
        """Digits, operators and eight words more."""
        words = (ASK, "what", "is", "then", "call", "result", "answer", "error", *DIGITS, *OPERATORS)
        told = closed(words)
        return Manners("text:calculator", told, self.turns, utterance=_SIZE + 3, opening=11, answer=_SIZE + 2)

    def begin(self, key: Key[Array, ""]) -> tuple[Problem, Int[Array, " opening"]]:
        """Any numbers and operators."""
        told, zero = self.manners, self.manners.id("0")
        a, b = factors = jax.random.randint(fold(key, "factors"), (2,), 10, 100)
        operator = jax.random.randint(fold(key, "operator"), (), 0, len(OPERATORS))
        c = jax.random.randint(fold(key, "last"), (), 2, 10)
        first = told.ids("what is"), digits(a, 2, zero), told.ids("*"), digits(b, 2, zero)
        then = told.ids("then"), told.id(OPERATORS[0]) + operator, zero + c, told.ids(ASK)
        nothing = jnp.zeros((), "int32")
        problem = Problem(factors, operator, c, nothing, jnp.zeros((), bool), nothing)
        return problem, message(told.opening, *first, *then)

    def hear(self, state: Problem, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Problem, Heard]:
        """A call's result, or whether the answer is right."""
        told, zero = self.manners, self.manners.id("0")
        spoken, _ = before_end(told, said)
        calls, result = self._called(spoken)
        claim, is_number = number(spoken[1:], zero)
        answers = (spoken[0] == told.id("answer")) & is_number
        right, turn = answers & (claim == state.answer), state.turn + 1
        over = answers | (turn >= self.turns)
        minus = jnp.where(result < 0, told.id("-"), -1)
        parts = told.ids("result"), minus, digits(jnp.abs(result), _SIZE, zero), told.ids(ASK)
        reply = jnp.where(calls, message(told.answer, *parts), message(told.answer, told.ids(f"error {ASK}")))
        result = jnp.where(calls, result, state.result)
        called = Problem(state.factors, state.operator, state.last_number, result, state.called | calls, turn)
        return called, Heard(jnp.where(over, -1, reply), right.astype("float32"), over)

    def expert(self, state: Problem, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """The next call, or the answer; with an error now and then."""
        told, zero = self.manners, self.manners.id("0")
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        hasty = jax.random.bernoulli(fold(key, "haste"))
        second = state.called & (state.result == state.product)
        slip = jax.random.randint(fold(key, "slip"), (2,), 0, jnp.array([10**2, 10**4]))
        a = jnp.where(second, state.product, state.factors[0])
        a = jnp.where(wanders, jnp.where(second, slip[1], slip[0]), a)
        b = digits(jnp.where(second, state.last_number, state.factors[1]), 2, zero)
        mark = told.id(OPERATORS[0]) + jnp.where(second, state.operator, OPERATORS.index("*"))
        call = message(told.utterance, told.ids("call"), digits(a, 4, zero), mark, b, told.ids(END))
        ready = state.called & (state.result == state.answer)
        claim = jnp.where(state.called, jnp.abs(state.result), slip[1])
        answer = message(told.utterance, told.ids("answer"), digits(claim, _SIZE, zero), told.ids(END))
        return jnp.where(jnp.where(wanders, hasty, ready), answer, call)

    def _called(self, spoken: Int[Array, " utterance"]) -> tuple[Bool[Array, ""], Int[Array, ""]]:
        """Whether an utterance is a call, two numbers around an operator, and what it comes to."""
        told, rest = self.manners, spoken[1:]
        marks = rest - told.id(OPERATORS[0])
        is_mark = (marks >= 0) & (marks < len(OPERATORS))
        at, place = jnp.argmax(is_mark), np.arange(rest.shape[0])
        a, first = number(jnp.where(place < at, rest, -1), told.id("0"))
        b, second = number(jnp.where(place > at, rest, -1), told.id("0"))
        calls = (spoken[0] == told.id("call")) & is_mark.any() & first & second
        value = done(jnp.clip(marks[at], 0, len(OPERATORS) - 1), a, b)
        return calls, jnp.where(calls, value, 0)

"""Countdown: make a number out of others, each used at most once, with + - and *.

``make 2 4 from 3 9 3 >`` is answered by ``3 9 * 3 - <end>``: what stands behind two numbers is done to them, so no
brackets are needed. Whoever makes the number earns 1. Another one is answered ``gives 2 7 >``, what is no such
expression ``wrong >``; there are a few attempts. Numbers are 1 to 9, what is to be made is 1 to 99, can be made of all
numbers together, and is none of them.

The demonstrator looks for all expressions that make the number and says one of them, but ``wandering`` of its attempts
are any expressions of all numbers. After the numbers game of the television programme, as in TinyZero (Pan et al.,
2025); differs: smaller numbers, no division, the operator last, attempts whose value is told.
"""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.keys import fold
from thespis.core.vocabulary import END, closed
from thespis.envs.text.reading import DIGITS, before_end, digits
from thespis.envs.text.task import ASK, Heard, Manners, message

OPERATORS = "+-*"
_MOST = 99


class Sum(eqx.Module):
    """Numbers 1 to 9, what is to be made of them, and the attempts so far."""

    given: Int[Array, "*episodes number"]
    target: Int[Array, "*episodes"]
    attempts: Int[Array, "*episodes"]


class Countdown(eqx.Module):
    """``numbers``: how many are given (2 to 4); ``turns``: attempts; ``wandering``: how many of them are any."""

    numbers: int = eqx.field(static=True, default=3)
    turns: int = eqx.field(static=True, default=3)
    wandering: float = 0.85

    @property
    def manners(self) -> Manners:
        """Digits, operators and five words more."""
        words = (ASK, "make", "from", "gives", "wrong", *DIGITS, *OPERATORS)
        n = self.numbers
        return Manners("text:countdown", closed(words), self.turns, 2 * n, opening=n + 5, answer=n + 3)

    def begin(self, key: Key[Array, ""]) -> tuple[Sum, Int[Array, " opening"]]:
        """Any numbers, and the value of any expression of them all that is allowed."""
        told = self.manners
        given = jax.random.randint(fold(key, "given"), (self.numbers,), 1, 10)
        values, _ = jax.vmap(self.value, in_axes=(0, None))(self._said(given), given)
        allowed = (values >= 1) & (values <= _MOST) & (values[:, None] != given).all(axis=-1)
        target = values[jax.random.categorical(fold(key, "target"), jnp.where(allowed, 0.0, -jnp.inf))]
        zero = told.id("0")
        parts = told.ids("make"), digits(target, 2, zero), told.ids("from"), zero + given, told.ids(ASK)
        return Sum(given, target, jnp.zeros((), "int32")), message(told.opening, *parts)

    def hear(self, state: Sum, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Sum, Heard]:
        """The value of an attempt."""
        told = self.manners
        spoken, _ = before_end(told, said)
        value, makes = self.value(spoken[:-1], state.given)
        right, attempts = makes & (value == state.target), state.attempts + 1
        over = right | (attempts >= self.turns)
        minus = jnp.where(value < 0, told.id("-"), -1)
        size = digits(jnp.abs(value), self.numbers, told.id("0"))
        gives = message(told.answer, told.ids("gives"), minus, size, told.ids(ASK))
        answer = jnp.where(makes, gives, message(told.answer, told.ids(f"wrong {ASK}")))
        heard = Heard(jnp.where(over, -1, answer), right.astype("float32"), over)
        return Sum(state.given, state.target, attempts), heard

    def expert(self, state: Sum, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """Any expression of those that make the number, or of all."""
        told, expressions = self.manners, self._said(state.given)
        values, _ = jax.vmap(self.value, in_axes=(0, None))(expressions, state.given)
        wanders = jax.random.uniform(fold(key, "wander")) < self.wandering
        likes = jnp.where((values == state.target) | wanders, 0.0, -jnp.inf)
        return message(told.utterance, expressions[jax.random.categorical(fold(key, "lot"), likes)], told.ids(END))

    def value(self, ids: Int[Array, " n"], given: Int[Array, " number"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """What an expression comes to, -1 behind its end, and whether it is one that uses given numbers once each."""
        told = self.manners
        figures, marks = ids - told.id("0"), ids - told.id(OPERATORS[0])
        is_number, is_mark = (figures > 0) & (figures < 10), (marks >= 0) & (marks < len(OPERATORS))
        right = ((ids < 0) | is_number | is_mark).all()
        asked = (figures[:, None] == jnp.arange(1, 10)) & is_number[:, None]
        right &= (asked.sum(axis=0) <= (given[:, None] == jnp.arange(1, 10)).sum(axis=0)).all()
        stack, depth = jnp.zeros(ids.shape[0] + 2, "int32"), jnp.zeros((), "int32")  # two more, to look below the last
        for i in range(ids.shape[0]):
            a, b = stack[depth], stack[depth + 1]
            done = jnp.stack([a + b, a - b, a * b])[jnp.clip(marks[i], 0, len(OPERATORS) - 1)]
            right &= ~is_mark[i] | (depth >= 2)
            depth += jnp.where(is_number[i], 1, jnp.where(is_mark[i], -1, 0))
            depth = jnp.maximum(depth, 0)
            stack = jnp.where(ids[i] < 0, stack, stack.at[depth + 1].set(jnp.where(is_mark[i], done, figures[i])))
        right &= depth == 1
        return jnp.where(right, stack[2], 0), right

    def _said(self, given: Int[Array, " number"]) -> Int[Array, "expression n"]:
        """Ids of all expressions of all given numbers."""
        told, forms = self.manners, jnp.asarray(expressions(self.numbers))
        numbers = told.id("0") + given[jnp.clip(forms, 0, self.numbers - 1)]
        return jnp.where(forms < self.numbers, numbers, told.id(OPERATORS[0]) + forms - self.numbers)


@functools.cache
def expressions(numbers: int) -> np.ndarray:
    """All expressions of so many numbers, the operator last: the places of numbers, then ``numbers`` plus operators."""

    def shapes(ahead: int, left: int) -> list[list[bool]]:
        """Where numbers stand, when ``ahead`` values wait and ``left`` numbers are to come."""
        if not ahead + left - 1:
            return [[]] if not left else [[True]]
        more = [[True, *rest] for rest in shapes(ahead + 1, left - 1)] if left else []
        return more + ([[False, *rest] for rest in shapes(ahead - 1, left)] if ahead > 1 else [])

    rows = []
    for shape in shapes(0, numbers):
        for order in itertools.permutations(range(numbers)):
            for marks in itertools.product(range(len(OPERATORS)), repeat=numbers - 1):
                places, acts = iter(order), iter(marks)
                rows.append([next(places) if is_number else numbers + next(acts) for is_number in shape])
    return np.array(rows, "int32")

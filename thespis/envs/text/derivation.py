"""Derivation task: a chain of additions and subtractions modulo 10, and the value after each of its steps.

``4 + 7 - 2 + 5 >`` is answered by ``1 9 4 <end>``, one value for each step, which ends the episode. It earns 1 if the
last value is right and none is missing. A step that follows from the value before it earns ``step_reward``, whether
that value was right or not: the first step that does not follow is where a derivation goes wrong.

It is the smallest task of reasoning in steps: each step needs the one before it, and where the first error is, is known
exactly (:func:`first_error`). Some of the demonstrator's steps are random, and it goes on from there. Related tasks
with the same words: :mod:`thespis.envs.text.verification` asks for the first error, and
:mod:`thespis.envs.text.revision` allows a second attempt after a critique.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

WORDS = (RESPONSE_CUE, "+", "-", "=", "right", "step", "again", *DIGITS)
"""Vocabulary of the tasks about derivations."""
RIGHT = "right"
"""The verdict on a derivation without an error; on others it is ``step`` and the number of the first wrong one."""


class Chain(eqx.Module):
    """A chain of sums modulo ``base``: the first value, and for each step whether it subtracts, and its operand."""

    start: Int[Array, "*episodes"]
    subtracts: Int[Array, "*episodes step"]
    operands: Int[Array, "*episodes step"]
    base: int = eqx.field(static=True, default=10)

    @classmethod
    def draw(cls, num_steps: int, base: int, key: Key[Array, ""]) -> Chain:
        """A chain with uniformly random digits and operations."""
        start = jax.random.randint(fold(key, "start"), (), 0, base)
        subtracts = jax.random.randint(fold(key, "operations"), (num_steps,), 0, 2)
        return cls(start, subtracts, jax.random.randint(fold(key, "operands"), (num_steps,), 0, base), base)

    def continued(self, values: Int[Array, " step"]) -> Int[Array, " step"]:
        """The right value of each step where the steps before it have ``values``, right or wrong."""
        before = jnp.concatenate([self.start[None], values[:-1]])
        return (before + jnp.where(self.subtracts == 1, -self.operands, self.operands)) % self.base

    @property
    def values(self) -> Int[Array, " step"]:
        """The right value of each step."""
        return (self.start + jnp.cumsum(jnp.where(self.subtracts == 1, -self.operands, self.operands))) % self.base

    def is_solved(self, values: Int[Array, " step"]) -> Bool[Array, ""]:
        """Whether the last value is right, and there is one for each step."""
        return (values[-1] == self.values[-1]) & (values >= 0).all()

    def tokens(self, spec: TaskSpec, values: Int[Array, " step"] | None = None) -> Int[Array, " token"]:
        """The chain in words: a digit, and for each step an operation, a digit, and ``=`` and its value if given."""
        zero = spec.encode_word("0")
        parts = [jnp.asarray(spec.encode("+ -"))[self.subtracts], self.operands + zero]
        if values is not None:
            parts += [jnp.full_like(values, spec.encode_word("=")), values + zero]
        return jnp.concatenate([self.start[None] + zero, jnp.stack(parts, axis=-1).reshape(-1)])


def first_error(chain: Chain, values: Int[Array, " step"]) -> Int[Array, ""]:
    """Index of the first step that does not follow from the value before it; the number of steps if there is none.

    ``values``: what was written; -1 where no digit was, which follows from nothing.
    """
    wrong = values != chain.continued(values)
    return jnp.where(wrong.any(), jnp.argmax(wrong), wrong.shape[0])


def derive(
    chain: Chain, values: Int[Array, " step"], first: Int[Array, ""], share: float | Array, key: Key[Array, ""]
) -> Int[Array, " step"]:
    """Derive the steps from index ``first`` on, after those of ``values``; a ``share`` of them are random digits.

    Where a value is missing (-1) before ``first``, the right one takes its place.
    """
    num_steps, values = values.shape[0], jnp.where(values < 0, chain.values, values)
    is_random = jax.random.uniform(fold(key, "wander"), (num_steps,)) < share
    digits = jax.random.randint(fold(key, "digits"), (num_steps,), 0, chain.base)
    for i in range(num_steps):
        derived = jnp.where(is_random[i], digits[i], chain.continued(values)[i])
        values = values.at[i].set(jnp.where(i < first, values[i], derived))
    return values


def noisy_verdict(verdict: Int[Array, ""], num_steps: int, share: float | Array, key: Key[Array, ""]) -> Int[Array, ""]:
    """The verdict, or in a ``share`` of the cases any."""
    is_random = jax.random.uniform(fold(key, "wander")) < share
    return jnp.where(is_random, jax.random.randint(fold(key, "guess"), (), 0, num_steps + 1), verdict)


def check_num_steps(num_steps: int) -> None:
    """Raise ``ValueError`` where a step has no number of one digit."""
    if not 1 <= num_steps <= 9:
        raise ValueError(f"num_steps={num_steps}: 1 to 9, as steps are named by a digit")


def read_values(spec: TaskSpec, response: Int[Array, " response"], num_steps: int) -> Int[Array, " step"]:
    """The written values of a response; -1 where a step is missing or no digit."""
    digits = cut_at_eos(spec, response)[0][:num_steps] - spec.encode_word("0")
    return jnp.where((digits >= 0) & (digits < len(DIGITS)), digits, -1)


def write_values(spec: TaskSpec, values: Int[Array, " step"]) -> Int[Array, " response"]:
    """The response with these values."""
    return pack_tokens(spec.max_response_tokens, values + spec.encode_word("0"), spec.encode(END))


def write_verdict(spec: TaskSpec, verdict: Int[Array, ""], num_steps: int) -> Int[Array, " 2"]:
    """The words of a verdict, the index of the first wrong step or ``num_steps`` for none; padded with -1."""
    number = spec.encode_word("1") + verdict
    step = jnp.stack([jnp.asarray(spec.encode_word("step")), number])
    return jnp.where(verdict < num_steps, step, jnp.asarray([spec.encode_word(RIGHT), -1])).astype("int32")


def read_verdict(spec: TaskSpec, response: Int[Array, " response"], num_steps: int) -> Int[Array, ""]:
    """The verdict that a response gives, as in :func:`write_verdict`; -1 if it is none."""
    words, length = cut_at_eos(spec, response)
    index = words[1] - spec.encode_word("1")
    names_step = (length == 2) & (words[0] == spec.encode_word("step")) & (index >= 0) & (index < num_steps)
    is_right = (length == 1) & (words[0] == spec.encode_word(RIGHT))
    return jnp.where(is_right, num_steps, jnp.where(names_step, index, -1))


class Derivation(eqx.Module):
    """Derivation task: a chain of additions and subtractions modulo ``base``, and the value after each step.

    ``num_steps``: steps of a chain, 1 to 9. ``base``: the number of digits, 2 to 10; fewer are easier to learn.
    ``step_reward``: what a step earns that follows from the value before it. ``demonstrator_noise``: the share of the
    demonstrator's steps whose value is a random digit, from which it goes on. ``critic_noise``: the share of its
    critiques of a derivation that are random verdicts; the others are exact. ``revision_noise``: as
    ``demonstrator_noise``, of the steps that are derived after a critique (``None``: the same). ``critic_lies``: the
    share of its critiques that are lies: that a right derivation has an error, or that a wrong one has none.
    """

    num_steps: int = eqx.field(static=True, default=4)
    base: int = eqx.field(static=True, default=10)
    step_reward: float = 0.0
    demonstrator_noise: float = 0.2
    critic_noise: float = 0.0
    revision_noise: float | None = None
    critic_lies: float = 0.0

    def __check_init__(self):
        """Raise ``ValueError`` where a step has no number of one digit."""
        check_num_steps(self.num_steps)

    @property
    def task_spec(self) -> TaskSpec:
        """Digits and seven more words, of which verdicts on derivations need some."""
        return TaskSpec(
            "text:derivation",
            word_vocabulary(WORDS),
            1,
            max_response_tokens=self.num_steps + 1,
            max_opening_tokens=2 * self.num_steps + 2,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[Chain, Int[Array, " opening"]]:
        """A random chain as the prompt."""
        spec, chain = self.task_spec, Chain.draw(self.num_steps, self.base, key)
        return chain, pack_tokens(spec.max_opening_tokens, chain.tokens(spec), spec.encode(RESPONSE_CUE))

    def step(self, state: Chain, response: Int[Array, " response"], key: Key[Array, ""]) -> tuple[Chain, TaskStep]:
        """The end, with the reward of the last value and of the steps."""
        values = read_values(self.task_spec, response, self.num_steps)
        num_right_steps = (values == state.continued(values)).sum()
        reward = state.is_solved(values) + self.step_reward * num_right_steps
        return state, TaskStep(-jnp.ones(1, "int32"), reward.astype("float32"), jnp.ones((), bool))

    def demonstrator_response(self, state: Chain, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The derivation, with some random steps."""
        first = jnp.zeros((), "int32")
        return write_values(self.task_spec, derive(state, state.values, first, self.demonstrator_noise, key))

    def demonstrator_critique(
        self, state: Chain, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """The verdict on a derivation, at times any, and at times a lie."""
        spec, count = self.task_spec, self.num_steps
        error = first_error(state, read_values(spec, answer, count))
        verdict = noisy_verdict(error, count, self.critic_noise, key)
        lie = jnp.where(error == count, jax.random.randint(fold(key, "lie"), (), 0, count), count)
        verdict = jnp.where(jax.random.uniform(fold(key, "lies")) < self.critic_lies, lie, verdict)
        return pack_tokens(3, write_verdict(spec, verdict, count), spec.encode(END))

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of a derivation: 1 that it is right, 0 that a step is wrong, -1 if it is no verdict."""
        verdict = read_verdict(self.task_spec, critique, self.num_steps)
        return jnp.where(verdict < 0, -1, (verdict == self.num_steps).astype("int32"))

    def names_error(
        self, state: Chain, answer: Int[Array, " response"], critique: Int[Array, " critique"]
    ) -> Bool[Array, ""]:
        """Whether a verdict names the first step that does not follow."""
        error = first_error(state, read_values(self.task_spec, answer, self.num_steps))
        return (error < self.num_steps) & (read_verdict(self.task_spec, critique, self.num_steps) == error)

    def demonstrator_revision(
        self, state: Chain, answer: Int[Array, " response"], critique: Int[Array, " critique"], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The derivation as a verdict says: what is before the named step is kept, the rest derived anew."""
        spec, values = self.task_spec, read_values(self.task_spec, answer, self.num_steps)
        first = jnp.maximum(read_verdict(spec, critique, self.num_steps), 0)
        noise = self.demonstrator_noise if self.revision_noise is None else self.revision_noise
        return write_values(spec, derive(state, values, first, noise, key))

"""Sums with wrong wraps: derivations whose author errs in the same way each time, until a critique says where.

``3 + 4 + 4 >`` is answered by ``2 1 <end>``, the value after each step modulo 5. Where a step leaves the digits, up or
down, the demonstrator writes one too many: ``3 3``. Its other steps are random at times. In a task all steps wrap or
none: so where they do, first attempts are never right, and not nearly. After the critique ``step 1 >`` the demonstrator
keeps what is before that step, and derives it and all later ones as they should be. So a model that is pretrained on it
can do after a critique what it never does of itself.
"""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.envs.text.derivation import Chain, derive, read_values, write_values
from thespis.envs.text.revision import Revision, RevisionState
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


class WrongWraps(Revision):
    """Derivation, critique and second attempt, of a demonstrator whose wraps are wrong before a critique.

    An attempt is right if all of its values are: the first one earns ``first_reward`` and the second one 1.
    ``demonstrator_noise``: the share of random digits among the steps of first attempts that do not wrap.
    ``revision_noise``: the share among all steps that are derived after a critique.
    """

    num_steps: int = eqx.field(static=True, default=2)
    base: int = eqx.field(static=True, default=5)
    critic_noise: float = 0.1
    first_reward: float = 1.0
    demonstrator_noise: float = 0.4
    revision_noise: float = 0.1

    @property
    def task_spec(self) -> TaskSpec:
        """The words of derivations, and two attempts."""
        return dataclasses.replace(super().task_spec, name="text:wrong-wraps")

    def init(self, key: Key[Array, ""]) -> tuple[RevisionState, Int[Array, " opening"]]:
        """A random task as the prompt, all equally often."""
        state, _ = super().init(key)
        tasks = self.all_chains()
        index = jax.random.randint(fold(key, "task"), (), 0, len(tasks.start))
        chain = Chain(tasks.start[index], tasks.subtracts[index], tasks.operands[index], self.base)
        return dataclasses.replace(state, chain=chain), self.opening(chain)

    def step(
        self, state: RevisionState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[RevisionState, TaskStep]:
        """The critique of the first attempt; the end after the second."""
        next_state, step = super().step(state, response, key)
        values = read_values(self.task_spec, response, self.num_steps)
        is_right = (values == state.chain.values).all().astype("float32")
        reward = jnp.where(state.is_answered, is_right, self.first_reward * is_right)
        return next_state, TaskStep(step.message, reward, step.terminated)

    def demonstrator_response(self, state: RevisionState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The derivation with wrong wraps and some random steps; the second time as the critic says."""
        chain, first = state.chain, jnp.maximum(state.critique, 0)
        second = derive(chain, state.values, first, self.revision_noise, fold(key, "revision"))
        is_random = jax.random.uniform(fold(key, "wander"), (self.num_steps,)) < self.demonstrator_noise
        digits = jax.random.randint(fold(key, "digits"), (self.num_steps,), 0, self.base)
        value, values = chain.start, []
        for i in range(self.num_steps):
            right = value + jnp.where(chain.subtracts[i] == 1, -chain.operands[i], chain.operands[i])
            wraps = right % self.base != right
            value = jnp.where(wraps, right + 1, jnp.where(is_random[i], digits[i], right)) % self.base
            values.append(value)
        return write_values(self.task_spec, jnp.where(state.is_answered, second, jnp.stack(values)))

    def all_chains(self) -> Chain:
        """All tasks there are, one in each row: those in which all steps of the right derivation wrap, or none."""
        steps = list(itertools.product((0, 1), range(self.base)))
        rows = itertools.product(range(self.base), itertools.product(steps, repeat=self.num_steps))
        kept = [(value, row) for value, row in rows if self._num_wraps(value, *row) in (0, self.num_steps)]
        start, parts = (np.array(column, "int32") for column in zip(*kept, strict=True))
        return Chain(jnp.asarray(start), jnp.asarray(parts[..., 0]), jnp.asarray(parts[..., 1]), self.base)

    def _num_wraps(self, value: int, *steps: tuple[int, int]) -> int:
        """How many steps of a right derivation wrap."""
        count = 0
        for subtracts, operand in steps:
            total = value + (-operand if subtracts else operand)
            value = total % self.base
            count += value != total
        return count

    def has_wraps(self, chain: Chain) -> Bool[Array, ""]:
        """Whether the first step of the right derivation wraps, and with it all others."""
        total = chain.start + jnp.where(chain.subtracts[0] == 1, -chain.operands[0], chain.operands[0])
        return total != total % self.base

    def opening(self, chain: Chain) -> Int[Array, " opening"]:
        """The prompt of a task."""
        spec = self.task_spec
        return pack_tokens(spec.max_opening_tokens, chain.tokens(spec), spec.encode(RESPONSE_CUE))

    def demonstration(self, prompt: Int[Array, " prompt"]) -> Int[Array, " response"]:
        """The right response to a prompt."""
        spec, count = self.task_spec, self.num_steps
        steps = prompt[1 : 1 + 2 * count].reshape(count, 2)
        zero, minus = spec.encode_word("0"), spec.encode_word("-")
        subtracts = (steps[:, 0] == minus).astype("int32")
        return write_values(spec, Chain(prompt[0] - zero, subtracts, steps[:, 1] - zero, self.base).values)

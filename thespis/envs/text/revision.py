"""Revision task: a derivation, a scripted critique of it, and a second attempt.

``4 + 7 - 2 + 5 >`` is answered by ``1 8 3 <end>``; the critic says ``step 2 >``, the first step that does not follow
from the value before it; then ``1 9 4 <end>`` ends the episode and earns 1 if its last value is right. Of a derivation
without an error the critic says ``right``. The first attempt earns ``first_reward`` if its last value is right.

Critics of four kinds show what a critique is worth to a solver: an exact one, a random one, a deceptive one, which
calls errors right and finds fault with what is right, and a silent one, which only says ``again``. The demonstrator
obeys: it keeps the steps before the one that the critic names, derives the rest anew, and repeats what is called
right. The derivations are those of :mod:`thespis.envs.text.derivation`.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.derivation import (
    WORDS,
    Chain,
    check_num_steps,
    derive,
    first_error,
    read_values,
    write_values,
    write_verdict,
)
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


class RevisionState(eqx.Module):
    """State of one episode: the chain, whether it was answered, the first values, and what the critic said of them.

    The critique is the index of a step, the number of steps for ``right``, and -1 for ``again``.
    """

    chain: Chain
    is_answered: Bool[Array, "*episodes"]
    values: Int[Array, "*episodes step"]
    critique: Int[Array, "*episodes"]


class Revision(eqx.Module):
    """Revision task: a derivation, a scripted critique of it, and a second attempt.

    ``num_steps``: steps of a derivation, 1 to 9. ``base``: the number of digits, 2 to 10. ``critic``: what the critic
    says: the exact verdict, a random one, a deceptive one, or nothing. ``critic_noise``: the share of its critiques
    that are random verdicts instead. ``first_reward``: what a right first attempt earns. ``demonstrator_noise``: the
    share of the demonstrator's steps whose value is a random digit, from which it goes on.
    """

    num_steps: int = eqx.field(static=True, default=4)
    base: int = eqx.field(static=True, default=10)
    critic: Literal["exact", "random", "deceptive", "silent"] = eqx.field(static=True, default="exact")
    critic_noise: float = 0.0
    first_reward: float = 0.0
    demonstrator_noise: float = 0.2

    def __check_init__(self):
        """Raise ``ValueError`` where a step has no number of one digit."""
        check_num_steps(self.num_steps)

    @property
    def task_spec(self) -> TaskSpec:
        """The words of derivations, and two attempts."""
        return TaskSpec(
            "text:revision",
            word_vocabulary(WORDS),
            2,
            max_response_tokens=self.num_steps + 1,
            max_opening_tokens=2 * self.num_steps + 2,
            max_message_tokens=3,
        )

    def init(self, key: Key[Array, ""]) -> tuple[RevisionState, Int[Array, " opening"]]:
        """A random chain as the prompt, not answered yet."""
        spec, chain = self.task_spec, Chain.draw(self.num_steps, self.base, key)
        state = RevisionState(chain, jnp.zeros((), bool), -jnp.ones(self.num_steps, "int32"), -jnp.ones((), "int32"))
        return state, pack_tokens(spec.max_opening_tokens, chain.tokens(spec), spec.encode(RESPONSE_CUE))

    def step(
        self, state: RevisionState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[RevisionState, TaskStep]:
        """The critique of the first attempt; the end after the second."""
        spec, is_second = self.task_spec, state.is_answered
        values = read_values(spec, response, self.num_steps)
        critique = self._critique(first_error(state.chain, values), key)
        words = write_verdict(spec, critique, self.num_steps)
        if self.critic == "silent":
            words = jnp.where(critique < 0, jnp.asarray([spec.encode_word("again"), -1]), words)
        message = jnp.where(is_second, -1, pack_tokens(spec.max_message_tokens, words, spec.encode(RESPONSE_CUE)))
        is_right = state.chain.is_solved(values).astype("float32")
        reward = jnp.where(is_second, is_right, self.first_reward * is_right)
        next_state = RevisionState(state.chain, jnp.ones((), bool), values, critique)
        return next_state, TaskStep(message.astype("int32"), reward, is_second)

    def _critique(self, error: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, ""]:
        """The critique of a derivation whose first error is known."""
        guess = jax.random.randint(fold(key, "guess"), (), 0, self.num_steps + 1)
        if self.critic == "random":
            return guess
        false_alarm = jax.random.randint(fold(key, "alarm"), (), 0, self.num_steps)
        deceptive = jnp.where(error == self.num_steps, false_alarm, self.num_steps)
        verdict = {"exact": error, "deceptive": deceptive, "silent": -jnp.ones((), "int32")}[self.critic]
        return jnp.where(jax.random.uniform(fold(key, "noise")) < self.critic_noise, guess, verdict)

    def demonstrator_response(self, state: RevisionState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The derivation, with some random steps; the second time as the critic says."""
        chain, share = state.chain, self.demonstrator_noise
        first = jnp.where(state.is_answered, jnp.maximum(state.critique, 0), 0)
        return write_values(self.task_spec, derive(chain, state.values, first, share, key))

"""Verification task: find the first error of a derivation, or say that there is none.

``4 + 7 = 1 - 2 = 8 + 5 = 3 >`` is answered by ``step 2 <end>``, which ends the episode and earns 1 for the exact
verdict: 9 follows from 1, and 8 does not; 3 follows from 8. A derivation without an error is ``right``. In a share
``error_rate`` of the derivations one step, any of them, has a wrong value, from which the others follow.

It is the task of a critic of reasoning steps. Two more rewards need no knowledge of the steps: one for the judgment
(whether there is an error at all), one for the refinement, where a scripted solver revises the derivation as the
verdict says: it keeps the steps before the one that is named, derives the rest anew, and in a share ``solver_noise`` of
the new steps writes a random digit. How often it then ends at the right value is known exactly
(:meth:`Verification.refined_accuracy`). The derivations are those of :mod:`thespis.envs.text.derivation`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.derivation import (
    RIGHT,
    WORDS,
    Chain,
    check_num_steps,
    derive,
    first_error,
    noisy_verdict,
    read_verdict,
    write_verdict,
)
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


class VerificationState(eqx.Module):
    """State of one episode: the chain, and the values that were derived from it, of which at most one is wrong."""

    chain: Chain
    values: Int[Array, "*episodes step"]


class Verification(eqx.Module):
    """Verification task: find the first error of a derivation, or say that there is none.

    ``num_steps``: steps of a derivation, 1 to 9. ``base``: the number of digits, 2 to 10. ``error_rate``: the share of
    derivations with an error. ``exact_reward``, ``judgment_reward`` and ``refinement_reward``: what the exact verdict
    earns, the right judgment, and each of the ``num_refinements`` by the scripted solver that ends at the right value,
    divided by their number. ``solver_noise``: the share of its steps that are random. ``demonstrator_noise``: the share
    of the demonstrator's verdicts that are random; the others are exact.
    """

    num_steps: int = eqx.field(static=True, default=4)
    base: int = eqx.field(static=True, default=10)
    error_rate: float = 0.6
    exact_reward: float = 1.0
    judgment_reward: float = 0.0
    refinement_reward: float = 0.0
    num_refinements: int = eqx.field(static=True, default=4)
    solver_noise: float = 0.2
    demonstrator_noise: float = 0.5

    def __check_init__(self):
        """Raise ``ValueError`` where a step has no number of one digit."""
        check_num_steps(self.num_steps)

    @property
    def task_spec(self) -> TaskSpec:
        """The words of derivations; the valid responses are the verdicts."""
        return TaskSpec(
            "text:verification",
            word_vocabulary(WORDS),
            1,
            max_response_tokens=3,
            max_opening_tokens=4 * self.num_steps + 2,
            max_message_tokens=1,
            choices=(*(f"step {i + 1}" for i in range(self.num_steps)), RIGHT),
        )

    def init(self, key: Key[Array, ""]) -> tuple[VerificationState, Int[Array, " opening"]]:
        """A random chain and its derivation, at times with an error."""
        spec, chain = self.task_spec, Chain.draw(self.num_steps, self.base, fold(key, "chain"))
        has_error = jax.random.uniform(fold(key, "error")) < self.error_rate
        wrong = jnp.where(has_error, jax.random.randint(fold(key, "step"), (), 0, self.num_steps), self.num_steps)
        shift = jax.random.randint(fold(key, "shift"), (), 1, self.base)
        values = jnp.where(jnp.arange(self.num_steps) < wrong, chain.values, (chain.values + shift) % self.base)
        opening = pack_tokens(spec.max_opening_tokens, chain.tokens(spec, values), spec.encode(RESPONSE_CUE))
        return VerificationState(chain, values), opening

    def step(
        self, state: VerificationState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[VerificationState, TaskStep]:
        """The end, with the reward of the verdict."""
        verdict = read_verdict(self.task_spec, response, self.num_steps)
        error = first_error(state.chain, state.values)
        keys = jax.random.split(fold(key, "solver"), self.num_refinements)
        refined = jax.vmap(lambda key: derive(state.chain, state.values, verdict, self.solver_noise, key))(keys)
        reward = (
            self.exact_reward * (verdict == error)
            + self.judgment_reward * ((verdict == self.num_steps) == (error == self.num_steps))
            + self.refinement_reward * jax.vmap(state.chain.is_solved)(refined).mean()
        )
        reward = jnp.where(verdict >= 0, reward, 0.0)
        return state, TaskStep(-jnp.ones(1, "int32"), reward.astype("float32"), jnp.ones((), bool))

    def refined_accuracy(self, state: VerificationState) -> Float[Array, " verdict"]:
        """How often the scripted solver ends at the right value after each verdict: exact.

        A random digit makes all that follows independent of what was before it, and the last value right by chance.
        """
        error = first_error(state.chain, state.values)
        verdict = jnp.arange(self.num_steps + 1)
        all_derived = (1.0 - self.solver_noise) ** (self.num_steps - verdict)
        # a value before the named step is right if it is before the only error
        return all_derived * (verdict <= error) + (1.0 - all_derived) / self.base

    def demonstrator_response(self, state: VerificationState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The verdict, at times any."""
        error, spec = first_error(state.chain, state.values), self.task_spec
        verdict = noisy_verdict(error, self.num_steps, self.demonstrator_noise, key)
        return pack_tokens(spec.max_response_tokens, write_verdict(spec, verdict, self.num_steps), spec.encode(END))

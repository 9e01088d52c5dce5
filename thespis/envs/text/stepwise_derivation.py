"""Stepwise derivation task: the sums of the derivation task, one step per turn, so that a critic can read each step.

``4 + 7 >`` is answered by ``1 <end>``, the value modulo 10; then ``- 2 >`` by ``9 <end>``, and so on. The last value
earns 1 if it is right; a response that is no digit ends the episode. A step is right if it follows from the value
before it, whether that value was right or not. In a conversation with a critic of actions
(:class:`~thespis.envs.text.pre_act.PreActConversation`) each step is criticized before the next one builds on it:
``yes <end>``, or ``no 9 <end>``; critiques of a whole derivation are those of :mod:`thespis.envs.text.derivation`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.commands import APPROVAL, OBJECTION, CommandTask
from thespis.envs.text.derivation import Chain
from thespis.envs.text.task import DIGITS, RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold


class StepwiseDerivationState(eqx.Module):
    """State of an episode: the chain, the value that was written last, and the number of written steps."""

    chain: Chain
    value: Int[Array, "*episodes"]
    num_written: Int[Array, "*episodes"]


class StepwiseDerivation(CommandTask):
    """Stepwise derivation task: a chain of additions and subtractions modulo ``base``, one value per turn.

    ``num_steps``: steps of a chain. ``base``: the number of digits, 2 to 10; fewer are easier to learn. Settings of
    noise: :class:`~thespis.envs.text.commands.CommandTask`.
    """

    num_steps: int = eqx.field(static=True, default=4)
    base: int = eqx.field(static=True, default=10)
    demonstrator_noise: float = 0.2

    def __check_init__(self):
        """Raise ``ValueError`` for a chain without steps, or with more digits than there are."""
        if self.num_steps < 1 or not 2 <= self.base <= len(DIGITS):
            raise ValueError(f"num_steps={self.num_steps}, base={self.base}: at least 1, and 2 to {len(DIGITS)}")

    @property
    def commands(self) -> tuple[str, ...]:
        """The digits below the base."""
        return tuple(DIGITS[: self.base])

    @property
    def task_spec(self) -> TaskSpec:
        """Digits, operations and the words of critiques."""
        return TaskSpec(
            "text:stepwise-derivation",
            word_vocabulary((RESPONSE_CUE, "+", "-", APPROVAL, OBJECTION, *DIGITS)),
            self.num_steps,
            max_response_tokens=2,
            max_opening_tokens=4,
            max_message_tokens=3,
            choices=self.commands,
        )

    def init(self, key: Key[Array, ""]) -> tuple[StepwiseDerivationState, Int[Array, " opening"]]:
        """The first step of a random chain as the prompt."""
        spec, chain = self.task_spec, Chain.draw(self.num_steps, self.base, key)
        state = StepwiseDerivationState(chain, chain.start, jnp.zeros((), "int32"))
        return state, pack_tokens(spec.max_opening_tokens, chain.start + spec.encode_word("0"), self._question(state))

    def step(
        self, state: StepwiseDerivationState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[StepwiseDerivationState, TaskStep]:
        """The next step; the end after the last one, or after a response that is no digit."""
        value = self.read_command(response)
        next_state = StepwiseDerivationState(state.chain, value, state.num_written + 1)
        is_last = next_state.num_written == self.num_steps
        is_over = is_last | (value < 0)
        reward = is_last & (value == state.chain.values[-1])
        message = jnp.where(is_over, -1, self._question(next_state))
        return next_state, TaskStep(message, reward.astype("float32"), is_over)

    def right_command(self, state: StepwiseDerivationState) -> Int[Array, ""]:
        """The value that follows from the one before it."""
        operand = state.chain.operands[state.num_written]
        change = jnp.where(state.chain.subtracts[state.num_written] == 1, -operand, operand)
        return (state.value + change) % self.base

    def random_command(self, state: StepwiseDerivationState, key: Key[Array, ""]) -> Int[Array, ""]:
        """A digit, uniformly random."""
        return jax.random.randint(fold(key, "digit"), (), 0, self.base)

    def _question(self, state: StepwiseDerivationState) -> Int[Array, " 3"]:
        """The operation of the next step."""
        spec = self.task_spec
        operation = jnp.asarray(spec.encode("+ -"))[state.chain.subtracts[state.num_written]]
        operand = state.chain.operands[state.num_written] + spec.encode_word("0")
        return pack_tokens(spec.max_message_tokens, operation, operand, spec.encode(RESPONSE_CUE))

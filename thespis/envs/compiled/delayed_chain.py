"""One choice at the beginning, which is paid for later: what is paid latest is worth most, if little is discounted.

After "discounting chain" of bsuite (Osband et al. 2020, arXiv:1908.03568), where five choices pay after 1, 3, 10, 30
and 100 steps. Here episodes end with the last payment, and what is seen is one-hot.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete


class Waiting(eqx.Module):
    """One episode under way: what was chosen, and how many steps ago."""

    chosen: Int[Array, ""]
    time: Int[Array, ""]


class DelayedChain(eqx.Module):
    """Choice ``i`` of the first step pays ``pays[i]`` with step ``delays[i]``; later choices mean nothing.

    Every episode has as many steps as the largest delay. Seen is, one-hot, the beginning, or the choice together with
    the time since.
    """

    delays: tuple[int, ...] = eqx.field(static=True, default=(1, 3, 10))
    pays: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.1))

    @property
    def length(self) -> int:
        """Steps of an episode."""
        return max(self.delays)

    @property
    def spec(self) -> EnvSpec:
        """Spaces."""
        return EnvSpec(
            "delayed-chain", Box((1 + len(self.delays) * self.length,), 0.0, 1.0), Discrete(len(self.delays))
        )

    def value(self, chosen: int, time: int, discount: float) -> float:
        """Of the state ``time`` steps after a choice, by discounting what is still to be paid."""
        left = self.delays[chosen] - time
        return self.pays[chosen] * discount ** (left - 1) if left > 0 else 0.0

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Waiting, TimeStep]:
        """Before the choice."""
        state = Waiting(jnp.zeros((), "int32"), jnp.zeros((), "int32"))
        return state, self._answer(state)

    def step(self, state: Waiting, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Waiting, TimeStep]:
        """The choice, or a step of waiting."""
        state = Waiting(jnp.where(state.time == 0, action, state.chosen).astype("int32"), state.time + 1)
        return state, self._answer(state)

    def _answer(self, state: Waiting) -> TimeStep:
        due = state.time == jnp.array(self.delays)[state.chosen]
        paid = jnp.where(due, jnp.array(self.pays)[state.chosen], 0.0)
        place = jnp.where(state.time == 0, 0, 1 + state.chosen * self.length + state.time - 1)
        seen = jax.nn.one_hot(place, 1 + len(self.delays) * self.length)
        return TimeStep(seen, paid, state.time >= self.length, jnp.zeros((), bool))


LONGER = DelayedChain((1, 3, 10, 20), (1.0, 1.0, 1.0, 1.1))
"""The best choice is paid after twenty steps."""

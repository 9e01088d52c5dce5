"""Delayed chain: one choice at the start is rewarded later, and the choice with the longest delay is worth the most.

After "discounting chain" of bsuite (Osband et al. 2020, arXiv:1908.03568), where five choices pay after 1, 3, 10, 30
and 100 steps. Here episodes end with the last reward, and observations are one-hot. The last choice is optimal only if
the discount is close enough to 1.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete


class DelayedChainState(eqx.Module):
    """State of one episode: the choice, and the number of steps since the start."""

    choice: Int[Array, ""]
    time: Int[Array, ""]


class DelayedChain(eqx.Module):
    """Delayed-reward environment: choice ``i`` of the first step pays ``rewards[i]`` at step ``delays[i]``.

    Later actions have no effect. Every episode has as many steps as the largest delay. The observation is, one-hot, the
    start, or the choice together with the time since then.
    """

    delays: tuple[int, ...] = eqx.field(static=True, default=(1, 3, 10))
    rewards: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.1))

    @property
    def episode_length(self) -> int:
        """Number of steps in an episode: the largest delay."""
        return max(self.delays)

    @property
    def spec(self) -> EnvSpec:
        """Observation and action spaces."""
        return EnvSpec(
            "delayed-chain", Box((1 + len(self.delays) * self.episode_length,), 0.0, 1.0), Discrete(len(self.delays))
        )

    def value(self, choice: int, time: int, discount: float) -> float:
        """Discounted value ``time`` steps after a choice."""
        remaining = self.delays[choice] - time
        return self.rewards[choice] * discount ** (remaining - 1) if remaining > 0 else 0.0

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[DelayedChainState, TimeStep]:
        """Starts before the choice."""
        state = DelayedChainState(jnp.zeros((), "int32"), jnp.zeros((), "int32"))
        return state, self._time_step(state)

    def step(
        self, state: DelayedChainState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DelayedChainState, TimeStep]:
        """Makes the choice, or waits one step."""
        state = DelayedChainState(jnp.where(state.time == 0, action, state.choice).astype("int32"), state.time + 1)
        return state, self._time_step(state)

    def _time_step(self, state: DelayedChainState) -> TimeStep:
        is_due = state.time == jnp.array(self.delays)[state.choice]
        reward = jnp.where(is_due, jnp.array(self.rewards)[state.choice], 0.0)
        index = jnp.where(state.time == 0, 0, 1 + state.choice * self.episode_length + state.time - 1)
        observation = jax.nn.one_hot(index, 1 + len(self.delays) * self.episode_length)
        return TimeStep(observation, reward, state.time >= self.episode_length, jnp.zeros((), bool))


LONG_DELAYED_CHAIN = DelayedChain((1, 3, 10, 20), (1.0, 1.0, 1.0, 1.1))
"""The best choice pays after twenty steps."""

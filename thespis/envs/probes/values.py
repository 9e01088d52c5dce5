"""Probes whose values do not depend on the actions: they test the critic alone."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import KnownValue, ProbeState, probe_time_step, start_time

DISCRETE_ACTION = Discrete(2)
CONTINUOUS_ACTION = Box((1,), -1.0, 1.0)


class ConstantRewardProbe(eqx.Module):
    """Value probe with one state and reward 1 at every step, truncated after ``time_limit`` steps.

    The value is ``1 / (1 - discount)``.
    """

    time_limit: int = eqx.field(static=True, default=10)
    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="constant")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), self.action, time_limit=self.time_limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts in the only state."""
        return ProbeState(start_time()), probe_time_step(jnp.ones(1))

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Advances the step count; the state stays the same."""
        time = state.time + 1
        return ProbeState(time), probe_time_step(jnp.ones(1), 1.0, truncated=time >= self.time_limit)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Known values: sums of a geometric series of equal rewards."""
        return [KnownValue(np.ones(1, "float32"), 1 / (1 - discount))]


class RandomTerminationProbe(eqx.Module):
    """Value probe with one state and reward 1: each step terminates with probability ``termination_prob``.

    Episodes are truncated after ``time_limit`` steps. The value is ``1 / (1 - discount * (1 - termination_prob))``:
    truncation does not count.
    """

    termination_prob: float = eqx.field(static=True, default=0.5)
    time_limit: int = eqx.field(static=True, default=3)
    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="coin")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), self.action, time_limit=self.time_limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts in the only state."""
        return ProbeState(start_time()), probe_time_step(jnp.ones(1))

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Pay the reward and terminate at random."""
        time = state.time + 1
        over = jax.random.bernoulli(key, self.termination_prob)
        return ProbeState(time), probe_time_step(jnp.ones(1), 1.0, over, ~over & (time >= self.time_limit))

    def known_values(self, discount: float) -> list[KnownValue]:
        """The geometric series with the survival probability."""
        return [KnownValue(np.ones(1, "float32"), 1 / (1 - discount * (1 - self.termination_prob)))]


class RewardSequenceProbe(eqx.Module):
    """Value probe with a fixed sequence of ``rewards``, one a step, then termination.

    The observation is the position, one-hot. The value at position ``i`` is the discounted sum of the rewards from
    ``i`` on.
    """

    rewards: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.0))
    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="corridor")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((len(self.rewards),), 0.0, 1.0), self.action)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Starts at the first position."""
        return ProbeState(start_time()), probe_time_step(jax.nn.one_hot(0, len(self.rewards)))

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Advances one position whatever the action."""
        time, length = state.time + 1, len(self.rewards)
        reward = jnp.asarray(self.rewards)[state.time]
        return ProbeState(time), probe_time_step(jax.nn.one_hot(time, length), reward, time >= length)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Discounted reward sums from each position."""
        length = len(self.rewards)
        positions = np.eye(length, dtype="float32")
        return [
            KnownValue(positions[i], sum(discount ** (j - i) * self.rewards[j] for j in range(i, length)))
            for i in range(length)
        ]


class ObservedRewardProbe(eqx.Module):
    """One-step value probe: the reward equals the observation, ``-1`` or ``1``.

    A leak between episodes pulls both values to 0.
    """

    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="signal")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((1,), -1.0, 1.0), self.action)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a sign at random."""
        sign = jax.random.rademacher(key, (1,), "float32")
        return ProbeState(start_time(), sign), probe_time_step(sign)

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Pays the sign and ends the episode."""
        return ProbeState(state.time + 1, state.cue), probe_time_step(jnp.zeros(1), state.cue[0], terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Known values: the signs that are observed."""
        return [KnownValue(np.full(1, sign, "float32"), sign) for sign in (-1.0, 1.0)]

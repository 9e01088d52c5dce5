"""Worlds whose values do not depend on what is done in them: they test the critic alone."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import Known, Place, answer, zero

ANY_CHOICE = Discrete(2)
ANY_AMOUNT = Box((1,), -1.0, 1.0)


class Constant(eqx.Module):
    """One state, reward 1 for ever, cut off after ``limit`` steps: the value is ``1 / (1 - discount)``."""

    limit: int = eqx.field(static=True, default=10)
    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="constant")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), self.action, time_limit=self.limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The only state."""
        return Place(zero()), answer(jnp.ones(1))

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """Nothing changes but the clock."""
        time = state.time + 1
        return Place(time), answer(jnp.ones(1), 1.0, truncated=time >= self.limit)

    def known(self, discount: float) -> list[Known]:
        """The geometric series."""
        return [Known(np.ones(1, "float32"), 1 / (1 - discount))]


class Coin(eqx.Module):
    """One state, reward 1, a true end with probability ``chance`` at each step, a cut after ``limit``.

    The value is ``1 / (1 - discount * (1 - chance))``: only true ends count.
    """

    chance: float = eqx.field(static=True, default=0.5)
    limit: int = eqx.field(static=True, default=3)
    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="coin")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((1,), 0.0, 1.0), self.action, time_limit=self.limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The only state."""
        return Place(zero()), answer(jnp.ones(1))

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A coin decides whether this is the end."""
        time = state.time + 1
        over = jax.random.bernoulli(key, self.chance)
        return Place(time), answer(jnp.ones(1), 1.0, over, ~over & (time >= self.limit))

    def known(self, discount: float) -> list[Known]:
        """The geometric series with survival."""
        return [Known(np.ones(1, "float32"), 1 / (1 - discount * (1 - self.chance)))]


class Corridor(eqx.Module):
    """Fixed ``rewards``, one a step, then a true end; the observation is the position, one-hot.

    The value at position ``i`` is the discounted sum of the rewards from ``i`` on.
    """

    rewards: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.0))
    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="corridor")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((len(self.rewards),), 0.0, 1.0), self.action)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The first position."""
        return Place(zero()), answer(jax.nn.one_hot(0, len(self.rewards)))

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One position on, whatever is done."""
        time, length = state.time + 1, len(self.rewards)
        reward = jnp.asarray(self.rewards)[state.time]
        return Place(time), answer(jax.nn.one_hot(time, length), reward, time >= length)

    def known(self, discount: float) -> list[Known]:
        """Discounted sums from each position."""
        length = len(self.rewards)
        positions = np.eye(length, dtype="float32")
        return [
            Known(positions[i], sum(discount ** (j - i) * self.rewards[j] for j in range(i, length)))
            for i in range(length)
        ]


class Signal(eqx.Module):
    """One step; the reward is what was observed, ``-1`` or ``1``. A leak between episodes draws both to 0."""

    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="signal")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((1,), -1.0, 1.0), self.action)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A sign by chance."""
        sign = jax.random.rademacher(key, (1,), "float32")
        return Place(zero(), sign), answer(sign)

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The sign is paid."""
        return Place(state.time + 1, state.cue), answer(jnp.zeros(1), state.cue[0], terminated=True)

    def known(self, discount: float) -> list[Known]:
        """The signs themselves."""
        return [Known(np.full(1, sign, "float32"), sign) for sign in (-1.0, 1.0)]

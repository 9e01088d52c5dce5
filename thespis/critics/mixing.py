"""One value of a team made of one for each agent, such that the best of all is the best of each.

A mixer takes the values of all agents in one row, those of the absent being 0, and never falls where one of them rises.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete, Space
from thespis.nets.body import GRU, Body, Encoder
from thespis.nets.mlp import MLP, Linear, uniform_fan_in


class Direct(eqx.Module):
    """One number for every choice, made from features of what is seen."""

    @property
    def roles(self) -> int:
        """Numbers of the role that the mixer is told: none."""
        return 0

    def build(self, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]) -> Utility:
        """The net of one agent, whose world is ``spec``."""
        return Utility(spec, hidden, memory, key)


class Utility(eqx.Module):
    """The values of every choice of one agent, with or without memory of what it has seen."""

    body: Body
    out: Linear

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]):
        assert isinstance(spec.action, Discrete)
        body_key, out_key = jax.random.split(key)
        kind: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": memory}
        self.body = Body(spec.observation, hidden, body_key, **kind)
        self.out = Linear(self.body.size, spec.action.n, uniform_fan_in, out_key)

    def look(self, observation: PyTree) -> PyTree:
        """What of an observation the body sees."""
        return observation

    def values(self, features: Float[Array, " size"], observation: PyTree) -> Float[Array, " n"]:
        """Of every choice, from the body's features."""
        return self.out(features)

    def tells(self, features: Float[Array, " size"]) -> dict[str, Array]:
        """What the mixer is told beside the value: nothing."""
        return {}


class Scene(eqx.Module):
    """What there is to mix by: of the world, and of the agents of each group, ``[time, row, ...]``."""

    state: PyTree
    """Of the space that the mixer was built for."""
    told: dict[str, dict[str, Float[Array, "time row agent ..."]]]
    """What the agents' nets tell."""
    alive: dict[str, Bool[Array, "time row agent"]]
    """Who decides."""


class Sum(eqx.Module):
    """The sum (Sunehag et al., 2018): each value is the agent's share."""

    def build(self, state: Space, agents: int, roles: int, key: Key[Array, ""]) -> Summed:
        """Nothing is learnt."""
        return Summed()


class Summed(eqx.Module):
    """The sum of all values."""

    def __call__(self, values: Float[Array, " agents"], state: PyTree) -> Float[Array, ""]:
        """The value of the team."""
        return jnp.sum(values)

    def scenes(self, first: Bool[Array, "time row"], now: Scene, following: Scene) -> tuple[PyTree, PyTree]:
        """What it goes by at all steps and after them: the state, which it does not look at."""
        return now.state, following.state


class Monotonic(eqx.Module):
    """A net whose weights are never negative and come from the state (Rashid et al., 2018)."""

    units: int = eqx.field(static=True, default=32)
    """Units of its one hidden layer."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Hidden layers of the nets that make its weights."""

    def build(self, state: Space, agents: int, roles: int, key: Key[Array, ""]) -> Mixed:
        """The net for ``agents`` values, with weights made from values of the space ``state``."""
        return Mixed(self, state, agents, key)


class Mixed(eqx.Module):
    """``|w2|' elu(|W1| q + b1) + b2``: weights and biases are nets of the state.

    ``|.|`` and elu rise everywhere, so the whole rises in every ``q``; ``b1`` is linear in the state, ``b2`` is not.
    """

    encoder: Encoder
    first: Made
    first_bias: Linear
    second: Made
    second_bias: Made
    units: int = eqx.field(static=True)

    def __init__(self, kind: Monotonic, state: Space, agents: int, key: Key[Array, ""]):
        keys = jax.random.split(key, 5)
        self.encoder, self.units = Encoder(state, keys[0]), kind.units
        size = self.encoder.size
        self.first = Made(size, kind.hidden, agents * kind.units, keys[1])
        self.first_bias = Linear(size, kind.units, uniform_fan_in, keys[2])
        self.second = Made(size, kind.hidden, kind.units, keys[3])
        self.second_bias = Made(size, (kind.units,), 1, keys[4])

    def __call__(self, values: Float[Array, " agents"], state: PyTree) -> Float[Array, ""]:
        """The value of the team."""
        seen = self.encoder(state)
        first = jnp.abs(self.first(seen)).reshape(values.shape[0], self.units)
        inside = jax.nn.elu(values @ first + self.first_bias(seen))
        return inside @ jnp.abs(self.second(seen)) + self.second_bias(seen)[0]

    def scenes(self, first: Bool[Array, "time row"], now: Scene, following: Scene) -> tuple[PyTree, PyTree]:
        """What it goes by at all steps and after them: the state."""
        return now.state, following.state


class Made(eqx.Module):
    """Numbers made from a state: hidden layers and a linear one."""

    mlp: MLP
    out: Linear

    def __init__(self, size: int, hidden: tuple[int, ...], count: int, key: Key[Array, ""]):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(size, hidden, uniform_fan_in, jax.nn.relu, mlp_key)
        self.out = Linear(hidden[-1] if hidden else size, count, uniform_fan_in, out_key)

    def __call__(self, state: Float[Array, " size"]) -> Float[Array, " count"]:
        """The numbers."""
        return self.out(self.mlp(state))


Mixer = Sum | Monotonic

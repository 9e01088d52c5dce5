"""A learnt model of a world: what one step does to an observation."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box
from thespis.nets.mlp import MLP, Linear, uniform_fan_in


class Dynamics(eqx.Module):
    """The next observation, from an observation and a canonical action side by side. Both are boxes of numbers."""

    mlp: MLP
    out: Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]):
        seen, done = spec.observation, spec.action
        if not (isinstance(seen, Box) and seen.dtype == "float32" and isinstance(done, Box)):
            raise UserError(
                f"a model of the world needs a box of numbers to predict and one to act with, {spec.name} has {seen} "
                f"and {done}: use sac or ppo"
            )
        mlp_key, out_key = jax.random.split(key)
        self.shape = seen.shape
        self.mlp = MLP(math.prod(seen.shape) + math.prod(done.shape), hidden, uniform_fan_in, jax.nn.relu, mlp_key)
        self.out = Linear(hidden[-1], math.prod(seen.shape), uniform_fan_in, out_key)

    def __call__(self, observation: Float[Array, "*seen"], action: Float[Array, "*action"]) -> Float[Array, "*seen"]:
        """What is seen after ``action``."""
        both = jnp.concatenate([observation.ravel(), action.ravel()])
        return self.out(self.mlp(both)).reshape(self.shape)

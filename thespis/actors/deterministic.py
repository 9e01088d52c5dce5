"""The deterministic actor of DDPG and TD3: a net whose ``tanh`` output is the canonical action."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.heads import act_rows, require_bounded
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, random_action
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in


class DeterministicActor(eqx.Module):
    """``tanh(linear(body(observation)))``, in the shape of the action box."""

    body: Body
    out: Linear
    space: Box = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]):
        if not isinstance(spec.action, Box):
            raise UserError(
                f"a deterministic policy gradient needs one box of continuous actions, {spec.name} has "
                f"{spec.action}: use ppo, a2c, sac or dqn"
            )
        require_bounded(spec.action)
        self.space = spec.action
        body_key, out_key = jax.random.split(key)
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.size, math.prod(self.space.shape), uniform_fan_in, out_key)

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        features, _ = self.body((), observation)
        return jnp.tanh(self.out(features)).reshape(self.space.shape)


class NoisyPolicy(eqx.Module):
    """What a deterministic actor carries while it explores: itself, Gaussian noise, and whether to start at random."""

    actor: DeterministicActor
    noise: Float[Array, ""]
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def __call__(self, view: View, key: Key[Array, ""]) -> Float[Array, "*action"]:
        """One action: of the actor alone unless it explores; uniform while no update has been made."""
        action = self.actor(view.observation)
        if self.mode is not Mode.EXPLORE:
            return action
        noise_key, random_key = jax.random.split(key)
        noisy = action + self.noise * jax.random.normal(noise_key, action.shape)
        return jnp.where(self.random, random_action(self.actor.space, random_key), jnp.clip(noisy, -1.0, 1.0))


class Deterministic(eqx.Module):
    """How a method with a deterministic actor acts; a concrete method adds what it learns."""

    def begin(self, policy: NoisyPolicy, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def act(self, policy: NoisyPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """One action a row."""
        return act_rows(lambda memory, view, key: (policy(view, key), memory, ()), memory, view, key)

"""The deterministic actor of DDPG and TD3: a net whose ``tanh`` output is the canonical action.

What critics take for an action is its ``answer``, through which gradients reach the actor: here the action itself. See
:mod:`thespis.actors.choosing` for choices.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.heads import act_rows, require_bounded
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, random_action
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.objectives.values import Number


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

    @property
    def answers(self) -> Box:
        """What critics take for an action: the action."""
        return self.space

    def answer(self, view: View, key: Key[Array, ""]) -> Float[Array, "*action"]:
        """The action, whatever the key."""
        return self(view.observation)

    def best(self, view: View) -> Float[Array, "*action"]:
        """The action."""
        return self(view.observation)

    def entered(self, action: Float[Array, "*action"]) -> Float[Array, "*action"]:
        """A stored action as critics take it."""
        return action

    def left(self, answer: Float[Array, "*action"]) -> Float[Array, "*action"]:
        """The inverse of :meth:`entered`."""
        return answer

    def playing(self, deviation: Array, pull: Array, random: Bool[Array, ""], mode: Mode) -> NoisyPolicy:
        """How it plays: with noise while it explores."""
        return NoisyPolicy(self, deviation, pull, random, mode)


@runtime_checkable
class Direct(Protocol):
    """What answers an observation with an action."""

    @property
    def space(self) -> Box:
        """Of its actions."""
        ...

    def __call__(self, observation: PyTree) -> Float[Array, "*action"]:
        """The action for one observation, in ``[-1, 1]``."""
        ...


class NoisyPolicy(eqx.Module):
    """What a deterministic actor carries while it explores: itself, its noise, and whether to start at random.

    The noise moves as ``n' = (1 - pull) n + deviation * normal``: ``pull`` 1 draws it anew at each step, less makes
    it an Ornstein-Uhlenbeck process, which pushes one way for about ``1 / pull`` steps.
    """

    actor: Direct
    deviation: Float[Array, ""]
    pull: Float[Array, ""]
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def begin(self, n: int) -> Float[Array, "row *action"]:
        """No noise yet, in ``n`` fresh episodes."""
        return jnp.zeros((n, *self.actor.space.shape))

    def __call__(
        self, noise: Float[Array, "*action"], view: View, key: Key[Array, ""]
    ) -> tuple[Float[Array, "*action"], Float[Array, "*action"]]:
        """One action and the noise in it: of the actor alone unless it explores, uniform before the first update."""
        action = self.actor(view.observation)
        if self.mode is not Mode.EXPLORE:
            return action, noise
        noise_key, random_key = jax.random.split(key)
        noise = (1.0 - self.pull) * noise + self.deviation * jax.random.normal(noise_key, action.shape)
        uniform = random_action(self.actor.space, random_key)
        return jnp.where(self.random, uniform, jnp.clip(action + noise, -1.0, 1.0)), noise


class Deterministic(eqx.Module):
    """How a method with a deterministic actor acts; a concrete method adds what it learns."""

    noise: Number = 0.1
    """Standard deviation of what exploration adds at each step, in canonical units: half the width of the bounds."""
    noise_pull: Number = 1.0
    """Share of its noise that exploration forgets at each step: 1 for white noise, less for Ornstein-Uhlenbeck."""

    def exploring(self, actor: Any, updates: Int[Array, ""], mode: Mode) -> Any:
        """``actor`` after so many updates as it plays in ``mode``."""
        deviation, pull = jnp.asarray(self.noise, "float32"), jnp.asarray(self.noise_pull, "float32")
        return actor.playing(deviation, pull, updates == 0, mode)

    def begin(self, policy: Any, n: int) -> Any:
        """What is remembered in ``n`` fresh episodes: the noise, if there is any."""
        return policy.begin(n)

    def act(self, policy: Any, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """One action a row; what is remembered is the noise."""
        return act_rows(lambda noise, view, key: (*policy(noise, view, key), ()), memory, view, key)

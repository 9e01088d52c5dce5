"""The actor of a deterministic policy gradient where an action is one discrete choice.

It draws, and its ``answer`` to critics is the draw, one-hot; gradients reach its logits by the straight-through
Gumbel-softmax (Jang et al., 2017). Its interface is that of :class:`thespis.actors.deterministic.DeterministicActor`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.deterministic import DeterministicActor
from thespis.actors.distributions import Categorical
from thespis.core.contracts import Mode
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, Discrete, random_action
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in


class ChoosingActor(eqx.Module):
    """A distribution over choices: ``softmax(linear(body(observation)))``."""

    body: Body
    out: Linear
    space: Discrete = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]):
        assert isinstance(spec.action, Discrete)
        self.space = spec.action
        body_key, out_key = jax.random.split(key)
        self.body = Body(spec.observation, hidden, body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.out = Linear(self.body.size, self.space.n, uniform_fan_in, out_key)

    def __call__(self, view: View) -> Categorical:
        """The distribution for one view."""
        return Categorical(self.out(self.body((), view.observation)[0]), view.legal)

    @property
    def answers(self) -> Box:
        """What critics take for an action: a choice, one-hot."""
        return Box((self.space.n,), 0.0, 1.0)

    def answer(self, view: View, key: Key[Array, ""]) -> Float[Array, " n"]:
        """A draw, one-hot, with the gradient of the softmax."""
        return self(view).straight_through(key)

    def best(self, view: View) -> Float[Array, " n"]:
        """The likeliest choice, one-hot."""
        return self.entered(self(view).mode())

    def entered(self, action: Int[Array, ""]) -> Float[Array, " n"]:
        """A stored choice as critics take it."""
        return jax.nn.one_hot(action, self.space.n)

    def left(self, answer: Float[Array, " n"]) -> Int[Array, ""]:
        """The inverse of :meth:`entered`."""
        return jnp.argmax(answer).astype("int32")

    def playing(self, deviation: Array, pull: Array, random: Bool[Array, ""], mode: Mode) -> ChoosingPolicy:
        """How it plays: by chance as it is, without other noise."""
        return ChoosingPolicy(self, random, mode)


class ChoosingPolicy(eqx.Module):
    """What such an actor carries; ``random`` until the first update."""

    actor: ChoosingActor
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)

    def begin(self, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def __call__(self, memory: tuple[()], view: View, key: Key[Array, ""]) -> tuple[Int[Array, ""], tuple[()]]:
        """One choice: the likeliest, a draw, or while it explores and is fresh, a uniform one that is legal."""
        chosen = self.actor(view)
        if self.mode is Mode.EXPLOIT:
            return chosen.mode(), memory
        draw_key, random_key = jax.random.split(key)
        drawn = chosen.sample(draw_key)
        if self.mode is Mode.SAMPLE:
            return drawn, memory
        return jnp.where(self.random, random_action(self.actor.space, random_key, view.legal), drawn), memory


Climbing = DeterministicActor | ChoosingActor
"""Actors that climb a critic by its gradient."""


def climbing(spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]) -> Climbing:
    """The actor that fits the action space. Raises ``UserError`` unless that is one bounded box or one choice."""
    return (ChoosingActor if isinstance(spec.action, Discrete) else DeterministicActor)(spec, hidden, key)

"""An actor that looks once and then decides a number of actions one after another, each from the one before.

What it saw begins the state of a recurrent unit, whose input is the last action; every state of it gives the
distribution of one action. So a sequence may be of any length, whatever the lengths it learnt with.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import SquashedNormal
from thespis.actors.heads import PolicyHead, SquashedGaussian, require_bounded
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, random_action
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, uniform_fan_in

Hidden = Float[Array, " units"]


class SequenceActor(eqx.Module):
    """Hidden layers, a gated recurrent unit as wide as the last of them, and a squashed head."""

    body: Body
    into: Linear
    cell: eqx.nn.GRUCell
    head: PolicyHead
    space: Box = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], key: Key[Array, ""]):
        if not isinstance(spec.action, Box):
            raise UserError(f"sequences are of one box of actions, {spec.name} has {spec.action}: use sac, dqn or ppo")
        require_bounded(spec.action)
        body_key, into_key, cell_key, head_key = jax.random.split(key, 4)
        self.space, units = spec.action, hidden[-1]
        self.body = Body(spec.observation, hidden[:-1], body_key, init=uniform_fan_in, activation=jax.nn.relu)
        self.into = Linear(self.body.size, units, uniform_fan_in, into_key)
        self.cell = eqx.nn.GRUCell(jnp.zeros(self.space.shape).size, units, key=cell_key)
        self.head = PolicyHead(spec.action, units, head_key, init=uniform_fan_in, continuous=SquashedGaussian())

    def look(self, view: View) -> Hidden:
        """The unit's state before the first action."""
        return self.into(self.body((), view.observation)[0])

    def next(self, hidden: Hidden, previous: Float[Array, "*action"]) -> tuple[SquashedNormal, Hidden]:
        """The distribution of the action that follows ``previous``, and the unit's state after it."""
        hidden = self.cell(previous.ravel(), hidden)
        chosen = self.head(hidden)
        assert isinstance(chosen, SquashedNormal)
        return chosen, hidden


class Script(eqx.Module):
    """Where a sequence stands: the unit's state, the last action, how many actions are left before the next look."""

    hidden: Float[Array, "*row units"]
    previous: Float[Array, "*row *action"]
    left: Int[Array, "*row"]


class SequencePolicy(eqx.Module):
    """What such an actor carries; ``random`` until the first update. It looks once in ``length`` steps."""

    actor: SequenceActor
    scale: PyTree
    random: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)
    length: int = eqx.field(static=True)

    def begin(self, n: int) -> Script:
        """Of fresh episodes: nothing was done, and it must look."""
        shape = self.actor.space.shape
        return Script(jnp.zeros((n, self.actor.cell.hidden_size)), jnp.zeros((n, *shape)), jnp.zeros(n, "int32"))

    def __call__(self, script: Script, view: View, key: Key[Array, ""]) -> tuple[Float[Array, "*action"], Script]:
        """One action for one scaled view, which matters only where the actor looks, and the script after it."""
        looks = script.left == 0
        hidden = jnp.where(looks, self.actor.look(view), script.hidden)
        chosen, hidden = self.actor.next(hidden, script.previous)
        action = self._picked(chosen, key)
        return action, Script(hidden, action, jnp.where(looks, self.length, script.left) - 1)

    def _picked(self, chosen: SquashedNormal, key: Key[Array, ""]) -> Float[Array, "*action"]:
        if self.mode is Mode.EXPLOIT:
            return chosen.mode()
        if self.mode is Mode.SAMPLE:
            return chosen.sample(key)
        sample_key, random_key = jax.random.split(key)
        return jnp.where(self.random, random_action(self.actor.space, random_key), chosen.sample(sample_key))

r"""Cheap talk (Lu et al. 2022, arXiv:2211.11030): a message is appended to what an agent sees; all else stays.

.. math:: m = scale \cdot \tanh(W_2 \tanh(W_1 o + b_1) + b_2)

The message is a fixed function of the observation: it hides nothing, adds no chance, and neither dynamics nor rewards
depend on it. Its parameters are the episode's, so whoever speaks may be learnt (:mod:`.trainings`).
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box


class Speech(eqx.Module):
    """Parameters of one episode: the speaker's, as one vector, and the world's own."""

    speaker: Float[Array, "*row parameter"]
    world: PyTree


class Talking(eqx.Module):
    """One episode under way, and who speaks in it."""

    inner: PyTree
    speaker: Float[Array, "*row parameter"]


class CheapTalk(eqx.Module):
    """``world`` whose observations, one vector, end with a message of ``size`` numbers, at most ``scale`` in size.

    All parameters 0, as ``spec.params`` has them, say 0. Parameters drawn from a standard normal distribution make
    a net of ordinary size: its weights are divided by the root of how many numbers they add up.

    Raises:
        UserError: when asked for its spec, if the world shows anything but one vector.
    """

    world: Environment
    size: int = eqx.field(static=True, default=2)
    hidden: int = eqx.field(static=True, default=8)
    scale: float = eqx.field(static=True, default=2 * math.pi)

    @property
    def parameters(self) -> int:
        """How many numbers make a speaker."""
        return self.hidden * (self._seen + 1) + self.size * (self.hidden + 1)

    @property
    def _seen(self) -> int:
        space = self.world.spec.observation
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise UserError(f"cheap talk is appended to one vector, and {self.world.spec.name} shows {space}")
        return space.shape[0]

    @property
    def spec(self) -> EnvSpec:
        """The world's, with a longer observation and a speaker who says nothing."""
        told = self.world.spec
        silent = Speech(jnp.zeros(self.parameters), told.params)
        longer = Box((self._seen + self.size,))
        return dataclasses.replace(told, name=f"{told.name} with talk", observation=longer, params=silent)

    def message(self, speaker: Float[Array, " parameter"], observation: Float[Array, " seen"]) -> Float[Array, " size"]:
        """What is said of an observation."""
        seen, hidden = self._seen, self.hidden
        first, bias, last, end = jnp.split(speaker, [hidden * seen, hidden * (seen + 1), self.parameters - self.size])
        within = jnp.tanh(first.reshape(hidden, seen) @ observation / seen**0.5 + bias)
        return self.scale * jnp.tanh(last.reshape(self.size, hidden) @ within / hidden**0.5 + end)

    def reset(self, params: Speech, key: Key[Array, ""]) -> tuple[Talking, TimeStep]:
        """The start of one episode."""
        state, step = self.world.reset(params.world, key)
        return Talking(state, params.speaker), self._told(params.speaker, step)

    def step(self, state: Talking, action: PyTree, key: Key[Array, ""]) -> tuple[Talking, TimeStep]:
        """One step of the world."""
        inner, step = self.world.step(state.inner, action, key)
        return Talking(inner, state.speaker), self._told(state.speaker, step)

    def _told(self, speaker: Float[Array, " parameter"], step: TimeStep) -> TimeStep:
        seen = jnp.concatenate([step.observation, self.message(speaker, step.observation)])
        return eqx.tree_at(lambda s: s.observation, step, seen)

"""A swarm as a world of one agent, who decides by which rule all of its members act: mean-field control.

An action is a decision rule: at each of ``m`` points among what members may see, a mean turn and how far turns are
drawn around it. Each member mixes the rules of the points by what it sees itself, and draws its turn: it needs to be
told nothing but the rule. The one that decides sees the clock alone, so that rules can be handed out beforehand; its
critic sees the mean field, the share of members near each of some points among headings and places.

How points stand for a space is :class:`Kernels`, by which rule and field change smoothly, or :class:`Histogram`, by
which they jump as a member crosses into another cell.

Source: Cui et al., 2024 (arXiv:2307.06175). Numbers and points are not theirs; not verified: theirs may let the one
that decides see the mean field too.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.keys import fold
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.envs.compiled.swarms import KURAMOTO, VICSEK, Flock, Swarm, order

STEADY, LOOSE = math.log(0.02), 0.0
"""Least and largest logarithm of the standard deviation of turns."""


class Kernels(eqx.Module):
    """Points count by a normal density around each, of standard deviation ``width`` (Nadaraya and Watson's weights)."""

    width: float = eqx.field(static=True, default=0.25)

    def weights(self, x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
        """How much each point counts at ``x``; together 1."""
        return jax.nn.softmax(-0.5 * _squared(x, points) / self.width**2)


class Histogram(eqx.Module):
    """The nearest point counts alone: a table of cells."""

    def weights(self, x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
        """1 for the nearest point, 0 for the others."""
        return jax.nn.one_hot(jnp.argmin(_squared(x, points)), len(points))


class MeanField(eqx.Module):
    """A swarm whose members all act by one rule: see the module.

    Actions are ``2 m`` numbers in [-1, 1]: the mean turn at each point, and the logarithm of the standard deviation
    between ``STEADY`` and ``LOOSE``. ``fine`` is the number of points along each axis of what members see; the field
    has ``phases`` headings by ``cells`` times ``cells`` places.
    """

    swarm: Swarm = eqx.field(default=VICSEK)
    by: Kernels | Histogram = eqx.field(default=Kernels())
    fine: int = eqx.field(static=True, default=5)
    phases: int = eqx.field(static=True, default=8)
    cells: int = eqx.field(static=True, default=2)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        field, rule = Box((self.phases * self.cells**2,), 0.0, 1.0), Box((2 * self.fine**2,), -1.0, 1.0)
        return EnvSpec("mean-field", Box((1,), 0.0, 1.0), rule, time_limit=self.swarm.limit, privileged=field)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Flock, TimeStep]:
        """A fresh swarm."""
        flock = self.swarm.begin(key)
        return flock, self._answer(flock, jnp.zeros(()))

    def step(self, state: Flock, action: Float[Array, " rule"], key: Key[Array, ""]) -> tuple[Flock, TimeStep]:
        """Every member draws its turn by the rule."""
        turns = self.turns(state, action, fold(key, "turns"))
        flock = self.swarm.move(state, turns, fold(key, "move"))
        return flock, self._answer(flock, order(flock))

    def turns(self, flock: Flock, action: Float[Array, " rule"], key: Key[Array, ""]) -> Float[Array, " agent"]:
        """What each member draws, by what it sees alone."""
        points = _grid(jnp.linspace(-1.0, 1.0, self.fine), jnp.linspace(-1.0, 1.0, self.fine))
        mixed = jax.vmap(lambda seen: self.by.weights(seen, points))(self.swarm.seen(flock))
        mean, loose = jnp.split(jnp.clip(action, -1.0, 1.0), 2)
        log_std = STEADY + (LOOSE - STEADY) * (loose + 1.0) / 2.0
        return mixed @ mean + jnp.exp(mixed @ log_std) * jax.random.normal(key, flock.heading.shape)

    def field(self, flock: Flock) -> Float[Array, " points"]:
        """The share of members near each point, ``[heading, first place, second place]`` ravelled."""
        heading = 2 * jnp.pi * jnp.arange(self.phases) / self.phases
        place = 2 * jnp.pi * (jnp.arange(self.cells) + 0.5) / self.cells
        turned = jnp.concatenate([flock.heading[:, None], 2 * jnp.pi * flock.place], axis=1)
        points = _round(_grid(heading, place, place))
        return jnp.mean(jax.vmap(lambda x: self.by.weights(x, points))(_round(turned)), axis=0)

    def _answer(self, flock: Flock, paid: Float[Array, ""]) -> TimeStep:
        clock, no = self.swarm.passed(flock)[None], jnp.zeros((), bool)
        return TimeStep(clock, paid, no, self.swarm.cut(flock), privileged=self.field(flock))


def _squared(x: Float[Array, " d"], points: Float[Array, "m d"]) -> Float[Array, " m"]:
    return jnp.sum((points - x) ** 2, axis=-1)


def _grid(*axes: Float[Array, " _"]) -> Float[Array, "m d"]:
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _round(angles: Float[Array, "n d"]) -> Float[Array, "n 2*d"]:
    """Angles as points on circles, so that what is near across the seam is near."""
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


KURAMOTO_BY_KERNELS, KURAMOTO_BY_HISTOGRAM = MeanField(KURAMOTO), MeanField(KURAMOTO, Histogram())
VICSEK_BY_KERNELS, VICSEK_BY_HISTOGRAM = MeanField(VICSEK), MeanField(VICSEK, Histogram())

"""A point in a plane and four goals, all alike: which of them is best is a matter of taste.

A policy that is to be as random as it can while it earns as much as it can must go to all of them, equally often, and
choose in the middle, where the four are equally good and nothing is gained by standing between them.

Source: the multi-goal world of soft Q-learning (Haarnoja et al. 2017, arXiv:1702.08165), with the numbers of its
authors' code, which cuts episodes after 30 steps; their later code has the reward a tenth as large or so, with
``goal_reward=1, effort=1, distance=0.1``.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

GOALS = ((5.0, 0.0), (-5.0, 0.0), (0.0, 5.0), (0.0, -5.0))
"""Where the goals are: east, west, north, south."""
REACH = 1.0
"""How near a goal is near enough."""
EDGE = 7.0
"""The plane ends this far from the middle, on all four sides."""

Place = Float[Array, "2"]


class Point(eqx.Module):
    """One episode under way."""

    place: Place
    time: Int[Array, ""]


class MultiGoal(eqx.Module):
    """Actions are steps, up to 1 in either direction; the observation is the place, which an edge holds in the plane.

    A step is paid ``-effort |step|² - distance d²``, where ``d`` is the distance from the place it leads to, to the
    nearest goal. Nearer than :data:`REACH` to a goal the episode ends, and ``goal_reward`` is paid. Episodes begin in
    the middle, with a deviation of ``spread`` in either direction, and are cut after ``limit`` steps.
    """

    goal_reward: float = eqx.field(static=True, default=10.0)
    effort: float = eqx.field(static=True, default=30.0)
    distance: float = eqx.field(static=True, default=1.0)
    spread: float = eqx.field(static=True, default=0.1)
    limit: int = eqx.field(static=True, default=30)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("multi-goal", Box((2,), -EDGE, EDGE), Box((2,), -1.0, 1.0), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Point, TimeStep]:
        """Near the middle."""
        place = jnp.clip(self.spread * jax.random.normal(key, (2,)), -EDGE, EDGE)
        nothing = jnp.zeros((), bool)
        return Point(place, jnp.zeros((), "int32")), TimeStep(place, jnp.zeros(()), nothing, nothing)

    def step(self, state: Point, action: Float[Array, "2"], key: Key[Array, ""]) -> tuple[Point, TimeStep]:
        """One step."""
        moved = jnp.clip(action, -1.0, 1.0)
        place, time = jnp.clip(state.place + moved, -EDGE, EDGE), state.time + 1
        squared = jnp.min(squared_distances(place))
        there = squared < REACH**2
        paid = self.goal_reward * there - self.effort * jnp.sum(moved**2) - self.distance * squared
        return Point(place, time), TimeStep(place, paid, there, (time >= self.limit) & ~there)


LONG = MultiGoal(limit=1_000)
"""Who walks at random gets to a goal: exploration sees them all."""


def squared_distances(place: Float[Array, "*axes 2"]) -> Float[Array, "*axes 4"]:
    """From ``place`` to each of :data:`GOALS`."""
    return jnp.sum((place[..., None, :] - jnp.array(GOALS)) ** 2, axis=-1)

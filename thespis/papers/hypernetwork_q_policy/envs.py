"""Turning bodies: bodies that turn all the time are pushed to a goal in their own frame.

The same push moves a body in another direction at every heading. So the slope of a value with respect to the action is
a product of what is observed: position times direction.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box


class TurningBodiesState(eqx.Module):
    """State of one episode: positions in a fixed frame, headings (rad), and number of steps taken."""

    positions: Float[Array, "body 2"]
    headings: Float[Array, " body"]
    time: Int[Array, ""]


class TurningBodies(eqx.Module):
    """Turning bodies in a plane, each of which must be pushed to the origin and kept there.

    An action is a push for every body, forward and to the left as the body sees it, in ``[-1, 1]``; it moves the body
    by ``step_size`` times as much. Then every body turns by ``turn`` rad. Observations are all positions in the fixed
    frame, then the cosines and sines of all headings. The reward is minus the mean distance from the origin after the
    step. Episodes start at positions in ``[-1, 1]`` and headings drawn uniformly, and are truncated after
    ``time_limit`` steps. Nothing is random after the start.
    """

    num_bodies: int = eqx.field(static=True, default=3)
    step_size: float = eqx.field(static=True, default=0.1)
    turn: float = eqx.field(static=True, default=0.3)
    time_limit: int = eqx.field(static=True, default=30)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec(
            "turning-bodies",
            Box((4 * self.num_bodies,)),
            Box((2 * self.num_bodies,), -1.0, 1.0),
            time_limit=self.time_limit,
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[TurningBodiesState, TimeStep]:
        """Draws positions and headings."""
        position_key, heading_key = jax.random.split(key)
        positions = jax.random.uniform(position_key, (self.num_bodies, 2), minval=-1.0, maxval=1.0)
        headings = jax.random.uniform(heading_key, (self.num_bodies,), maxval=2 * math.pi)
        state = TurningBodiesState(positions, headings, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: TurningBodiesState, action: Float[Array, " push"], key: Key[Array, ""]
    ) -> tuple[TurningBodiesState, TimeStep]:
        """Pushes all bodies, which turn afterwards."""
        forward, left = jnp.clip(action, -1.0, 1.0).reshape(self.num_bodies, 2).T
        cosine, sine = jnp.cos(state.headings), jnp.sin(state.headings)
        push = jnp.stack([cosine * forward - sine * left, sine * forward + cosine * left], axis=1)
        positions = state.positions + self.step_size * push
        reward = -jnp.mean(jnp.linalg.norm(positions, axis=1))
        state = TurningBodiesState(positions, state.headings + self.turn, state.time + 1)
        return state, self._time_step(state, reward)

    def _time_step(self, state: TurningBodiesState, paid: Float[Array, ""]) -> TimeStep:
        observation = jnp.concatenate([state.positions.ravel(), jnp.cos(state.headings), jnp.sin(state.headings)])
        return TimeStep(observation, paid, jnp.zeros((), bool), state.time >= self.time_limit)

"""The reacher of :mod:`thespis.envs.compiled.reacher` as a camera above it sees it, in a few pixels."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.envs.compiled.reacher import JOINTS, LINK, Reacher, Reaching, tip

THICK = 0.1
"""Half the thickness of what is drawn, m: light falls linearly to nothing over it."""


class Filmed(eqx.Module):
    """The arm, and its angles a step ago."""

    now: Reaching
    before: Float[Array, "2"]


class PixelReacher(eqx.Module):
    """What is seen are ``side`` times ``side`` pixels of the square in which the arm reaches: three channels of bytes,
    the arm, the arm a step ago, and the goal. Actions, rewards and episodes are those of the world that is filmed.
    """

    side: int = eqx.field(static=True, default=12)
    world: Reacher = Reacher()

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        seen = Box((self.side, self.side, 3), 0, 255, "uint8")
        return EnvSpec("pixel-reacher", seen, self.world.spec.action, time_limit=self.world.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Filmed, TimeStep]:
        """At rest."""
        state, answer = self.world.reset(params, key)
        return self._filmed(state, state.angle, answer)

    def step(self, state: Filmed, action: Float[Array, " dimension"], key: Key[Array, ""]) -> tuple[Filmed, TimeStep]:
        """One step of the world."""
        now, answer = self.world.step(state.now, action, key)
        return self._filmed(now, state.now.angle, answer)

    def _filmed(self, state: Reaching, before: Float[Array, "2"], answer: TimeStep) -> tuple[Filmed, TimeStep]:
        drawn = arm(state.angle, self.side), arm(before, self.side), light(state.goal, state.goal, self.side)
        seen = jnp.stack([_bytes(channel) for channel in drawn], axis=-1)
        return Filmed(state, before), eqx.tree_at(lambda a: a.observation, answer, seen)


def arm(angle: Float[Array, "2"], side: int) -> Float[Array, "side side"]:
    """Both links, in [0, 1]."""
    elbow = LINK * jnp.stack([jnp.cos(angle[0]), jnp.sin(angle[0])])
    return jnp.maximum(light(jnp.zeros(JOINTS), elbow, side), light(elbow, tip(angle), side))


def light(start: Float[Array, "2"], end: Float[Array, "2"], side: int) -> Float[Array, "side side"]:
    """How near pixels' centres are to a line: 1 on it, 0 from :data:`THICK` on; rows go down, columns to the right."""
    reach = JOINTS * LINK + THICK
    centres = reach * ((2 * jnp.arange(side) + 1) / side - 1)
    pixels = jnp.stack(jnp.meshgrid(centres, -centres), axis=-1)
    along = end - start
    share = jnp.clip(jnp.sum((pixels - start) * along, axis=-1) / jnp.maximum(jnp.sum(along**2), 1e-12), 0.0, 1.0)
    far = jnp.linalg.norm(pixels - start - share[..., None] * along, axis=-1)
    return jnp.clip(1.0 - far / THICK, 0.0, 1.0)


def _bytes(channel: Float[Array, "side side"]) -> UInt8[Array, "side side"]:
    return jnp.round(255 * channel).astype(jnp.uint8)

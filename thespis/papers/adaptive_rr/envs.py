"""Image observations of :mod:`thespis.envs.compiled.reacher`: a camera from above, a few pixels wide."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.envs.compiled.reacher import LINK_LENGTH, NUM_JOINTS, Reacher, ReacherState, fingertip_position

LINE_HALF_WIDTH = 0.1
"""Half the width of drawn lines, m: brightness falls linearly to 0 over it."""


class PixelReacherState(eqx.Module):
    """State of the reacher, and its joint angles one step ago."""

    env_state: ReacherState
    previous_angles: Float[Array, "2"]


class PixelReacher(eqx.Module):
    """Reacher environment with image observations: a camera looks at the arm from above.

    Observations are ``image_size`` by ``image_size`` uint8 images of the square that the arm can reach. The three
    channels are the arm, the arm one step ago, and the goal. Actions, rewards and episodes are those of ``env``.
    """

    image_size: int = eqx.field(static=True, default=12)
    env: Reacher = Reacher()

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        observation_space = Box((self.image_size, self.image_size, 3), 0, 255, "uint8")
        return EnvSpec("pixel-reacher", observation_space, self.env.spec.action_space, time_limit=self.env.time_limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[PixelReacherState, TimeStep]:
        """Resets the reacher; the previous angles are the current ones."""
        state, step = self.env.reset(params, key)
        return self._render(state, state.joint_angles, step)

    def step(
        self, state: PixelReacherState, action: Float[Array, " dimension"], key: Key[Array, ""]
    ) -> tuple[PixelReacherState, TimeStep]:
        """One step of the reacher."""
        next_state, step = self.env.step(state.env_state, action, key)
        return self._render(next_state, state.env_state.joint_angles, step)

    def _render(
        self, state: ReacherState, before: Float[Array, "2"], answer: TimeStep
    ) -> tuple[PixelReacherState, TimeStep]:
        channels = (
            draw_arm(state.joint_angles, self.image_size),
            draw_arm(before, self.image_size),
            draw_line(state.goal, state.goal, self.image_size),
        )
        image = jnp.stack([_to_uint8(channel) for channel in channels], axis=-1)
        return PixelReacherState(state, before), eqx.tree_at(lambda a: a.observation, answer, image)


def draw_arm(angles: Float[Array, "2"], image_size: int) -> Float[Array, "side side"]:
    """Draw both links as an image with brightness in [0, 1]."""
    elbow = LINK_LENGTH * jnp.stack([jnp.cos(angles[0]), jnp.sin(angles[0])])
    return jnp.maximum(
        draw_line(jnp.zeros(NUM_JOINTS), elbow, image_size), draw_line(elbow, fingertip_position(angles), image_size)
    )


def draw_line(start: Float[Array, "2"], end: Float[Array, "2"], image_size: int) -> Float[Array, "side side"]:
    """Draw a line segment as an image: brightness 1 on it, 0 from :data:`LINE_HALF_WIDTH` on.

    Rows go down, columns to the right.
    """
    reach = NUM_JOINTS * LINK_LENGTH + LINE_HALF_WIDTH
    centres = reach * ((2 * jnp.arange(image_size) + 1) / image_size - 1)
    pixels = jnp.stack(jnp.meshgrid(centres, -centres), axis=-1)
    along = end - start
    share = jnp.clip(jnp.sum((pixels - start) * along, axis=-1) / jnp.maximum(jnp.sum(along**2), 1e-12), 0.0, 1.0)
    distance = jnp.linalg.norm(pixels - start - share[..., None] * along, axis=-1)
    return jnp.clip(1.0 - distance / LINE_HALF_WIDTH, 0.0, 1.0)


def _to_uint8(channel: Float[Array, "side side"]) -> UInt8[Array, "side side"]:
    return jnp.round(255 * channel).astype(jnp.uint8)

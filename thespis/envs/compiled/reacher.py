"""Reacher: a two-link arm in a plane brings its fingertip to a goal that is drawn anew in every episode.

Only motors and friction act on the arm. Each joint is an independent mass, ``velocity' = MAX_ACCELERATION action -
FRICTION velocity``, integrated exactly over a step. Task and sizes are after "reacher" of the DeepMind Control Suite
(Tassa et al., 2018, arXiv:1801.00690).

Differs from the Control Suite: there the links are coupled by their inertia; here they are not, so every motion has a
closed form.

Dummy actions are further dimensions of the action without effect; the policy must find out which dimensions matter.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

NUM_JOINTS = 2
LINK_LENGTH = 0.5
"""Length of either link, m."""
MIN_GOAL_DISTANCE, MAX_GOAL_DISTANCE = 0.2, 0.9
"""Range of the goal's distance from the shoulder, m."""
MAX_ACCELERATION, FRICTION = 10.0, 2.0
"""Maximum motor acceleration (rad/s²) and friction (1/s): a joint turns at no more than 5 rad/s."""
ACTION_COST = 0.05
"""Cost of a squared action, in m of distance."""


class ReacherState(eqx.Module):
    """State of one episode: joint angles (rad; the lower relative to the upper), velocities (rad/s) and goal (m)."""

    joint_angles: Float[Array, "2"]
    joint_velocities: Float[Array, "2"]
    goal: Float[Array, "2"]
    time: Int[Array, ""]


class Reacher(eqx.Module):
    """Reacher environment: a two-link arm must bring its fingertip to a goal and keep it there.

    Actions are in ``[-1, 1]``; episodes are truncated after ``time_limit`` steps of ``dt`` seconds. Observations are
    cosine and sine of both angles, the velocities / 5 rad/s, and the vector from fingertip to goal (m). The reward is
    minus the distance after the step, minus ``ACTION_COST`` times the squared joint actions; with ``sparse_reward`` it
    is 1 if the fingertip is within ``goal_radius`` of the goal, else 0.
    """

    num_dummy_actions: int = eqx.field(static=True, default=0)
    """Number of further action dimensions without effect."""
    sparse_reward: bool = eqx.field(static=True, default=False)
    """Reward only for being at the goal."""
    goal_radius: float = eqx.field(static=True, default=0.1)
    """Distance that counts as being at the goal, m."""
    action_noise_std: float = eqx.field(static=True, default=0.0)
    """Standard deviation of the noise added to the joint actions before they are clipped."""
    time_limit: int = eqx.field(static=True, default=100)
    """Number of steps in an episode."""
    dt: float = eqx.field(static=True, default=0.05)
    """Seconds per step."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec(
            "reacher", Box((8,)), Box((NUM_JOINTS + self.num_dummy_actions,), -1.0, 1.0), time_limit=self.time_limit
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[ReacherState, TimeStep]:
        """Draws any pose, at rest, and a goal in any direction."""
        angle_key, direction_key, distance_key = jax.random.split(key, 3)
        angle = jax.random.uniform(angle_key, (NUM_JOINTS,), minval=-jnp.pi, maxval=jnp.pi)
        direction = jax.random.uniform(direction_key, (), minval=-jnp.pi, maxval=jnp.pi)
        goal = jax.random.uniform(distance_key, (), minval=MIN_GOAL_DISTANCE, maxval=MAX_GOAL_DISTANCE) * _unit_vector(
            direction
        )
        state = ReacherState(angle, jnp.zeros(NUM_JOINTS), goal, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: ReacherState, action: Float[Array, " dimension"], key: Key[Array, ""]
    ) -> tuple[ReacherState, TimeStep]:
        """Integrates the joints for ``dt`` seconds."""
        joint_action = action[:NUM_JOINTS]
        control = jnp.clip(joint_action + self.action_noise_std * jax.random.normal(key, (NUM_JOINTS,)), -1.0, 1.0)
        angle, velocity = integrate_joints(state.joint_angles, state.joint_velocities, control, self.dt)
        state = ReacherState(angle, velocity, state.goal, state.time + 1)
        distance = jnp.linalg.norm(state.goal - fingertip_position(angle))
        effort = ACTION_COST * jnp.sum(jnp.clip(joint_action, -1.0, 1.0) ** 2)
        reward = (distance < self.goal_radius).astype("float32") if self.sparse_reward else -distance - effort
        return state, self._time_step(state, reward)

    def _time_step(self, state: ReacherState, paid: Float[Array, ""]) -> TimeStep:
        to_goal, max_velocity = state.goal - fingertip_position(state.joint_angles), MAX_ACCELERATION / FRICTION
        observation = jnp.concatenate(
            [jnp.cos(state.joint_angles), jnp.sin(state.joint_angles), state.joint_velocities / max_velocity, to_goal]
        )
        return TimeStep(observation, paid, jnp.zeros((), bool), state.time >= self.time_limit)


def fingertip_position(joint_angles: Float[Array, "2"]) -> Float[Array, "2"]:
    """Position of the fingertip, m from the shoulder."""
    return LINK_LENGTH * (_unit_vector(joint_angles[0]) + _unit_vector(joint_angles[0] + joint_angles[1]))


def integrate_joints(
    joint_angles: Float[Array, "2"], joint_velocities: Float[Array, "2"], control: Float[Array, "2"], dt: float
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Integrate angles (rad) and velocities (rad/s) exactly over ``dt`` seconds of constant ``control``.

    The control is in ``[-1, 1]``.
    """
    final_velocity, decay = MAX_ACCELERATION / FRICTION * control, jnp.exp(-FRICTION * dt)
    return joint_angles + final_velocity * dt + (joint_velocities - final_velocity) * (
        1 - decay
    ) / FRICTION, final_velocity + (joint_velocities - final_velocity) * decay


def _unit_vector(angle: Float[Array, ""]) -> Float[Array, "2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


SPARSE_REACHER = Reacher(sparse_reward=True, goal_radius=0.2)
"""Rewarded only for being within 0.2 m of the goal."""
NOISY_REACHER = Reacher(action_noise_std=0.5)
"""Motor noise with half the size of the largest action."""

"""Planar quadrotor: a craft with two rotors flies in a vertical plane and must come to rest at the origin.

The quadrotor of Eschmann et al. 2023 seen from its side, where each rotor stands for two. As theirs, it is controlled
by its rotor speeds, which lag behind the commands and are not observed; the actor observes its recent commands instead,
and critics the full state without noise, with the rotor speeds and the external force (``privileged``). Rewards are
theirs: :class:`thespis.papers.learning_to_fly.envs.RewardWeights`, which a curriculum can change. With two dimensions
less to control, TD3 learns to hover in thousands of updates.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.papers.learning_to_fly.envs import RewardWeights

Scalar = Float[Array, ""]
PlanarVector = Float[Array, "8"]
"""Position ``x, z`` (m, z up), tilt (rad, positive turns towards -x), their velocities, and both rotor speeds."""


class PlanarParams(eqx.Module):
    """Parameters of one episode: kg, m, kg m², N, s, m/s²; bounds of uniform initial states; noise; reward weights.

    A rotor at speed ``n`` in ``[0, 1]`` has the thrust ``max_thrust n²``. The rotors stand at ``±arm_length``, and
    follow the commanded speeds with the time constant ``rotor_lag``. The episode terminates when a coordinate of the
    position exceeds ``position_bound``. With probability ``guidance_prob`` it starts at the origin, upright. A constant
    force with the standard deviation ``force_std`` (N) acts on the craft.
    """

    mass: Scalar
    inertia: Scalar
    arm_length: Scalar
    max_thrust: Scalar
    rotor_lag: Scalar
    gravity: Scalar
    max_position: Scalar
    max_tilt: Scalar
    max_velocity: Scalar
    max_angular_velocity: Scalar
    guidance_prob: Scalar
    noise_std: Scalar
    position_bound: Scalar
    force_std: Scalar
    reward: RewardWeights

    def hover_speed(self) -> Scalar:
        """Rotor speed at which both rotors carry the weight."""
        return jnp.sqrt(self.mass * self.gravity / (2 * self.max_thrust))

    def derivative(self, physics: PlanarVector, command: Float[Array, "2"], force: Float[Array, "2"]) -> PlanarVector:
        """Time derivative under commanded rotor speeds and an external force (N)."""
        tilt, velocity, rotor_speeds = physics[2], physics[3:6], physics[6:]
        left, right = self.max_thrust * rotor_speeds**2
        thrust = left + right
        acceleration = jnp.stack([-jnp.sin(tilt) * thrust + force[0], jnp.cos(tilt) * thrust + force[1]]) / self.mass
        acceleration = acceleration - jnp.stack([jnp.zeros(()), self.gravity])
        angular = self.arm_length * (right - left) / self.inertia
        return jnp.concatenate([velocity, acceleration, angular[None], (command - rotor_speeds) / self.rotor_lag])


def default_params() -> PlanarParams:
    """A craft of 1 kg with twice the thrust that it needs, rotors as slow as those of the Crazyflie, and its reward."""
    numbers = (1.0, 0.05, 0.2, 9.81, 0.15, 9.81, 0.3, 0.5, 0.5, 0.5, 0.1, 0.002, 1.0, 0.25)
    weights = RewardWeights(*(jnp.float32(x) for x in (2.0, 0.5, 5.0, 5.0, 0.01, 0.0, 0.01)))
    return PlanarParams(*(jnp.float32(x) for x in numbers), reward=weights)


class PlanarState(eqx.Module):
    """State of one episode; the last row of ``action_history`` is the most recent action."""

    physics: PlanarVector
    action_history: Float[Array, "history 2"]
    force: Float[Array, "2"]
    time: Int[Array, ""]
    params: PlanarParams


class PlanarQuadrotor(eqx.Module):
    """Hover at the origin: two actions in ``[-1, 1]`` are rotor speeds from zero to the maximum, for ``dt`` seconds.

    Observations are position, cosine and sine of the tilt, and the velocities, with noise, then the last
    ``history_length`` actions, oldest first. ``privileged`` is the same without noise and actions, then the external
    force in units of the weight and the rotor speeds in ``[-1, 1]``; it is present only with ``use_privileged``.
    Episodes are truncated after ``time_limit`` steps. ``spec.params`` is a :class:`PlanarParams`.
    """

    make_params: Callable[[], PlanarParams] = eqx.field(static=True, default=default_params)
    history_length: int = eqx.field(static=True, default=8)
    use_privileged: bool = eqx.field(static=True, default=True)
    time_limit: int = eqx.field(static=True, default=100)
    dt: float = eqx.field(static=True, default=0.04)
    substeps: int = eqx.field(static=True, default=2)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and default parameters."""
        return EnvSpec(
            "planar-quadrotor",
            Box((7 + 2 * self.history_length,)),
            Box((2,), -1.0, 1.0),
            time_limit=self.time_limit,
            params=self.make_params(),
            privileged_space=Box((11,)) if self.use_privileged else None,
        )

    def reset(self, params: PlanarParams, key: Key[Array, ""]) -> tuple[PlanarState, TimeStep]:
        """Draws an initial state; rotors start at half speed, and the action history says so."""
        start_key, guidance_key, force_key, noise_key = jax.random.split(key, 4)
        bounds = jnp.stack(
            [
                *(params.max_position,) * 2,
                params.max_tilt,
                *(params.max_velocity,) * 2,
                params.max_angular_velocity,
            ]
        )
        body = bounds * jax.random.uniform(start_key, (6,), minval=-1.0)
        guided = jax.random.uniform(guidance_key) < params.guidance_prob
        body = jnp.where(guided & (jnp.arange(6) < 3), 0.0, body)
        physics = jnp.concatenate([body, jnp.full(2, 0.5)])
        force = params.force_std * jax.random.normal(force_key, (2,))
        state = PlanarState(physics, jnp.zeros((self.history_length, 2)), force, jnp.zeros((), "int32"), params)
        return state, self._time_step(state, jnp.zeros(()), jnp.zeros((), bool), noise_key)

    def step(self, state: PlanarState, action: Float[Array, "2"], key: Key[Array, ""]) -> tuple[PlanarState, TimeStep]:
        """Flies for ``dt`` seconds.

        The reward is that of the state in which the step began; 0 if the craft leaves its bounds, which terminates.
        """
        params, action = state.params, jnp.clip(action, -1.0, 1.0)
        physics = state.physics
        for _ in range(self.substeps):
            physics = rk4_step(params, physics, (action + 1) / 2, state.force, self.dt / self.substeps)
        commands = (
            jnp.concatenate([state.action_history, action[None]])[1:] if self.history_length else state.action_history
        )
        next_state = PlanarState(physics, commands, state.force, state.time + 1, params)
        terminated = jnp.max(jnp.abs(physics[:2])) > params.position_bound
        reward = jnp.where(terminated, 0.0, planar_reward(state.physics, action, params))
        return next_state, self._time_step(next_state, reward, terminated, key)

    def _time_step(self, state: PlanarState, paid: Scalar, gone: Bool[Array, ""], key: Key[Array, ""]) -> TimeStep:
        physics, params = state.physics, state.params
        features = jnp.concatenate([physics[:2], jnp.cos(physics[2:3]), jnp.sin(physics[2:3]), physics[3:6]])
        noisy = features + params.noise_std * jax.random.normal(key, features.shape)
        rotors = 2 * physics[6:] - 1
        external = state.force / (params.mass * params.gravity)
        return TimeStep(
            jnp.concatenate([noisy, state.action_history.ravel()]),
            paid,
            gone,
            state.time >= self.time_limit,
            privileged=jnp.concatenate([features, external, rotors]) if self.use_privileged else None,
        )


NO_HISTORY = PlanarQuadrotor(history_length=0)
"""Without an action history: the actor does not observe its last actions."""
NO_PRIVILEGED = PlanarQuadrotor(use_privileged=False)
"""Without privileged observations: critics observe what the actor observes."""


def rk4_step(
    params: PlanarParams, physics: PlanarVector, command: Float[Array, "2"], force: Float[Array, "2"], dt: float
) -> PlanarVector:
    """Integrate the state over ``dt`` seconds by the classical fourth-order Runge-Kutta method."""
    first = params.derivative(physics, command, force)
    second = params.derivative(physics + dt / 2 * first, command, force)
    third = params.derivative(physics + dt / 2 * second, command, force)
    fourth = params.derivative(physics + dt * third, command, force)
    return physics + dt / 6 * (first + 2 * second + 2 * third + fourth)


def planar_reward(physics: PlanarVector, action: Float[Array, "2"], params: PlanarParams) -> Scalar:
    """``constant - scale * (weighted squares)`` of position, tilt, velocity, angular velocity and action.

    The tilt's term is the squared sine of half its angle; the action's is its squared distance from the hovering
    action, summed over the rotors.
    """
    weights = params.reward
    cost = (
        weights.position * jnp.sum(physics[:2] ** 2)
        + weights.attitude * jnp.sin(physics[2] / 2) ** 2
        + weights.velocity * jnp.sum(physics[3:5] ** 2)
        + weights.angular_velocity * physics[5] ** 2
        + weights.action * jnp.sum((action - (2 * params.hover_speed() - 1)) ** 2)
    )
    return weights.constant - weights.scale * cost

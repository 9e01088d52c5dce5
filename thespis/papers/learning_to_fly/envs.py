"""Quadrotor hovering: a small quadrotor must come to rest at the origin, controlled by its four rotor speeds.

The parameters of an episode are airframe, initial states, observation noise, bounds and reward weights
(:class:`QuadrotorParams`). The defaults are a Crazyflie at 100 Hz that starts up to 0.2 m away, tilted by up to 90
degrees, with termination beyond 0.6 m. Rotor speeds lag behind the commands and are not observed; the actor observes
its recent commands instead. Critics observe the full state (``privileged``): no noise, rotor speeds, and the external
force and torque.

Source: Eschmann et al., 2023 ("Learning to Fly in Seconds", arXiv:2311.13081), and the authors' published
configuration, for the environment, its numbers and its reward.

Differs from the authors' code: they also change the reward weights of transitions already stored; here an episode keeps
its weights (:class:`thespis.curricula.annealing.ParameterAnnealing` changes them from episode to episode).
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.papers.learning_to_fly.rotorcraft import (
    Airframe,
    RigidBodyState,
    RotorSpeeds,
    Scalar,
    Vector,
    crazyflie,
    crazyflie_with_decks,
    rotation_matrix,
)


class InitialStateRange(eqx.Module):
    """Distribution of initial states: each coordinate uniform within these bounds (m, m/s, rad/s).

    Attitudes are uniform among the rotations by at most ``max_angle`` (rad), rotor speeds uniform between
    ``min_rotor_speed`` and ``max_rotor_speed``. With probability ``guidance_prob`` an episode starts at the origin,
    upright.
    """

    max_position: Scalar
    max_angle: Scalar
    max_velocity: Scalar
    max_angular_velocity: Scalar
    min_rotor_speed: Scalar
    max_rotor_speed: Scalar
    guidance_prob: Scalar


class ObservationNoise(eqx.Module):
    """Standard deviations of the actor's observation noise: m, entries of the rotation matrix, m/s, rad/s."""

    position: Scalar
    attitude: Scalar
    velocity: Scalar
    angular_velocity: Scalar


class TerminationBounds(eqx.Module):
    """The episode terminates when the magnitude of any coordinate exceeds these bounds: m, m/s, rad/s."""

    position: Scalar
    velocity: Scalar
    angular_velocity: Scalar


class RewardWeights(eqx.Module):
    """Weights of the reward: see :func:`hover_reward`."""

    constant: Scalar
    scale: Scalar
    position: Scalar
    attitude: Scalar
    velocity: Scalar
    angular_velocity: Scalar
    action: Scalar


class QuadrotorParams(eqx.Module):
    """Parameters of one episode.

    ``force_std`` (N) and ``torque_std`` (N m) are standard deviations of a constant disturbance, drawn anew for every
    episode.
    """

    airframe: Airframe
    initial_state: InitialStateRange
    noise: ObservationNoise
    bounds: TerminationBounds
    reward: RewardWeights
    force_std: Scalar
    torque_std: Scalar


def default_params() -> QuadrotorParams:
    """Parameters of Eschmann et al. 2023."""
    airframe = crazyflie()
    weight = 0.027 * 9.81
    return QuadrotorParams(
        airframe,
        InitialStateRange(*_scalars(0.2, jnp.pi / 2, 1.0, 1.0, 0.5, 0.5, 0.1)),
        ObservationNoise(*_scalars(0.001, 0.001, 0.002, 0.002)),
        TerminationBounds(*_scalars(0.6, 1_000.0, 1_000.0)),
        RewardWeights(*_scalars(2.0, 0.5, 5.0, 5.0, 0.01, 0.0, 0.01)),
        *_scalars(weight / 20, weight / 10_000),
    )


def crazyflie_decks_params() -> QuadrotorParams:
    """Parameters of the simulator ``l2f`` (2.0.18): a heavier Crazyflie with measured rotors, and wider initial states.

    Craft and bounds are those of ``l2f``, and so are the initial states (rotors at any speed up to half), except for
    the tilt, which there is at most 1 rad.
    """
    weight = 0.0306 * 9.81
    return QuadrotorParams(
        crazyflie_with_decks(),
        InitialStateRange(*_scalars(0.5, jnp.pi / 2, 1.0, 1.0, 0.0, 0.5, 0.1)),
        default_params().noise,
        TerminationBounds(*_scalars(1.0, 2.0, 35.0)),
        default_params().reward,
        *_scalars(weight / 20, weight / 10_000),
    )


def _scalars(*numbers: float) -> tuple[Scalar, ...]:
    return tuple(jnp.float32(x) for x in numbers)


def sample_initial_state(initial_range: InitialStateRange, key: Key[Array, ""]) -> RigidBodyState:
    """Draws an initial state from ``initial_range``."""
    position_key, attitude_key, velocity_key, angular_velocity_key, rotor_key, guidance_key = jax.random.split(key, 6)

    def uniform(key: Key[Array, ""], bound: Scalar) -> Vector:
        return jax.random.uniform(key, (3,), minval=-bound, maxval=bound)

    guided = jax.random.uniform(guidance_key) < initial_range.guidance_prob
    origin = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])
    position, attitude = jax.tree.map(
        lambda a, b: jnp.where(guided, a, b),
        origin,
        (uniform(position_key, initial_range.max_position), sample_tilt(initial_range.max_angle, attitude_key)),
    )
    rotor_speeds = jax.random.uniform(
        rotor_key, (4,), minval=initial_range.min_rotor_speed, maxval=initial_range.max_rotor_speed
    )
    return RigidBodyState(
        position,
        attitude,
        uniform(velocity_key, initial_range.max_velocity),
        uniform(angular_velocity_key, initial_range.max_angular_velocity),
        rotor_speeds,
    )


def sample_tilt(max_angle: Scalar, key: Key[Array, ""]) -> Float[Array, "4"]:
    """A random quaternion, uniform among the rotations by at most ``max_angle`` (rad).

    The angle of a uniform rotation has the density ``(1 - cos) / pi``, so ``angle - sin(angle)`` is uniform; it is
    inverted by Newton's method, started from the leading term, ``angle³ / 6``.
    """
    axis_key, angle_key = jax.random.split(key)
    axis = jax.random.normal(axis_key, (3,))
    share = jax.random.uniform(angle_key, minval=1e-6) * (max_angle - jnp.sin(max_angle))
    angle = jnp.cbrt(6 * share)
    for _ in range(3):
        angle = angle - (angle - jnp.sin(angle) - share) / (1 - jnp.cos(angle))
    axis = axis * jnp.sin(angle / 2) / jnp.linalg.norm(axis)
    return jnp.concatenate([jnp.cos(angle / 2)[None], axis])


class QuadrotorState(eqx.Module):
    """State of one episode; the last row of ``action_history`` is the most recent action."""

    body: RigidBodyState
    action_history: Float[Array, "history 4"]
    force: Vector
    torque: Vector
    time: Int[Array, ""]
    params: QuadrotorParams


class Quadrotor(eqx.Module):
    """Hover at the origin: actions in ``[-1, 1]`` are rotor speeds from zero to the maximum, for ``dt`` seconds each.

    Observations are position, rotation matrix by rows, velocity, angular velocity and the last ``history_length``
    actions, oldest first. ``privileged`` is the same without noise and actions, then external force and torque in units
    of the weight (torque: of weight times arm length) and rotor speeds in ``[-1, 1]``; it is present only with
    ``use_privileged``. Episodes are truncated after ``time_limit`` steps. ``spec.params`` is a
    :class:`QuadrotorParams`.
    """

    make_params: Callable[[], QuadrotorParams] = eqx.field(static=True, default=default_params)
    history_length: int = eqx.field(static=True, default=32)
    use_privileged: bool = eqx.field(static=True, default=True)
    time_limit: int = eqx.field(static=True, default=500)
    dt: float = eqx.field(static=True, default=0.01)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and default parameters."""
        observation_space = Box((18 + 4 * self.history_length,))
        action, privileged_space = Box((4,), -1.0, 1.0), Box((28,)) if self.use_privileged else None
        return EnvSpec(
            "quadrotor",
            observation_space,
            action,
            time_limit=self.time_limit,
            params=self.make_params(),
            privileged_space=privileged_space,
        )

    def reset(self, params: QuadrotorParams, key: Key[Array, ""]) -> tuple[QuadrotorState, TimeStep]:
        """Draws an initial state, see :class:`InitialStateRange`.

        The action history is filled with the actions that hold the initial rotor speeds.
        """
        start_key, push_key, noise_key = jax.random.split(key, 3)
        body = sample_initial_state(params.initial_state, start_key)
        force, torque = jax.random.normal(push_key, (2, 3)) * jnp.stack([params.force_std, params.torque_std])[:, None]
        commands = jnp.broadcast_to(2 * body.rotor_speeds - 1, (self.history_length, 4))
        state = QuadrotorState(body, commands, force, torque, jnp.zeros((), "int32"), params)
        return state, self._time_step(state, jnp.zeros(()), jnp.zeros((), bool), noise_key)

    def step(self, state: QuadrotorState, action: RotorSpeeds, key: Key[Array, ""]) -> tuple[QuadrotorState, TimeStep]:
        """Flies for ``dt`` seconds.

        The reward is that of the state in which the step began; 0 if the quadrotor leaves its bounds, which terminates.
        """
        params, action = state.params, jnp.clip(action, -1.0, 1.0)
        body = params.airframe.integrate(state.body, (action + 1) / 2, state.force, state.torque, self.dt)
        commands = jnp.concatenate([state.action_history, action[None]])[1:]
        next_state = QuadrotorState(body, commands, state.force, state.torque, state.time + 1, params)
        terminated = out_of_bounds(body, params.bounds)
        reward = jnp.where(terminated, 0.0, hover_reward(state.body, action, params))
        return next_state, self._time_step(next_state, reward, terminated, key)

    def _time_step(self, flying: QuadrotorState, paid: Scalar, gone: Bool[Array, ""], key: Key[Array, ""]) -> TimeStep:
        body, params = flying.body, flying.params
        features = observe_body(body)
        noise = params.noise
        noise_std = (
            (noise.position,) * 3 + (noise.attitude,) * 9 + (noise.velocity,) * 3 + (noise.angular_velocity,) * 3
        )
        noisy = features + jnp.stack(noise_std) * jax.random.normal(key, features.shape)
        weight = params.airframe.mass * params.airframe.gravity
        external = flying.force / weight, flying.torque / (weight * params.airframe.arm_length)
        return TimeStep(
            jnp.concatenate([noisy, flying.action_history.ravel()]),
            paid,
            gone,
            flying.time >= self.time_limit,
            privileged=jnp.concatenate([features, *external, 2 * body.rotor_speeds - 1])
            if self.use_privileged
            else None,
        )


DECKS_QUADROTOR = Quadrotor(make_params=crazyflie_decks_params)
"""The same task with the parameters of the simulator ``l2f``."""
NO_HISTORY_QUADROTOR = Quadrotor(history_length=0)
"""Without an action history: the actor does not observe its last actions."""
NO_PRIVILEGED_QUADROTOR = Quadrotor(use_privileged=False)
"""Without privileged observations: critics observe what the actor observes."""


def observe_body(body: RigidBodyState) -> Float[Array, "18"]:
    """Position, rotation matrix by rows, velocity and angular velocity."""
    return jnp.concatenate(
        [body.position, rotation_matrix(body.attitude).ravel(), body.velocity, body.angular_velocity]
    )


def out_of_bounds(body: RigidBodyState, bounds: TerminationBounds) -> Bool[Array, ""]:
    """Whether the magnitude of any coordinate exceeds its bound."""
    limits = (
        (body.position, bounds.position),
        (body.velocity, bounds.velocity),
        (body.angular_velocity, bounds.angular_velocity),
    )
    return jnp.any(jnp.stack([jnp.max(jnp.abs(x)) > bound for x, bound in limits]))


def hover_reward(body: RigidBodyState, action: RotorSpeeds, params: QuadrotorParams) -> Scalar:
    """``constant - scale * (weighted squares)`` of position, attitude, velocity, angular velocity and action.

    The attitude's term is ``1 - w²`` of its quaternion, the squared sine of half its angle; the action's is its squared
    distance from the hovering action, summed over the rotors.
    """
    weights = params.reward
    hover_action = 2 * params.airframe.hover_speed() - 1
    cost = (
        weights.position * jnp.sum(body.position**2)
        + weights.attitude * (1 - body.attitude[0] ** 2)
        + weights.velocity * jnp.sum(body.velocity**2)
        + weights.angular_velocity * jnp.sum(body.angular_velocity**2)
        + weights.action * jnp.sum((action - hover_action) ** 2)
    )
    return weights.constant - weights.scale * cost

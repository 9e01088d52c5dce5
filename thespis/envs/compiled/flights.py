"""What a quadrotor is flown with: craft, starts, noise, bounds and reward, all of them numbers that may vary."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.envs.compiled.rotorcraft import Airframe, Motion, Scalar, Vector, crazyflie, crazyflie_with_decks


class Start(eqx.Module):
    """Where flights begin: each coordinate uniform within these (m, m/s, rad/s), attitudes uniform among the rotations
    by at most ``angle`` (rad), rotors uniform between ``slowest`` and ``fastest``; a share of ``guided`` begins at the
    origin and upright.
    """

    position: Scalar
    angle: Scalar
    velocity: Scalar
    rate: Scalar
    slowest: Scalar
    fastest: Scalar
    guided: Scalar


class Noise(eqx.Module):
    """Standard deviations of what the actor sees: m, entries of the rotation matrix, m/s, rad/s."""

    position: Scalar
    attitude: Scalar
    velocity: Scalar
    rate: Scalar


class Bounds(eqx.Module):
    """A flight is lost when any coordinate exceeds these: m, m/s, rad/s."""

    position: Scalar
    velocity: Scalar
    rate: Scalar


class Weights(eqx.Module):
    """Of the reward: see :func:`reward`."""

    constant: Scalar
    scale: Scalar
    position: Scalar
    attitude: Scalar
    velocity: Scalar
    rate: Scalar
    action: Scalar


class Flight(eqx.Module):
    """What one episode is flown with. ``force`` (N) and ``torque`` (N m) are standard deviations of a constant push,
    drawn anew for every flight.
    """

    airframe: Airframe
    start: Start
    noise: Noise
    bounds: Bounds
    reward: Weights
    force: Scalar
    torque: Scalar


def published() -> Flight:
    """The numbers of Eschmann et al. 2023."""
    airframe = crazyflie()
    weight = 0.027 * 9.81
    return Flight(
        airframe,
        Start(*_scalars(0.2, jnp.pi / 2, 1.0, 1.0, 0.5, 0.5, 0.1)),
        Noise(*_scalars(0.001, 0.001, 0.002, 0.002)),
        Bounds(*_scalars(0.6, 1_000.0, 1_000.0)),
        Weights(*_scalars(2.0, 0.5, 5.0, 5.0, 0.01, 0.0, 0.01)),
        *_scalars(weight / 20, weight / 10_000),
    )


def with_decks() -> Flight:
    """A heavier Crazyflie with measured rotors, from further away and with rotors at any speed up to half: the craft
    and the bounds of the simulator ``l2f`` (2.0.18), and its starts but for the tilt, which there is at most 1 rad.
    """
    weight = 0.0306 * 9.81
    return Flight(
        crazyflie_with_decks(),
        Start(*_scalars(0.5, jnp.pi / 2, 1.0, 1.0, 0.0, 0.5, 0.1)),
        published().noise,
        Bounds(*_scalars(1.0, 2.0, 35.0)),
        published().reward,
        *_scalars(weight / 20, weight / 10_000),
    )


def _scalars(*numbers: float) -> tuple[Scalar, ...]:
    return tuple(jnp.float32(x) for x in numbers)


def begin(start: Start, key: Key[Array, ""]) -> Motion:
    """One motion drawn from ``start``."""
    place, turn, push, spin, rotors, guide = jax.random.split(key, 6)

    def within(key: Key[Array, ""], bound: Scalar) -> Vector:
        return jax.random.uniform(key, (3,), minval=-bound, maxval=bound)

    guided = jax.random.uniform(guide) < start.guided
    still = jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0])
    position, attitude = jax.tree.map(
        lambda a, b: jnp.where(guided, a, b), still, (within(place, start.position), tilted(start.angle, turn))
    )
    speeds = jax.random.uniform(rotors, (4,), minval=start.slowest, maxval=start.fastest)
    return Motion(position, attitude, within(push, start.velocity), within(spin, start.rate), speeds)


def tilted(most: Scalar, key: Key[Array, ""]) -> Float[Array, "4"]:
    """A quaternion, uniform among the rotations by at most ``most`` (rad).

    The angle of a uniform rotation has the density ``(1 - cos) / pi``, so ``angle - sin(angle)`` is uniform; it is
    inverted by Newton's method from the leading term, ``angle³ / 6``.
    """
    axis_key, angle_key = jax.random.split(key)
    axis = jax.random.normal(axis_key, (3,))
    share = jax.random.uniform(angle_key, minval=1e-6) * (most - jnp.sin(most))
    angle = jnp.cbrt(6 * share)
    for _ in range(3):
        angle = angle - (angle - jnp.sin(angle) - share) / (1 - jnp.cos(angle))
    axis = axis * jnp.sin(angle / 2) / jnp.linalg.norm(axis)
    return jnp.concatenate([jnp.cos(angle / 2)[None], axis])

"""A rigid body with four fixed rotors whose speeds lag behind what is asked of them.

Position and velocity are in the world's frame (z up), the rate of turn in the body's. The attitude is a unit
quaternion ``w, x, y, z`` that turns the body's frame into the world's. Rotor speeds are shares of the highest. Newton's
and Euler's equations, thrust polynomial in the speed, yaw torque proportional to thrust, speeds that follow the command
with a first-order lag: the model of Eschmann et al. 2023 (arXiv:2311.13081, section III). No drag, no ground.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, "3"]
Scalar = Float[Array, ""]
Rotors = Float[Array, "4"]


class Motion(eqx.Module):
    """Where the craft is (m), its attitude, velocity (m/s), rate of turn (rad/s) and rotor speeds in ``[0, 1]``."""

    position: Vector
    attitude: Float[Array, "4"]
    velocity: Vector
    rate: Vector
    rotors: Rotors


class Airframe(eqx.Module):
    """kg, kg m², m, N, m, s, m/s²: what the craft is made of.

    A rotor at speed ``n`` pushes with ``thrust[0] + thrust[1] n + thrust[2] n²`` and twists with ``torque`` times that.
    ``rise`` and ``fall`` are the time constants with which it speeds up and slows down. The rotors stand at
    ``(arm, -arm), (-arm, -arm), (-arm, arm), (arm, arm)``; the first and third twist the body clockwise.
    """

    mass: Scalar
    inertia: Vector
    arm: Scalar
    thrust: Vector
    torque: Scalar
    rise: Scalar
    fall: Scalar
    gravity: Scalar

    def push(self, rotors: Rotors) -> Rotors:
        """Thrust of each rotor (N)."""
        return self.thrust[0] + self.thrust[1] * rotors + self.thrust[2] * rotors**2

    def hover(self) -> Scalar:
        """The speed at which four rotors carry the weight."""
        missing = self.thrust[0] - self.mass * self.gravity / 4
        root = jnp.sqrt(self.thrust[1] ** 2 - 4 * self.thrust[2] * missing)
        return (root - self.thrust[1]) / (2 * self.thrust[2])

    def slope(self, motion: Motion, command: Rotors, force: Vector, torque: Vector) -> Motion:
        """Time derivative under commanded speeds, an outer ``force`` (N, world) and ``torque`` (N m, body)."""
        a, b, c, d = push = self.push(motion.rotors)
        p, q, r = motion.rate
        w, x, y, z = motion.attitude
        twist = jnp.stack([self.arm * (c + d - a - b), self.arm * (b + c - a - d), self.torque * (b + d - a - c)])
        up = jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
        weight = jnp.stack([jnp.zeros(()), jnp.zeros(()), -self.gravity])
        turn = -x * p - y * q - z * r, w * p + y * r - z * q, w * q + z * p - x * r, w * r + x * q - y * p
        lag = jnp.where(command >= motion.rotors, self.rise, self.fall)
        return Motion(
            motion.velocity,
            0.5 * jnp.stack(turn),
            (up * jnp.sum(push) + force) / self.mass + weight,
            (twist + torque - jnp.cross(motion.rate, self.inertia * motion.rate)) / self.inertia,
            (command - motion.rotors) / lag,
        )

    def moved(self, motion: Motion, command: Rotors, force: Vector, torque: Vector, dt: float) -> Motion:
        """``motion`` after ``dt`` seconds: one Runge-Kutta step, then attitude made unit, speeds clipped."""
        moved = runge_kutta(lambda now: self.slope(now, command, force, torque), motion, dt)
        attitude = moved.attitude / jnp.linalg.norm(moved.attitude)
        return Motion(moved.position, attitude, moved.velocity, moved.rate, jnp.clip(moved.rotors, 0.0, 1.0))


def crazyflie() -> Airframe:
    """The Crazyflie of Eschmann et al. 2023: 27 g, rotors of at most 21702 rpm that push with 3.16e-10 N/rpm²."""
    return _airframe(0.027, (3.85e-6, 3.85e-6, 5.9675e-6), (0.0, 0.0, 3.16e-10 * 21702.0**2), 0.005964552, 0.15, 0.15)


def crazyflie_with_decks() -> Airframe:
    """A Crazyflie 2.1 with decks, as its rotors were measured: 30.6 g, faster up than down (``l2f`` 2.0.18)."""
    inertia = (9.416556729130406e-6, 9.644051701582312e-6, 1.745951732253285e-5)
    thrust = (0.00352526, 0.01437313, 0.09223048)
    return _airframe(0.0306, inertia, thrust, 4.665e-3, 0.05545454545454546, 0.24939393939393945)


def _airframe(
    mass: float, inertia: tuple[float, ...], thrust: tuple[float, ...], torque: float, rise: float, fall: float
) -> Airframe:
    numbers = (mass, inertia, 0.028, thrust, torque, rise, fall, 9.81)
    return Airframe(*(jnp.asarray(x, "float32") for x in numbers))


def rotation(attitude: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """The matrix that turns vectors of the body into vectors of the world."""
    w, x, y, z = attitude
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(row) for row in rows])


def runge_kutta(slope: Callable[[Motion], Motion], motion: Motion, dt: float) -> Motion:
    """``motion`` after ``dt``: the classic method of order four."""

    def ahead(step: float, by: Motion) -> Motion:
        return jax.tree.map(lambda x, s: x + step * s, motion, by)

    first = slope(motion)
    second = slope(ahead(dt / 2, first))
    third = slope(ahead(dt / 2, second))
    fourth = slope(ahead(dt, third))
    mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
    return ahead(dt, mean)

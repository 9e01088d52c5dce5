"""Rigid-body dynamics of a quadrotor: four fixed rotors whose speeds lag behind the commands.

Position and velocity are in the world frame (z up), the angular velocity is in the body frame. The attitude is a unit
quaternion ``w, x, y, z`` that rotates body vectors into the world frame. Rotor speeds are fractions of the maximum.
Newton's and Euler's equations, thrust polynomial in the rotor speed, yaw torque proportional to thrust, rotor speeds
that follow the command with a first-order lag: the model of Eschmann et al. 2023 (arXiv:2311.13081, section III). No
drag, no ground.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, "3"]
Scalar = Float[Array, ""]
RotorSpeeds = Float[Array, "4"]


class RigidBodyState(eqx.Module):
    """State of the quadrotor: position (m), attitude, velocity (m/s), angular velocity (rad/s) and rotor speeds.

    Rotor speeds are in ``[0, 1]``.
    """

    position: Vector
    attitude: Float[Array, "4"]
    velocity: Vector
    angular_velocity: Vector
    rotor_speeds: RotorSpeeds


class Airframe(eqx.Module):
    """Physical parameters of a quadrotor, in kg, kg m², m, N, m, s and m/s².

    A rotor at speed ``n`` has the thrust ``c[0] + c[1] n + c[2] n²``, with ``c`` the ``thrust_coefficients``, and the
    torque ``torque_coefficient`` times that. ``rise_time`` and ``fall_time`` are the time constants with which it
    speeds up and slows down. With arm length ``a`` the rotors stand at ``(a, -a), (-a, -a), (-a, a), (a, a)``; the
    first and third turn the body clockwise.
    """

    mass: Scalar
    inertia: Vector
    arm_length: Scalar
    thrust_coefficients: Vector
    torque_coefficient: Scalar
    rise_time: Scalar
    fall_time: Scalar
    gravity: Scalar

    def rotor_thrust(self, rotor_speeds: RotorSpeeds) -> RotorSpeeds:
        """Thrust of each rotor (N)."""
        return (
            self.thrust_coefficients[0]
            + self.thrust_coefficients[1] * rotor_speeds
            + self.thrust_coefficients[2] * rotor_speeds**2
        )

    def hover_speed(self) -> Scalar:
        """Rotor speed at which four rotors carry the weight."""
        constant = self.thrust_coefficients[0] - self.mass * self.gravity / 4
        root = jnp.sqrt(self.thrust_coefficients[1] ** 2 - 4 * self.thrust_coefficients[2] * constant)
        return (root - self.thrust_coefficients[1]) / (2 * self.thrust_coefficients[2])

    def derivative(self, body: RigidBodyState, command: RotorSpeeds, force: Vector, torque: Vector) -> RigidBodyState:
        """Time derivative under commanded rotor speeds, an external ``force`` (N, world) and ``torque`` (N m, body)."""
        a, b, c, d = thrusts = self.rotor_thrust(body.rotor_speeds)
        p, q, r = body.angular_velocity
        w, x, y, z = body.attitude
        rotor_torque = jnp.stack(
            [
                self.arm_length * (c + d - a - b),
                self.arm_length * (b + c - a - d),
                self.torque_coefficient * (b + d - a - c),
            ]
        )
        up = jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
        weight = jnp.stack([jnp.zeros(()), jnp.zeros(()), -self.gravity])
        attitude_rate = -x * p - y * q - z * r, w * p + y * r - z * q, w * q + z * p - x * r, w * r + x * q - y * p
        time_constant = jnp.where(command >= body.rotor_speeds, self.rise_time, self.fall_time)
        return RigidBodyState(
            body.velocity,
            0.5 * jnp.stack(attitude_rate),
            (up * jnp.sum(thrusts) + force) / self.mass + weight,
            (rotor_torque + torque - jnp.cross(body.angular_velocity, self.inertia * body.angular_velocity))
            / self.inertia,
            (command - body.rotor_speeds) / time_constant,
        )

    def integrate(
        self, body: RigidBodyState, command: RotorSpeeds, force: Vector, torque: Vector, dt: float
    ) -> RigidBodyState:
        """The state after ``dt`` seconds: one Runge-Kutta step, attitude normalized, rotor speeds clipped."""
        integrated = rk4_step(lambda state: self.derivative(state, command, force, torque), body, dt)
        attitude = integrated.attitude / jnp.linalg.norm(integrated.attitude)
        return RigidBodyState(
            integrated.position,
            attitude,
            integrated.velocity,
            integrated.angular_velocity,
            jnp.clip(integrated.rotor_speeds, 0.0, 1.0),
        )


def crazyflie() -> Airframe:
    """Airframe of the Crazyflie in Eschmann et al. 2023.

    It weighs 27 g; its rotors have at most 21702 rpm and a thrust of 3.16e-10 N/rpm².
    """
    return _make_airframe(
        0.027, (3.85e-6, 3.85e-6, 5.9675e-6), (0.0, 0.0, 3.16e-10 * 21702.0**2), 0.005964552, 0.15, 0.15
    )


def crazyflie_with_decks() -> Airframe:
    """Airframe of a Crazyflie 2.1 with decks and measured rotors (``l2f`` 2.0.18).

    It weighs 30.6 g; its rotors are faster to speed up than to slow down.
    """
    inertia = (9.416556729130406e-6, 9.644051701582312e-6, 1.745951732253285e-5)
    thrust = (0.00352526, 0.01437313, 0.09223048)
    return _make_airframe(0.0306, inertia, thrust, 4.665e-3, 0.05545454545454546, 0.24939393939393945)


def _make_airframe(
    mass: float, inertia: tuple[float, ...], thrust: tuple[float, ...], torque: float, rise: float, fall: float
) -> Airframe:
    numbers = (mass, inertia, 0.028, thrust, torque, rise, fall, 9.81)
    return Airframe(*(jnp.asarray(x, "float32") for x in numbers))


def rotation_matrix(attitude: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """Rotation matrix from the body frame to the world frame."""
    w, x, y, z = attitude
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(row) for row in rows])


def rk4_step(derivative: Callable[[RigidBodyState], RigidBodyState], body: RigidBodyState, dt: float) -> RigidBodyState:
    """Integrate the state over ``dt`` seconds by the classical fourth-order Runge-Kutta method."""

    def advance(step: float, by: RigidBodyState) -> RigidBodyState:
        return jax.tree.map(lambda x, s: x + step * s, body, by)

    first = derivative(body)
    second = derivative(advance(dt / 2, first))
    third = derivative(advance(dt / 2, second))
    fourth = derivative(advance(dt, third))
    mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, first, second, third, fourth)
    return advance(dt, mean)

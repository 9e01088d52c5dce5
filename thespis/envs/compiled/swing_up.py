"""Cart-pole swing-up: one force on a cart must swing up a hanging pole and balance it in the middle of a bounded track.

The pole is a thin, uniform rod; there is no friction. The equations are those of Barto, Sutton and Anderson (1983,
"Neuronlike adaptive elements that can solve difficult learning control problems"), corrected as in Florian (2007,
"Correct equations for the dynamics of the cart-pole system"), integrated with the classical Runge-Kutta method. Task,
sizes and reward follow "cartpole swingup" of the DeepMind Control Suite (Tassa et al. 2018, arXiv:1801.00690).

At the ends of the track are inelastic stops: the cart loses its velocity, the pole keeps its momentum. Episodes do not
terminate there.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

CartPoleVector = Float[Array, "4"]
"""Position of the cart (m), its velocity (m/s), angle of the pole (0 upright, rad), its velocity (rad/s)."""


class SwingUpParams(eqx.Module):
    """Physical parameters of one episode: kg, m, N, m/s². The track extends ``track`` m to either side."""

    cart_mass: Float[Array, ""]
    pole_mass: Float[Array, ""]
    pole_length: Float[Array, ""]
    force: Float[Array, ""]
    gravity: Float[Array, ""]
    track: Float[Array, ""]

    def accelerations(
        self, physics: CartPoleVector, force: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Accelerations of cart and pole under ``force`` (N): Florian's equations 23 and 24 without friction."""
        _, _, angle, angular_velocity = physics
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        half_length, total_mass = self.pole_length / 2, self.cart_mass + self.pole_mass
        pole_term = self.pole_mass * half_length / total_mass
        cart_acceleration = force / total_mass + pole_term * angular_velocity**2 * sin
        pole_acceleration = (self.gravity * sin - cos * cart_acceleration) / (
            half_length * (4 / 3 - self.pole_mass * cos**2 / total_mass)
        )
        return cart_acceleration - pole_term * pole_acceleration * cos, pole_acceleration

    def clamp_to_track(self, physics: CartPoleVector) -> CartPoleVector:
        """Keeps the cart on the track: a cart that leaves it stops at the end.

        The impulse acts on the cart alone, so the momentum conjugate to the angle is conserved, ``m l cos(angle)
        velocity + 4/3 m l² angular velocity`` with half length ``l``. Small impulses, one after each integration step,
        are also how a stop holds a cart that is pushed against it.
        """
        x, velocity, angle, angular_velocity = physics
        off_track = jnp.abs(x) > self.track
        velocity_change = velocity * jnp.cos(angle) / (4 / 3 * self.pole_length / 2)
        stopped = jnp.stack(
            [jnp.clip(x, -self.track, self.track), jnp.zeros_like(velocity), angle, angular_velocity + velocity_change]
        )
        return jnp.where(off_track, stopped, physics)


class SwingUpState(eqx.Module):
    """State of one episode: physics, number of steps taken, and parameters."""

    physics: CartPoleVector
    time: Int[Array, ""]
    params: SwingUpParams


class SwingUp(eqx.Module):
    """Cart-pole swing-up environment: swing up a hanging pole and balance it.

    Actions are in ``[-1, 1]`` times ``params.force``; episodes are truncated after ``time_limit`` steps. Observations
    are position, velocity, cosine and sine of the angle (1, 0 is upright) and its velocity. The reward, in ``[0, 1]``,
    is that of :func:`swing_up_reward`. A step takes ``substeps * dt`` seconds. ``spec.params`` is a
    :class:`SwingUpParams`, so that a curriculum can vary masses, length, force, gravity and track.
    """

    time_limit: int = eqx.field(static=True, default=200)
    substeps: int = eqx.field(static=True, default=2)
    dt: float = eqx.field(static=True, default=0.025)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and default parameters."""
        params = SwingUpParams(*(jnp.float32(x) for x in (1.0, 0.1, 1.0, 10.0, 9.81, 1.8)))
        return EnvSpec("swing-up", Box((5,)), Box((1,), -1.0, 1.0), time_limit=self.time_limit, params=params)

    def reset(self, params: SwingUpParams, key: Key[Array, ""]) -> tuple[SwingUpState, TimeStep]:
        """Starts in the middle, hanging, nearly at rest: every coordinate is perturbed by up to 0.05."""
        hanging = jnp.array([0.0, 0.0, jnp.pi, 0.0])
        physics = hanging + jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return SwingUpState(physics, jnp.zeros((), "int32"), params), self._time_step(
            physics, jnp.zeros(()), jnp.zeros((), bool)
        )

    def step(
        self, state: SwingUpState, action: Float[Array, "1"], key: Key[Array, ""]
    ) -> tuple[SwingUpState, TimeStep]:
        """Applies the force for one step; the reward is that of the resulting state."""
        params, control = state.params, jnp.clip(action[0], -1.0, 1.0)
        physics, time = state.physics, state.time + 1
        for _ in range(self.substeps):
            physics = params.clamp_to_track(rk4_step(params, physics, params.force * control, self.dt))
        return SwingUpState(physics, time, params), self._time_step(
            physics, swing_up_reward(physics, control), time >= self.time_limit
        )

    def _time_step(self, motion: CartPoleVector, paid: Float[Array, ""], truncated: Array) -> TimeStep:
        x, velocity, angle, angular_velocity = motion
        observation = jnp.stack([x, velocity, jnp.cos(angle), jnp.sin(angle), angular_velocity])
        return TimeStep(observation, paid, jnp.zeros((), bool), truncated)


def rk4_step(params: SwingUpParams, physics: CartPoleVector, force: Float[Array, ""], dt: float) -> CartPoleVector:
    """Integrate the state over ``dt`` seconds of constant ``force`` (N) by the classical Runge-Kutta method.

    The method is of fourth order.
    """

    def slope(motion: CartPoleVector) -> CartPoleVector:
        cart_acceleration, pole_acceleration = params.accelerations(motion, force)
        return jnp.stack([motion[1], cart_acceleration, motion[3], pole_acceleration])

    first = slope(physics)
    second = slope(physics + dt / 2 * first)
    third = slope(physics + dt / 2 * second)
    fourth = slope(physics + dt * third)
    return physics + dt / 6 * (first + 2 * second + 2 * third + fourth)


def swing_up_reward(physics: CartPoleVector, control: Float[Array, ""]) -> Float[Array, ""]:
    """Swing-up reward in ``[0, 1]``: product of uprightness, closeness to the middle, stillness and small ``control``.

    The control is in ``[-1, 1]``. The smooth reward of "cartpole swingup" (Tassa et al. 2018): ``(1 + cos) / 2`` times
    ``(1 + 0.1^(x/2)²) / 2`` times ``(1 + 0.1^(angular velocity/5)²) / 2`` times ``(5 - control²) / 5``. A pole that
    hangs at rest earns 0.
    """
    x, _, angle, angular_velocity = physics
    upright = (1 + jnp.cos(angle)) / 2
    centred = (1 + 0.1 ** ((x / 2) ** 2)) / 2
    still = (1 + 0.1 ** ((angular_velocity / 5) ** 2)) / 2
    return upright * centred * still * (5 - control**2) / 5

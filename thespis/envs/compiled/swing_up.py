"""A pole hangs from a cart on a bounded track; one force must swing it up and keep it there, in the middle.

The pole is a thin, uniform rod; nothing rubs. The equations are those of Barto, Sutton and Anderson (1983,
"Neuronlike adaptive elements that can solve difficult learning control problems"), corrected as in Florian (2007,
"Correct equations for the dynamics of the cart-pole system"), integrated with the classic Runge-Kutta method. Task,
sizes and reward follow "cartpole swingup" of the DeepMind Control Suite (Tassa et al. 2018, arXiv:1801.00690).

What stands at the ends of the track is a stop that does not spring back: the cart loses its speed, the pole keeps
its momentum. Nothing ends there.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

Motion = Float[Array, "4"]
"""Position of the cart (m), its velocity, angle of the pole (0 upright, rad), its velocity."""


class Rig(eqx.Module):
    """What one episode is played with: kg, m, N, m/s². The track reaches ``track`` to either side."""

    cart_mass: Float[Array, ""]
    pole_mass: Float[Array, ""]
    pole_length: Float[Array, ""]
    force: Float[Array, ""]
    gravity: Float[Array, ""]
    track: Float[Array, ""]

    def acceleration(self, motion: Motion, push: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Of cart and pole under ``push`` (N): Florian's equations 23 and 24 without friction."""
        _, _, angle, spin = motion
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        half, total = self.pole_length / 2, self.cart_mass + self.pole_mass
        swing = self.pole_mass * half / total
        driven = push / total + swing * spin**2 * sin
        bend = (self.gravity * sin - cos * driven) / (half * (4 / 3 - self.pole_mass * cos**2 / total))
        return driven - swing * bend * cos, bend

    def stopped(self, motion: Motion) -> Motion:
        """``motion`` with the cart on the track: a cart that runs off it stands at its end.

        The blow acts on the cart alone, so what is kept is the momentum that belongs to the angle,
        ``m l cos(angle) velocity + 4/3 m l² spin`` with half length ``l``. Small blows, one after each integration
        step, are also how a stop holds a cart that is pushed against it.
        """
        x, velocity, angle, spin = motion
        off = jnp.abs(x) > self.track
        jerk = velocity * jnp.cos(angle) / (4 / 3 * self.pole_length / 2)
        stands = jnp.stack([jnp.clip(x, -self.track, self.track), jnp.zeros_like(velocity), angle, spin + jerk])
        return jnp.where(off, stands, motion)


class Swing(eqx.Module):
    """One episode under way."""

    motion: Motion
    time: Int[Array, ""]
    rig: Rig


class SwingUp(eqx.Module):
    """Swing up and balance: actions in ``[-1, 1]``, times ``rig.force``; episodes are cut after ``limit`` steps.

    Observations are position, velocity, cosine and sine of the angle (1, 0 is upright) and its velocity. The
    reward, in ``[0, 1]``, is that of :func:`reward`. A step takes ``substeps * dt`` seconds. ``spec.params`` is a
    :class:`Rig`, so that a curriculum can vary masses, length, force, gravity and track.
    """

    limit: int = eqx.field(static=True, default=200)
    substeps: int = eqx.field(static=True, default=2)
    dt: float = eqx.field(static=True, default=0.025)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limit and default parameters."""
        rig = Rig(*(jnp.float32(x) for x in (1.0, 0.1, 1.0, 10.0, 9.81, 1.8)))
        return EnvSpec("swing-up", Box((5,)), Box((1,), -1.0, 1.0), time_limit=self.limit, params=rig)

    def reset(self, params: Rig, key: Key[Array, ""]) -> tuple[Swing, TimeStep]:
        """In the middle, hanging, nearly at rest: every number is up to 0.05 off."""
        still = jnp.array([0.0, 0.0, jnp.pi, 0.0])
        motion = still + jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return Swing(motion, jnp.zeros((), "int32"), params), self._answer(motion, jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Swing, action: Float[Array, "1"], key: Key[Array, ""]) -> tuple[Swing, TimeStep]:
        """Push for the length of one step; the reward is that of where this leads."""
        rig, control = state.rig, jnp.clip(action[0], -1.0, 1.0)
        motion, time = state.motion, state.time + 1
        for _ in range(self.substeps):
            motion = rig.stopped(runge_kutta(rig, motion, rig.force * control, self.dt))
        return Swing(motion, time, rig), self._answer(motion, reward(motion, control), time >= self.limit)

    def _answer(self, motion: Motion, paid: Float[Array, ""], truncated: Array) -> TimeStep:
        x, velocity, angle, spin = motion
        observation = jnp.stack([x, velocity, jnp.cos(angle), jnp.sin(angle), spin])
        return TimeStep(observation, paid, jnp.zeros((), bool), truncated)


def runge_kutta(rig: Rig, motion: Motion, push: Float[Array, ""], dt: float) -> Motion:
    """``motion`` after ``dt`` seconds under a constant ``push`` (N): the classic method of order four."""

    def slope(motion: Motion) -> Motion:
        slide, bend = rig.acceleration(motion, push)
        return jnp.stack([motion[1], slide, motion[3], bend])

    first = slope(motion)
    second = slope(motion + dt / 2 * first)
    third = slope(motion + dt / 2 * second)
    fourth = slope(motion + dt * third)
    return motion + dt / 6 * (first + 2 * second + 2 * third + fourth)


def reward(motion: Motion, control: Float[Array, ""]) -> Float[Array, ""]:
    """How upright, times how near the middle, how still and how little ``control`` (in ``[-1, 1]``): in ``[0, 1]``.

    The smooth reward of "cartpole swingup" (Tassa et al. 2018): ``(1 + cos) / 2`` times ``(1 + 0.1^(x/2)²) / 2``
    times ``(1 + 0.1^(spin/5)²) / 2`` times ``(5 - control²) / 5``. Hanging still earns nothing.
    """
    x, _, angle, spin = motion
    upright = (1 + jnp.cos(angle)) / 2
    centred = (1 + 0.1 ** ((x / 2) ** 2)) / 2
    still = (1 + 0.1 ** ((spin / 5) ** 2)) / 2
    return upright * centred * still * (5 - control**2) / 5

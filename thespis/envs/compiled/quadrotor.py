"""A small quadrotor must come to rest at the origin, by commands to its four rotors and nothing else.

World, numbers and reward are those of Eschmann et al. 2023 ("Learning to Fly in Seconds", arXiv:2311.13081) and of
the authors' published configuration: a Crazyflie at 100 Hz that starts up to 0.2 m away, tilted by up to 90 degrees,
and is lost beyond 0.6 m. Rotors follow with a lag that the actor does not see: its recent commands stand in for their
speeds. Critics see the state itself (``privileged``): no noise, rotor speeds, and what pushes at the craft.

Differs: the authors change the reward's weights in what was already stored, too; here a flight keeps those it began
with (:class:`thespis.curricula.annealing.Annealing` changes them from flight to flight).
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.envs.compiled.flights import Bounds, Flight, begin, published, with_decks
from thespis.envs.compiled.rotorcraft import Motion, Rotors, Scalar, Vector, rotation


class Flying(eqx.Module):
    """One episode under way; the latest of ``commands`` is the last."""

    motion: Motion
    commands: Float[Array, "history 4"]
    force: Vector
    torque: Vector
    time: Int[Array, ""]
    flight: Flight


class Quadrotor(eqx.Module):
    """Hover at the origin: actions in ``[-1, 1]`` are rotor speeds from none to the highest, for ``dt`` seconds each.

    Observations are position, rotation matrix by rows, velocity, rate of turn and the last ``history`` actions, oldest
    first. ``privileged`` is the same without noise and actions, then outer force and torque in weights and rotor
    speeds in ``[-1, 1]``; there is none unless ``told``. Episodes are cut after ``limit`` steps.
    ``spec.params`` is a :class:`Flight`.
    """

    flight: Callable[[], Flight] = eqx.field(static=True, default=published)
    history: int = eqx.field(static=True, default=32)
    told: bool = eqx.field(static=True, default=True)
    limit: int = eqx.field(static=True, default=500)
    dt: float = eqx.field(static=True, default=0.01)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limit and default parameters."""
        seen = Box((18 + 4 * self.history,))
        action, privileged = Box((4,), -1.0, 1.0), Box((28,)) if self.told else None
        return EnvSpec("quadrotor", seen, action, time_limit=self.limit, params=self.flight(), privileged=privileged)

    def reset(self, params: Flight, key: Key[Array, ""]) -> tuple[Flying, TimeStep]:
        """At rest nowhere: see :class:`Start`. The actions remembered are those that hold the first rotor speeds."""
        start_key, push_key, noise_key = jax.random.split(key, 3)
        motion = begin(params.start, start_key)
        force, torque = jax.random.normal(push_key, (2, 3)) * jnp.stack([params.force, params.torque])[:, None]
        commands = jnp.broadcast_to(2 * motion.rotors - 1, (self.history, 4))
        flying = Flying(motion, commands, force, torque, jnp.zeros((), "int32"), params)
        return flying, self._answer(flying, jnp.zeros(()), jnp.zeros((), bool), noise_key)

    def step(self, state: Flying, action: Rotors, key: Key[Array, ""]) -> tuple[Flying, TimeStep]:
        """Fly for ``dt`` seconds; the reward is that of where the step began, and nothing where the craft is lost."""
        flight, action = state.flight, jnp.clip(action, -1.0, 1.0)
        motion = flight.airframe.moved(state.motion, (action + 1) / 2, state.force, state.torque, self.dt)
        commands = jnp.concatenate([state.commands, action[None]])[1:]
        following = Flying(motion, commands, state.force, state.torque, state.time + 1, flight)
        gone = lost(motion, flight.bounds)
        paid = jnp.where(gone, 0.0, reward(state.motion, action, flight))
        return following, self._answer(following, paid, gone, key)

    def _answer(self, flying: Flying, paid: Scalar, gone: Bool[Array, ""], key: Key[Array, ""]) -> TimeStep:
        motion, flight = flying.motion, flying.flight
        seen = visible(motion)
        noise = flight.noise
        deviations = (noise.position,) * 3 + (noise.attitude,) * 9 + (noise.velocity,) * 3 + (noise.rate,) * 3
        noisy = seen + jnp.stack(deviations) * jax.random.normal(key, seen.shape)
        weight = flight.airframe.mass * flight.airframe.gravity
        outer = flying.force / weight, flying.torque / (weight * flight.airframe.arm)
        return TimeStep(
            jnp.concatenate([noisy, flying.commands.ravel()]),
            paid,
            gone,
            flying.time >= self.limit,
            privileged=jnp.concatenate([seen, *outer, 2 * motion.rotors - 1]) if self.told else None,
        )


DECKED = Quadrotor(flight=with_decks)
"""The same task as the simulator ``l2f`` has it."""
FORGETFUL = Quadrotor(history=0)
"""The actor does not see its last actions."""
UNTOLD = Quadrotor(told=False)
"""Critics see what the actor sees."""


def visible(motion: Motion) -> Float[Array, "18"]:
    """Position, rotation matrix by rows, velocity and rate of turn."""
    return jnp.concatenate([motion.position, rotation(motion.attitude).ravel(), motion.velocity, motion.rate])


def lost(motion: Motion, bounds: Bounds) -> Bool[Array, ""]:
    """Whether any coordinate is out of bounds."""
    limits = (motion.position, bounds.position), (motion.velocity, bounds.velocity), (motion.rate, bounds.rate)
    return jnp.any(jnp.stack([jnp.max(jnp.abs(x)) > bound for x, bound in limits]))


def reward(motion: Motion, action: Rotors, flight: Flight) -> Scalar:
    """``constant - scale * (weighted squares)`` of position, attitude, velocity, rate of turn and action.

    The attitude's is ``1 - w²`` of its quaternion, the squared sine of half its angle; the action's is its squared
    distance from the action that holds the craft up, for all four rotors.
    """
    weights = flight.reward
    resting = 2 * flight.airframe.hover() - 1
    cost = (
        weights.position * jnp.sum(motion.position**2)
        + weights.attitude * (1 - motion.attitude[0] ** 2)
        + weights.velocity * jnp.sum(motion.velocity**2)
        + weights.rate * jnp.sum(motion.rate**2)
        + weights.action * jnp.sum((action - resting) ** 2)
    )
    return weights.constant - weights.scale * cost

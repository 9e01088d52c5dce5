"""Agents on a torus that turn: Kuramoto's oscillators, which stay where they are, and Vicsek's birds, which fly.

Agent ``i`` at ``x_i`` with heading ``theta_i`` turns by ``w_i + turn u_i`` and noise, then moves by ``speed`` where it
heads; ``w_i`` is its own drift, drawn anew for every episode and told to nobody. It sees the others within ``reach``,
and itself, as one vector: their mean heading relative to its own. All are paid the order of the whole swarm,
``|mean_j exp(i theta_j)|`` in [0, 1]. What Kuramoto (1975) and Vicsek et al. (1995) gave as a law is to be learnt.

After the adapted models of Cui et al., 2024 (arXiv:2307.06175); numbers are not theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.keys import fold
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, dict_space


class Flock(eqx.Module):
    """One episode under way: places in [0, 1), headings and drifts in rad."""

    place: Float[Array, "agent 2"]
    heading: Float[Array, " agent"]
    drift: Float[Array, " agent"]
    time: Int[Array, ""]


class Swarm(eqx.Module):
    """One group, ``agent``, of ``count``: each sees two numbers in [-1, 1] and the share of time that has passed, and
    turns by one number in [-1, 1]. Episodes are cut after ``limit`` steps.

    ``speed`` and ``reach`` are in sides of the torus, ``turn``, ``spread`` (standard deviation of drifts) and ``noise``
    in rad a step.
    """

    speed: float = eqx.field(static=True, default=0.05)
    spread: float = eqx.field(static=True, default=0.0)
    reach: float = eqx.field(static=True, default=0.25)
    turn: float = eqx.field(static=True, default=0.5)
    noise: float = eqx.field(static=True, default=0.1)
    count: int = eqx.field(static=True, default=50)
    limit: int = eqx.field(static=True, default=50)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        spaces = dict_space(agent=Box((3,), -1.0, 1.0)), dict_space(agent=Box((1,), -1.0, 1.0))
        return EnvSpec("swarm", *spaces, time_limit=self.limit, groups=(Group("agent", self.count),))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Flock, TimeStep]:
        """Anywhere, heading anywhere."""
        flock = self.begin(key)
        return flock, self._answer(flock, jnp.zeros(()))

    def step(self, state: Flock, action: dict[str, Float[Array, "agent 1"]], key: Key[Array, ""]):
        """All turn, then all move."""
        flock = self.move(state, action["agent"][:, 0], key)
        return flock, self._answer(flock, order(flock))

    def begin(self, key: Key[Array, ""]) -> Flock:
        """A fresh swarm."""
        place = jax.random.uniform(fold(key, "place"), (self.count, 2))
        heading = jax.random.uniform(fold(key, "heading"), (self.count,), minval=-jnp.pi, maxval=jnp.pi)
        drift = self.spread * jax.random.normal(fold(key, "drift"), (self.count,))
        return Flock(place, heading, drift, jnp.zeros((), "int32"))

    def move(self, flock: Flock, turns: Float[Array, " agent"], key: Key[Array, ""]) -> Flock:
        """The swarm one step later; ``turns`` beyond [-1, 1] are cut."""
        shaken = self.noise * jax.random.normal(key, (self.count,))
        heading = flock.heading + flock.drift + self.turn * jnp.clip(turns, -1.0, 1.0) + shaken
        ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading)], axis=1)
        place = (flock.place + self.speed * ahead) % 1.0
        return Flock(place, heading, flock.drift, flock.time + 1)

    def seen(self, flock: Flock) -> Float[Array, "agent 2"]:
        """Mean heading within reach, in the frame of each: ``(1, 0)`` where all head as it does, no longer than 1."""
        apart = jnp.abs(flock.place[:, None] - flock.place[None])
        apart = jnp.minimum(apart, 1.0 - apart)
        near = jnp.sum(apart**2, axis=-1) <= self.reach**2
        turned = flock.heading[None] - flock.heading[:, None]
        both = jnp.stack([jnp.cos(turned), jnp.sin(turned)], axis=-1)
        return jnp.sum(both * near[..., None], axis=1) / jnp.sum(near, axis=1)[:, None]

    def passed(self, flock: Flock) -> Float[Array, ""]:
        """The share of time that has passed."""
        return flock.time / self.limit

    def cut(self, flock: Flock) -> Array:
        """Whether the episode is cut here."""
        return flock.time >= self.limit

    def _answer(self, flock: Flock, paid: Float[Array, ""]) -> TimeStep:
        clock = jnp.broadcast_to(self.passed(flock), (self.count, 1))
        seen, no = jnp.concatenate([jnp.clip(self.seen(flock), -1.0, 1.0), clock], axis=1), jnp.zeros(self.count, bool)
        each = {"agent": Each(jnp.broadcast_to(paid, (self.count,)), no)}
        return TimeStep({"agent": seen}, paid, no[0], self.cut(flock), alive={"agent": ~no}, each=each)


def order(flock: Flock) -> Float[Array, ""]:
    """How far all head alike, in [0, 1]."""
    return jnp.hypot(jnp.mean(jnp.cos(flock.heading)), jnp.mean(jnp.sin(flock.heading)))


KURAMOTO = Swarm(speed=0.0, spread=0.1)
"""Oscillators that stand still, each with a frequency of its own."""
VICSEK = Swarm()
"""Birds that fly and have no drift."""

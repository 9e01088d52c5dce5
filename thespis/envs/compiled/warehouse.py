"""A warehouse in which one vehicle must find its way past shelves and through traffic; only the goal is paid.

The vehicle is a disc that drives forwards and turns: over a step of one second with speed ``v`` and turn ``w`` it runs
along an arc of length ``v`` and angle ``w``. Shelves are rectangles; shelves and walls stop it, but it
can still turn on the spot. Other vehicles are discs that drive to and fro on lines of their own and do not give way; to
touch one ends the episode unpaid. All lengths are in metres.

After the scenes of Yin et al., 2024, "Random network distillation based deep reinforcement learning for AGV path
planning", of which no sizes were had: layouts, sizes and what is observed are not theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

Point = Float[Array, "2"]
Four = tuple[float, float, float, float]


class Drive(eqx.Module):
    """One episode under way: where the vehicle is, its heading (rad), and how far each other is on its way.

    ``phase`` is in [0, 1): 0 where a way begins, 1/2 where it turns back.
    """

    place: Point
    heading: Float[Array, ""]
    phase: Float[Array, " movers"]
    time: Int[Array, ""]


class Warehouse(eqx.Module):
    """A square of ``size`` metres; the actions, in [-1, 1], are speed (none to ``speed``) and turn (``turn`` rad).

    Observed are the vehicle's place, cosine and sine of its heading, and of each other its place relative to the
    vehicle and its velocity; places are in units of half the square, velocities of ``speed``. Reaching the goal is paid
    1 and ends the episode; it is cut after ``limit`` steps.
    """

    size: float = eqx.field(static=True, default=8.0)
    shelves: tuple[Four, ...] = eqx.field(static=True, default=((0.0, 3.5, 6.0, 4.5),))
    """Left, lower, right and upper end of each; thicker than ``speed``, or they could be driven through."""
    ways: tuple[Four, ...] = eqx.field(static=True, default=((4.0, 0.4, 4.0, 2.2), (4.0, 4.9, 4.0, 6.7)))
    """Between which two points each of the others drives."""
    period: float = eqx.field(static=True, default=20.0)
    """Steps that they take there and back."""
    start: tuple[float, float] = eqx.field(static=True, default=(1.0, 1.0))
    goal: tuple[float, float] = eqx.field(static=True, default=(1.0, 7.0))
    reach: float = eqx.field(static=True, default=0.8)
    """How near the goal is near enough."""
    radius: float = eqx.field(static=True, default=0.25)
    """Of every vehicle."""
    speed: float = eqx.field(static=True, default=0.5)
    turn: float = eqx.field(static=True, default=0.6)
    limit: int = eqx.field(static=True, default=150)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("warehouse", Box((4 + 4 * len(self.ways),)), Box((2,), -1.0, 1.0), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Drive, TimeStep]:
        """Near the start, headed anywhere; the others are anywhere on their ways."""
        place_key, heading_key, phase_key = jax.random.split(key, 3)
        place = jnp.array(self.start) + jax.random.uniform(place_key, (2,), minval=-0.25, maxval=0.25)
        heading = jax.random.uniform(heading_key, (), minval=-jnp.pi, maxval=jnp.pi)
        phase = jax.random.uniform(phase_key, (len(self.ways),))
        state, no = Drive(place, heading, phase, jnp.zeros((), "int32")), jnp.zeros((), bool)
        return state, TimeStep(self._seen(state), jnp.zeros(()), no, no)

    def step(self, state: Drive, action: Float[Array, "2"], key: Key[Array, ""]) -> tuple[Drive, TimeStep]:
        """Drive for a second, while the others do."""
        action = jnp.clip(action, -1.0, 1.0)
        wanted = arc(state.place, state.heading, self.speed * (action[0] + 1) / 2, self.turn * action[1])
        place = jnp.where(self.blocked(wanted), state.place, wanted)
        heading = jnp.mod(state.heading + self.turn * action[1] + jnp.pi, 2 * jnp.pi) - jnp.pi
        state = Drive(place, heading, jnp.mod(state.phase + 1 / self.period, 1.0), state.time + 1)
        apart = jnp.linalg.norm(self.others(state.phase)[0] - place, axis=-1)
        hit = jnp.any(apart < 2 * self.radius)
        there = ~hit & (jnp.linalg.norm(place - jnp.array(self.goal)) < self.reach)
        over = hit | there
        return state, TimeStep(self._seen(state), there.astype("float32"), over, ~over & (state.time >= self.limit))

    def blocked(self, place: Point) -> Bool[Array, ""]:
        """Whether a vehicle there would stand in a shelf or a wall."""
        boxes = jnp.array(self.shelves).reshape(-1, 4)
        nearest = jnp.clip(place, boxes[:, :2], boxes[:, 2:])
        in_shelf = jnp.any(jnp.sum((nearest - place) ** 2, axis=-1) < self.radius**2)
        return in_shelf | jnp.any((place < self.radius) | (place > self.size - self.radius))

    def others(self, phase: Float[Array, " movers"]) -> tuple[Float[Array, "movers 2"], Float[Array, "movers 2"]]:
        """Places of the other vehicles, and their velocities in metres a step."""
        ways = jnp.array(self.ways).reshape(-1, 4)
        begin, whole = ways[:, :2], ways[:, 2:] - ways[:, :2]
        done = 1 - jnp.abs(1 - 2 * phase)
        return begin + done[:, None] * whole, jnp.where(phase < 0.5, 1, -1)[:, None] * whole * 2 / self.period

    def _seen(self, state: Drive) -> Float[Array, " features"]:
        half = self.size / 2
        own = jnp.stack([*(state.place / half - 1), jnp.cos(state.heading), jnp.sin(state.heading)])
        places, velocities = self.others(state.phase)
        seen = jnp.concatenate([(places - state.place) / half, velocities / self.speed], axis=1)
        return jnp.concatenate([own, seen.ravel()])


def arc(place: Point, heading: Float[Array, ""], length: Float[Array, ""], angle: Float[Array, ""]) -> Point:
    """Where an arc ends that begins at ``place`` in direction ``heading`` and turns by ``angle`` on the way (rad)."""
    chord = length * jnp.sinc(angle / (2 * jnp.pi))
    middle = heading + angle / 2
    return place + chord * jnp.stack([jnp.cos(middle), jnp.sin(middle)])


COMPLEX = Warehouse(
    shelves=((0.0, 2.0, 6.0, 3.0), (2.0, 5.0, 8.0, 6.0)), ways=((4.0, 0.4, 4.0, 1.0), (4.0, 3.4, 4.0, 4.0)),
    goal=(7.0, 7.0), limit=250,
)  # fmt: skip
"""Two shelves that leave a way like an S."""

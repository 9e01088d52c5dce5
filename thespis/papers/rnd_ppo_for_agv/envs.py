"""Warehouse navigation: one vehicle must drive past shelves and through traffic to a goal; the reward is sparse.

The vehicle is a disc that drives forward and turns: over a step of one second with speed ``v`` and turn ``w`` it
follows an arc of length ``v`` and angle ``w``. Shelves are rectangles; shelves and walls stop the vehicle, which can
still turn on the spot. Other vehicles (movers) are discs that drive back and forth on lines of their own and do not
give way; contact with one terminates the episode without reward. All lengths are in metres.

After the scenes of Yin et al., 2024, "Random network distillation based deep reinforcement learning for AGV path
planning", whose sizes were not available: layouts, sizes and observations are not theirs.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box
from thespis.runtime.keys import fold

Point = Float[Array, "2"]
Rectangle = tuple[float, float, float, float]


class WarehouseState(eqx.Module):
    """State of one episode: position and heading (rad) of the vehicle, and the phase of each mover.

    ``mover_phases`` are in [0, 1): 0 at the start of a path, 1/2 where the mover turns back. ``goal`` is the number of
    the episode's goal.
    """

    position: Point
    heading: Float[Array, ""]
    mover_phases: Float[Array, " movers"]
    time: Int[Array, ""]
    goal: Int[Array, ""]


class Warehouse(eqx.Module):
    """Warehouse environment: a vehicle drives past shelves and through traffic to a goal.

    The floor is a square of ``arena_size`` metres. Actions in [-1, 1] are speed (0 to ``max_speed``) and turn
    (``max_turn`` rad). Observations are the vehicle's position, cosine and sine of its heading, and of each mover its
    position relative to the vehicle and its velocity. Positions are in units of half the square, velocities in units of
    ``max_speed``. Reaching the goal pays 1 and terminates the episode; episodes are truncated after ``time_limit``
    steps. With ``other_goals`` every episode has one of several goals, all equally likely, and it is observed, one-hot;
    the others have no effect.
    """

    arena_size: float = eqx.field(static=True, default=8.0)
    shelves: tuple[Rectangle, ...] = eqx.field(static=True, default=((0.0, 3.5, 6.0, 4.5),))
    """Left, lower, right and upper edge of each; thicker than ``max_speed``, or vehicles could drive through."""
    mover_paths: tuple[Rectangle, ...] = eqx.field(static=True, default=((4.0, 0.4, 4.0, 2.2), (4.0, 4.9, 4.0, 6.7)))
    """The two end points (x, y, x, y) of each mover's path."""
    mover_period: float = eqx.field(static=True, default=20.0)
    """Number of steps that a mover takes for both ways of its path."""
    start_position: tuple[float, float] = eqx.field(static=True, default=(1.0, 1.0))
    goal_position: tuple[float, float] = eqx.field(static=True, default=(1.0, 7.0))
    other_goals: tuple[tuple[float, float], ...] = eqx.field(static=True, default=())
    """Goals besides ``goal_position``."""
    goal_radius: float = eqx.field(static=True, default=0.8)
    """Distance from the goal that counts as reaching it, m."""
    vehicle_radius: float = eqx.field(static=True, default=0.25)
    """Radius of every vehicle, m."""
    max_speed: float = eqx.field(static=True, default=0.5)
    max_turn: float = eqx.field(static=True, default=0.6)
    time_limit: int = eqx.field(static=True, default=150)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        size = 4 + 4 * len(self.mover_paths) + (len(self.goals) if self.other_goals else 0)
        return EnvSpec("warehouse", Box((size,)), Box((2,), -1.0, 1.0), time_limit=self.time_limit)

    @property
    def goals(self) -> tuple[tuple[float, float], ...]:
        """Positions of all goals."""
        return self.goal_position, *self.other_goals

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[WarehouseState, TimeStep]:
        """Starts near the start position with a random heading; movers have random phases, and the goal is drawn."""
        position_key, heading_key, phase_key = jax.random.split(key, 3)
        position = jnp.array(self.start_position) + jax.random.uniform(position_key, (2,), minval=-0.25, maxval=0.25)
        heading = jax.random.uniform(heading_key, (), minval=-jnp.pi, maxval=jnp.pi)
        phases = jax.random.uniform(phase_key, (len(self.mover_paths),))
        goal = jax.random.randint(fold(key, "goal"), (), 0, len(self.goals))
        state, no = WarehouseState(position, heading, phases, jnp.zeros((), "int32"), goal), jnp.zeros((), bool)
        return state, TimeStep(self._observe(state), jnp.zeros(()), no, no)

    def step(
        self, state: WarehouseState, action: Float[Array, "2"], key: Key[Array, ""]
    ) -> tuple[WarehouseState, TimeStep]:
        """The vehicle and the movers drive for one second."""
        action = jnp.clip(action, -1.0, 1.0)
        target = arc_endpoint(
            state.position, state.heading, self.max_speed * (action[0] + 1) / 2, self.max_turn * action[1]
        )
        position = jnp.where(self.is_blocked(target), state.position, target)
        heading = jnp.mod(state.heading + self.max_turn * action[1] + jnp.pi, 2 * jnp.pi) - jnp.pi
        state = WarehouseState(
            position, heading, jnp.mod(state.mover_phases + 1 / self.mover_period, 1.0), state.time + 1, state.goal
        )
        distances = jnp.linalg.norm(self.mover_states(state.mover_phases)[0] - position, axis=-1)
        hit = jnp.any(distances < 2 * self.vehicle_radius)
        reached = ~hit & (jnp.linalg.norm(position - jnp.array(self.goals)[state.goal]) < self.goal_radius)
        terminated = hit | reached
        return state, TimeStep(
            self._observe(state), reached.astype("float32"), terminated, ~terminated & (state.time >= self.time_limit)
        )

    def is_blocked(self, position: Point) -> Bool[Array, ""]:
        """Whether a vehicle at ``position`` would overlap a shelf or a wall."""
        boxes = jnp.array(self.shelves).reshape(-1, 4)
        nearest = jnp.clip(position, boxes[:, :2], boxes[:, 2:])
        in_shelf = jnp.any(jnp.sum((nearest - position) ** 2, axis=-1) < self.vehicle_radius**2)
        return in_shelf | jnp.any((position < self.vehicle_radius) | (position > self.arena_size - self.vehicle_radius))

    def mover_states(
        self, mover_phases: Float[Array, " movers"]
    ) -> tuple[Float[Array, "movers 2"], Float[Array, "movers 2"]]:
        """Positions of the movers, and their velocities in metres per step."""
        paths = jnp.array(self.mover_paths).reshape(-1, 4)
        starts, displacements = paths[:, :2], paths[:, 2:] - paths[:, :2]
        fractions = 1 - jnp.abs(1 - 2 * mover_phases)
        return starts + fractions[:, None] * displacements, jnp.where(mover_phases < 0.5, 1, -1)[
            :, None
        ] * displacements * 2 / self.mover_period

    def _observe(self, state: WarehouseState) -> Float[Array, " features"]:
        half = self.arena_size / 2
        own = jnp.stack([*(state.position / half - 1), jnp.cos(state.heading), jnp.sin(state.heading)])
        positions, velocities = self.mover_states(state.mover_phases)
        mover_features = jnp.concatenate([(positions - state.position) / half, velocities / self.max_speed], axis=1)
        goal = jax.nn.one_hot(state.goal, len(self.goals)) if self.other_goals else jnp.zeros(0)
        return jnp.concatenate([own, mover_features.ravel(), goal])


def arc_endpoint(
    position: Point, heading: Float[Array, ""], length: Float[Array, ""], angle: Float[Array, ""]
) -> Point:
    """End point of an arc that starts at ``position`` in direction ``heading`` and turns by ``angle`` (rad)."""
    chord = length * jnp.sinc(angle / (2 * jnp.pi))
    middle = heading + angle / 2
    return position + chord * jnp.stack([jnp.cos(middle), jnp.sin(middle)])


COMPLEX_WAREHOUSE = Warehouse(
    shelves=((0.0, 2.0, 6.0, 3.0), (2.0, 5.0, 8.0, 6.0)),
    mover_paths=((4.0, 0.4, 4.0, 1.0), (4.0, 3.4, 4.0, 4.0)),
    goal_position=(7.0, 7.0),
    time_limit=250,
)
"""Two shelves that leave an S-shaped path."""

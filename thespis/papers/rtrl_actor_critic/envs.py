"""T-maze: a memory task in which the first observation tells which way to turn at the end of a corridor.

The correct turn pays 4, the wrong one -0.1, and either terminates the episode; walking into a wall costs 0.1. With
memory the best return is 4, after ``corridor_length + 1`` steps; without memory it is 1.95 on average.

Source: Bakker, 2001, "Reinforcement learning with long short-term memory", with the same observations: 011 or 110 at
the start, 101 in the corridor, 010 at its end. With ``noisy`` the corridor shows a0b, with a and b drawn anew from [0,
1] at each step, so that the memory must be protected from later observations.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.cue_task import CueTask

NORTH, EAST, SOUTH, WEST = range(4)
CORRECT_REWARD, WRONG_REWARD = 4.0, -0.1


class TMazeState(eqx.Module):
    """State of one episode: steps east of the start, steps taken, and whether the goal is in the north."""

    position: Int[Array, ""]
    time: Int[Array, ""]
    goal_north: Bool[Array, ""]


class TMaze(eqx.Module):
    """T-maze environment: the first observation tells which way to turn at the end of a corridor.

    The corridor has ``corridor_length`` steps from start to turn; episodes are truncated after ``time_limit`` steps.
    With ``goal_visible`` observations have a fourth number, 1 where the goal is in the north, and no memory is needed.
    """

    corridor_length: int = eqx.field(static=True, default=10)
    time_limit: int = eqx.field(static=True, default=100)
    noisy: bool = eqx.field(static=True, default=False)
    goal_visible: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        size = 4 if self.goal_visible else 3
        return EnvSpec("t-maze", Box((size,), 0.0, 1.0), Discrete(4), time_limit=self.time_limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[TMazeState, TimeStep]:
        """Starts at the beginning of the corridor; the goal is in the north or south with equal probability."""
        zero, no = jnp.zeros((), "int32"), jnp.zeros((), bool)
        state = TMazeState(zero, zero, jax.random.bernoulli(key))
        return state, TimeStep(self._observe(state, key), jnp.zeros(()), no, no)

    def step(self, state: TMazeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[TMazeState, TimeStep]:
        """Moves unless a wall is in the way; at the end of the corridor, turns."""
        at_end, north_or_south = state.position == self.corridor_length, (action == NORTH) | (action == SOUTH)
        turned = at_end & north_or_south
        moved = jnp.where(action == EAST, 1, jnp.where(action == WEST, -1, 0))
        position = jnp.clip(state.position + moved, 0, self.corridor_length)
        blocked = (position == state.position) & ~turned
        reward = jnp.where(
            turned & ((action == NORTH) == state.goal_north),
            CORRECT_REWARD,
            jnp.where(turned | blocked, WRONG_REWARD, 0.0),
        )
        state = TMazeState(position, state.time + 1, state.goal_north)
        return state, TimeStep(self._observe(state, key), reward, turned, (state.time >= self.time_limit) & ~turned)

    def cue_task(self) -> CueTask:
        """The side of the goal matters at the end of the corridor."""
        return CueTask(self.corridor_length, EAST, 2, lambda state: state.goal_north.astype("int32"))

    def _observe(self, state: TMazeState, key: Key[Array, ""]) -> Float[Array, " size"]:
        start = jnp.where(state.goal_north, jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
        sides = jax.random.uniform(key, (2,)) if self.noisy else jnp.ones(2)
        corridor = jnp.array([sides[0], 0.0, sides[1]])
        end = jnp.array([0.0, 1.0, 0.0])
        shown = jnp.where(state.position == 0, start, jnp.where(state.position == self.corridor_length, end, corridor))
        return jnp.append(shown, state.goal_north.astype("float32")) if self.goal_visible else shown


NOISY_T_MAZE = TMaze(20, time_limit=100, noisy=True)
"""A noisy corridor of 20 steps."""
LONG_T_MAZE = TMaze(70, time_limit=350, noisy=True)
"""A noisy corridor of 70 steps, the longest of the source."""

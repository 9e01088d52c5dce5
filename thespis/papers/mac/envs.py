r"""Two environments for average-reward methods: a goal grid with sparse rewards, and a random walk that mixes slowly.

Goal grid: an empty square grid with a goal in the far corner; the larger the grid, the sparser the reward. A step that
ends on the goal, including staying there, pays 1, any other step 0.

Slow walk: a random walk on a line with a small reward at one end and a large one at the other. A policy that moves
right with the same probability :math:`p` everywhere (its action and the environment's randomness together) is a
birth-and-death chain. Besides 1 its eigenvalues are (a walk with reflecting barriers)

.. math:: \lambda_k = stay + (1 - stay) \, 2 \sqrt{p (1 - p)} \cos(\pi k / n), \qquad k = 1 ... n - 1

Source: Suttle et al., 2023 (arXiv:2301.12083), and their code, for the goal grid.

Differs from their code: episodes do not terminate here; in its newest version they terminate on the goal.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""Stay, up, down, left, right, as steps over rows and columns."""


class GoalGridState(eqx.Module):
    """State of one episode: row and column, and the number of steps taken."""

    position: Int[Array, "2"]
    time: Int[Array, ""]


class GoalGrid(eqx.Module):
    """``grid_size`` by ``grid_size`` cells, observed one-hot; start in the upper left corner, goal in the lower right.

    A move into an edge stays in place. Episodes are truncated after ``time_limit`` steps.
    """

    grid_size: int = eqx.field(static=True, default=5)
    time_limit: int = eqx.field(static=True, default=200)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec(
            "goal-grid", Box((self.grid_size**2,), 0.0, 1.0), Discrete(len(MOVES)), time_limit=self.time_limit
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[GoalGridState, TimeStep]:
        """Starts in the upper left corner."""
        state = GoalGridState(jnp.zeros(2, "int32"), jnp.zeros((), "int32"))
        return state, self._time_step(state)

    def step(self, state: GoalGridState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[GoalGridState, TimeStep]:
        """Move one cell, deterministically."""
        position = jnp.clip(state.position + jnp.array(MOVES, "int32")[action], 0, self.grid_size - 1)
        state = GoalGridState(position, state.time + 1)
        return state, self._time_step(state)

    def _time_step(self, state: GoalGridState) -> TimeStep:
        cell = state.position @ jnp.array([self.grid_size, 1], "int32")
        reward: Array = (cell == self.grid_size**2 - 1).astype("float32")
        observation = jax.nn.one_hot(cell, self.grid_size**2)
        return TimeStep(observation, reward, jnp.zeros((), bool), state.time >= self.time_limit)


LARGE_GOAL_GRID = GoalGrid(grid_size=8)
"""At random, its goal is reached in three episodes of ten; the default's in eight."""


class SlowWalkState(eqx.Module):
    """State of one episode: position, and number of steps taken."""

    position: Int[Array, ""]
    time: Int[Array, ""]


class SlowWalk(eqx.Module):
    """``num_positions`` positions on a line, observed one-hot; start in the middle, truncation after ``time_limit``.

    Actions are left (0) and right (1). With probability ``stay_prob`` nothing happens. Otherwise the action is executed
    with probability ``(1 + control_strength) / 2``, and its opposite if not. A move beyond an end stays in place. A
    step that ends in the last position pays 1, one that ends in the first pays ``small_reward``, all others pay 0.
    There is no termination.
    """

    num_positions: int = eqx.field(static=True, default=11)
    stay_prob: float = eqx.field(static=True, default=0.3)
    control_strength: float = eqx.field(static=True, default=0.3)
    small_reward: float = eqx.field(static=True, default=0.2)
    time_limit: int = eqx.field(static=True, default=200)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit."""
        return EnvSpec("slow-walk", Box((self.num_positions,), 0.0, 1.0), Discrete(2), time_limit=self.time_limit)

    def relaxation_time(self, right_prob: float) -> float:
        """Steps in which the influence of the start falls to 1/e, if the policy chooses right with ``right_prob``."""
        p = (1 + self.control_strength * (2 * right_prob - 1)) / 2
        second_eigenvalue = self.stay_prob + (1 - self.stay_prob) * 2 * math.sqrt(p * (1 - p)) * math.cos(
            math.pi / self.num_positions
        )
        return 1 / (1 - second_eigenvalue)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[SlowWalkState, TimeStep]:
        """Starts in the middle."""
        state = SlowWalkState(jnp.full((), self.num_positions // 2, "int32"), jnp.zeros((), "int32"))
        return state, self._time_step(state)

    def step(self, state: SlowWalkState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[SlowWalkState, TimeStep]:
        """Moves once, or stays."""
        stay_key, wind_key = jax.random.split(key)
        obeyed = jax.random.bernoulli(wind_key, (1 + self.control_strength) / 2)
        move = jnp.where(obeyed == (action == 1), 1, -1)
        move = jnp.where(jax.random.bernoulli(stay_key, self.stay_prob), 0, move)
        state = SlowWalkState(jnp.clip(state.position + move, 0, self.num_positions - 1), state.time + 1)
        return state, self._time_step(state)

    def _time_step(self, state: SlowWalkState) -> TimeStep:
        reward = jnp.where(state.position == 0, self.small_reward, 0.0) + jnp.where(
            state.position == self.num_positions - 1, 1.0, 0.0
        )
        observation = jax.nn.one_hot(state.position, self.num_positions)
        reward = jnp.where(state.time > 0, reward, 0.0)
        return TimeStep(observation, reward, jnp.zeros((), bool), state.time >= self.time_limit)

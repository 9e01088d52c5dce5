"""Coverage: an agent on a grid is rewarded for what it covers or learns; repeated visits are worth less.

The value of a path is a monotone submodular set function of its positions: the weight of all covered cells
(:class:`WeightedCoverage`), or the information that measurements give about a Gaussian field
(:class:`InformationGain`). A step's reward is its marginal gain, so the return is the value of the whole path minus
that of its start. Grid, moves and the block of covered cells are those of Prajapat et al. (2024, "Submodular
Reinforcement Learning", arXiv:2307.13372), as in their code; their grids have 30 cells a side, and their fields are
Matérn.
"""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.papers.gmah.envs import MOVES

CellWeights = Float[Array, "side side"]
DENSITY_PEAKS = ((0.25, 0.75, 0.7), (0.8, 0.4, 1.0))
"""Two peaks of the density: row and column as fractions of the side, and height."""


class WeightedCoverage(eqx.Module):
    """Coverage objective: the total weight of the cells that were covered at least once.

    A position covers a block of ``sensor_range + 1`` rows and columns whose first cell is the agent's own.
    """

    sensor_range: int = eqx.field(static=True, default=1)

    def init(self, weights: CellWeights) -> tuple[CellWeights, Bool[Array, "side side"]]:
        """The state in which no cell is covered."""
        return weights, jnp.zeros(weights.shape, bool)

    def add_position(
        self, state: tuple[CellWeights, Bool[Array, "side side"]], position: Int[Array, "2"]
    ) -> tuple[Float[Array, ""], tuple[CellWeights, Bool[Array, "side side"]]]:
        """Weight that ``position`` adds, and the state after it."""
        weights, before = state
        ahead = jnp.indices(weights.shape) - position[:, None, None]
        after = before | jnp.all((ahead >= 0) & (ahead <= self.sensor_range), axis=0)
        return jnp.sum(jnp.where(after & ~before, weights, 0.0)), (weights, after)

    def remaining_value(self, state: tuple[CellWeights, Bool[Array, "side side"]]) -> Float[Array, " cells"]:
        """Remaining share of each cell's value: 1 if it is not covered, else 0."""
        return (~state[1]).astype("float32").ravel()


class InformationGain(eqx.Module):
    r"""Information objective: information (nats) that noisy measurements along the path give about a Gaussian field.

    .. math:: F(S) = \tfrac12 \log \det (I + \sigma^{-2} K_S), \qquad
              K_{ij} = \sqrt{w_i w_j} \exp(-|x_i - x_j|^2 / 2 l^2)

    Weights are the field's prior variances. One more position adds :math:`\tfrac12 \log(1 + \sigma^{-2} K_{xx | S})`.
    Measuring twice at one position adds a little more.
    """

    length_scale: float = eqx.field(static=True, default=1.0)
    """Length scale of the field, in cells."""
    noise_std: float = eqx.field(static=True, default=0.5)
    """Standard deviation of the measurement noise."""

    def init(self, weights: CellWeights) -> tuple[Float[Array, "cells cells"], CellWeights]:
        """The field's prior covariance, and its prior variances."""
        cells = jnp.indices(weights.shape).reshape(2, -1).T.astype("float32")
        squared_distances = jnp.sum(jnp.square(cells[:, None] - cells[None]), axis=-1)
        deviation = jnp.sqrt(weights.ravel())
        return jnp.outer(deviation, deviation) * jnp.exp(-squared_distances / (2 * self.length_scale**2)), weights

    def add_position(self, state: tuple[Array, CellWeights], position: Int[Array, "2"]) -> tuple[Float[Array, ""], Any]:
        """Information that a measurement at ``position`` adds, and the posterior covariance."""
        covariance, weights = state
        cell = position[0] * weights.shape[1] + position[1]
        column, variance = covariance[cell], covariance[cell, cell] + self.noise_std**2
        gain = 0.5 * jnp.log(variance / self.noise_std**2)
        return gain, (covariance - jnp.outer(column, column) / variance, weights)

    def remaining_value(self, state: tuple[Array, CellWeights]) -> Float[Array, " cells"]:
        """Remaining share of each cell's variance."""
        return jnp.clip(jnp.diagonal(state[0]) / state[1].ravel(), 0.0, 1.0)


class CoverageState(eqx.Module):
    """State of one episode; ``objective_state`` is what the objective stores about the positions so far."""

    position: Int[Array, "2"]
    time: Int[Array, ""]
    objective_state: Any


class Coverage(eqx.Module):
    """Coverage environment: a walk of ``horizon`` steps on a grid, after which the episode terminates.

    Actions: stay, left, right, up, down; a move into an edge stays in place. With probability ``slip_prob`` a uniformly
    random action is executed instead. Episodes start in the upper left corner. The observation is row, column and time,
    one-hot, and, with ``observe_remaining``, the remaining share of every cell's value. With ``additive_reward`` a
    step's reward is the value of its position alone, as if nothing had been covered before.
    """

    objective: WeightedCoverage | InformationGain = WeightedCoverage()
    grid_size: int = eqx.field(static=True, default=8)
    horizon: int = eqx.field(static=True, default=20)
    density: Literal["hills", "even"] = eqx.field(static=True, default="hills")
    slip_prob: float = eqx.field(static=True, default=0.0)
    observe_remaining: bool = eqx.field(static=True, default=False)
    additive_reward: bool = eqx.field(static=True, default=False)

    @property
    def weights(self) -> CellWeights:
        """Weight of every cell, in (0, 1.1]."""
        if self.density == "even":
            return jnp.ones((self.grid_size, self.grid_size))
        rows, columns = jnp.indices((self.grid_size, self.grid_size)) / (self.grid_size - 1)
        peaks = [h * jnp.exp(-((rows - r) ** 2 + (columns - c) ** 2) / (2 * 0.15**2)) for r, c, h in DENSITY_PEAKS]
        return 0.05 + jnp.sum(jnp.stack(peaks), axis=0)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        size = 2 * self.grid_size + self.horizon + (self.grid_size**2 if self.observe_remaining else 0)
        return EnvSpec("coverage", Box((size,), 0.0, 1.0), Discrete(len(MOVES)), time_limit=self.horizon)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[CoverageState, TimeStep]:
        """Starts in the corner, which earns no reward."""
        position = jnp.zeros(2, "int32")
        _, objective_state = self.objective.add_position(self.objective.init(self.weights), position)
        state = CoverageState(position, jnp.zeros((), "int32"), objective_state)
        return state, self._time_step(state, jnp.zeros(()))

    def step(self, state: CoverageState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[CoverageState, TimeStep]:
        """Moves once; the reward is the marginal gain of the new position."""
        slip_key, action_key = jax.random.split(key)
        executed = jnp.where(
            jax.random.bernoulli(slip_key, self.slip_prob), jax.random.randint(action_key, (), 0, len(MOVES)), action
        )
        position = jnp.clip(state.position + jnp.array(MOVES, "int32")[executed], 0, self.grid_size - 1)
        gain, objective_state = self.objective.add_position(state.objective_state, position)
        if self.additive_reward:
            gain, _ = self.objective.add_position(self.objective.init(self.weights), position)
        state = CoverageState(position, state.time + 1, objective_state)
        return state, self._time_step(state, gain)

    def _time_step(self, state: CoverageState, gain: Float[Array, ""]) -> TimeStep:
        features = [jax.nn.one_hot(x, self.grid_size) for x in state.position] + [
            jax.nn.one_hot(state.time, self.horizon)
        ]
        if self.observe_remaining:
            features.append(self.objective.remaining_value(state.objective_state))
        return TimeStep(jnp.concatenate(features), gain, state.time >= self.horizon, jnp.zeros((), bool))


SLIPPERY_COVERAGE = Coverage(slip_prob=0.1)
OBSERVED_COVERAGE = Coverage(slip_prob=0.1, observe_remaining=True)
ADDITIVE_COVERAGE = Coverage(slip_prob=0.1, additive_reward=True)
INFORMATION_COVERAGE = Coverage(InformationGain(), grid_size=5, horizon=16, slip_prob=0.1)
OBSERVED_INFORMATION_COVERAGE = Coverage(
    InformationGain(), grid_size=5, horizon=16, slip_prob=0.1, observe_remaining=True
)
ADDITIVE_INFORMATION_COVERAGE = Coverage(
    InformationGain(), grid_size=5, horizon=16, slip_prob=0.1, additive_reward=True
)
"""Environments of the trial: one move in ten is replaced by a random one."""

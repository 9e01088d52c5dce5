"""A walker on a grid is paid for what it sees or learns on its way: each place is worth less the more is known already.

What a way is worth is a set function of the places on it, monotone and submodular: the weight of all cells that were
covered (:class:`Covered`), or the information that measurements give about a Gaussian field (:class:`Informed`). A
step is paid its marginal gain, so that the return is the worth of the whole way less that of its start. The grid, the
moves and the block of cells that is covered are those of Prajapat et al. (2024, "Submodular Reinforcement Learning",
arXiv:2307.13372), as their code has them; there grids have 30 cells a side, and fields are Matérn.
"""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.compiled.two_rooms import MOVES

Weights = Float[Array, "side side"]
HILLS = ((0.25, 0.75, 0.7), (0.8, 0.4, 1.0))
"""Row and column of two tops, as shares of the side, and how high they are."""


class Covered(eqx.Module):
    """The weight of all cells that lay in sight at least once.

    In sight is a block of ``reach + 1`` rows and columns whose first cell is the walker's own.
    """

    reach: int = eqx.field(static=True, default=1)

    def begin(self, weights: Weights) -> tuple[Weights, Bool[Array, "side side"]]:
        """Nothing is covered."""
        return weights, jnp.zeros(weights.shape, bool)

    def add(
        self, known: tuple[Weights, Bool[Array, "side side"]], place: Int[Array, "2"]
    ) -> tuple[Float[Array, ""], tuple[Weights, Bool[Array, "side side"]]]:
        """What standing at ``place`` adds, and what is covered then."""
        weights, before = known
        ahead = jnp.indices(weights.shape) - place[:, None, None]
        after = before | jnp.all((ahead >= 0) & (ahead <= self.reach), axis=0)
        return jnp.sum(jnp.where(after & ~before, weights, 0.0)), (weights, after)

    def left(self, known: tuple[Weights, Bool[Array, "side side"]]) -> Float[Array, " cells"]:
        """Of every cell what is left of its worth, as a share."""
        return (~known[1]).astype("float32").ravel()


class Informed(eqx.Module):
    r"""Information, in nats, that noisy measurements on the way give about a Gaussian field.

    .. math:: F(S) = \tfrac12 \log \det (I + \sigma^{-2} K_S), \qquad
              K_{ij} = \sqrt{w_i w_j} \exp(-|x_i - x_j|^2 / 2 l^2)

    Weights are the field's variances before anything is measured. One more place adds
    :math:`\tfrac12 \log(1 + \sigma^{-2} K_{xx | S})`. Who measures twice at one place learns a little more.
    """

    length: float = eqx.field(static=True, default=1.0)
    """Length over which the field varies, in cells."""
    noise: float = eqx.field(static=True, default=0.5)
    """Standard deviation of a measurement."""

    def begin(self, weights: Weights) -> tuple[Float[Array, "cells cells"], Weights]:
        """The field's covariance, and its variances."""
        places = jnp.indices(weights.shape).reshape(2, -1).T.astype("float32")
        apart = jnp.sum(jnp.square(places[:, None] - places[None]), axis=-1)
        deviation = jnp.sqrt(weights.ravel())
        return jnp.outer(deviation, deviation) * jnp.exp(-apart / (2 * self.length**2)), weights

    def add(self, known: tuple[Array, Weights], place: Int[Array, "2"]) -> tuple[Float[Array, ""], Any]:
        """What a measurement at ``place`` adds, and the covariance then."""
        covariance, weights = known
        cell = place[0] * weights.shape[1] + place[1]
        line, spread = covariance[cell], covariance[cell, cell] + self.noise**2
        gain = 0.5 * jnp.log(spread / self.noise**2)
        return gain, (covariance - jnp.outer(line, line) / spread, weights)

    def left(self, known: tuple[Array, Weights]) -> Float[Array, " cells"]:
        """Of every cell what is left of its variance, as a share."""
        return jnp.clip(jnp.diagonal(known[0]) / known[1].ravel(), 0.0, 1.0)


class Walk(eqx.Module):
    """One episode under way; ``known`` is what the objective keeps of the places so far."""

    place: Int[Array, "2"]
    time: Int[Array, ""]
    known: Any


class Coverage(eqx.Module):
    """A walk of ``horizon`` steps, which is all there is: it ends there, and no value follows.

    Actions: stay, left, right, up, down; at an edge one stays. With chance ``slip`` any of the five happens instead.
    Everybody begins in the upper left corner. Seen are row, column and time, one-hot, and, if ``told``, what is left
    of every cell's worth. ``additive``: a step is paid what its place would be worth alone, as if nothing were known.
    """

    objective: Covered | Informed = Covered()
    side: int = eqx.field(static=True, default=8)
    horizon: int = eqx.field(static=True, default=20)
    density: Literal["hills", "even"] = eqx.field(static=True, default="hills")
    slip: float = eqx.field(static=True, default=0.0)
    told: bool = eqx.field(static=True, default=False)
    additive: bool = eqx.field(static=True, default=False)

    @property
    def weights(self) -> Weights:
        """Of all cells, in (0, 1.1]."""
        if self.density == "even":
            return jnp.ones((self.side, self.side))
        rows, columns = jnp.indices((self.side, self.side)) / (self.side - 1)
        hills = [h * jnp.exp(-((rows - r) ** 2 + (columns - c) ** 2) / (2 * 0.15**2)) for r, c, h in HILLS]
        return 0.05 + jnp.sum(jnp.stack(hills), axis=0)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        seen = 2 * self.side + self.horizon + (self.side**2 if self.told else 0)
        return EnvSpec("coverage", Box((seen,), 0.0, 1.0), Discrete(len(MOVES)), time_limit=self.horizon)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Walk, TimeStep]:
        """In the corner, which is not paid."""
        place = jnp.zeros(2, "int32")
        _, known = self.objective.add(self.objective.begin(self.weights), place)
        state = Walk(place, jnp.zeros((), "int32"), known)
        return state, self._answer(state, jnp.zeros(()))

    def step(self, state: Walk, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Walk, TimeStep]:
        """One move, paid by what the place adds."""
        slips, other = jax.random.split(key)
        taken = jnp.where(jax.random.bernoulli(slips, self.slip), jax.random.randint(other, (), 0, len(MOVES)), action)
        place = jnp.clip(state.place + jnp.array(MOVES, "int32")[taken], 0, self.side - 1)
        gain, known = self.objective.add(state.known, place)
        if self.additive:
            gain, _ = self.objective.add(self.objective.begin(self.weights), place)
        state = Walk(place, state.time + 1, known)
        return state, self._answer(state, gain)

    def _answer(self, state: Walk, gain: Float[Array, ""]) -> TimeStep:
        seen = [jax.nn.one_hot(x, self.side) for x in state.place] + [jax.nn.one_hot(state.time, self.horizon)]
        if self.told:
            seen.append(self.objective.left(state.known))
        return TimeStep(jnp.concatenate(seen), gain, state.time >= self.horizon, jnp.zeros((), bool))


SLIPPERY = Coverage(slip=0.1)
TOLD = Coverage(slip=0.1, told=True)
ADDITIVE = Coverage(slip=0.1, additive=True)
FIELD = Coverage(Informed(), side=5, horizon=16, slip=0.1)
ADDITIVE_FIELD = Coverage(Informed(), side=5, horizon=16, slip=0.1, additive=True)
"""Those of the trial: one move in ten is not one's own."""

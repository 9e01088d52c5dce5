"""Values of continuous actions from coarse to fine (Seo et al., 2024): each level cuts what the last one chose in bins.

Every dimension of an action is cut for itself, and has values of its own, in the light of where all of them stand. A
critic of sequences (Seo and Abbeel, 2025) does so for each of several actions in a row, which a recurrent unit joins.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box
from thespis.nets.body import Encoder
from thespis.nets.mlp import Linear, uniform_fan_in

SAME = 1e-4
"""Bins whose values all lie this near to each other are as good as each other."""


class Grid(eqx.Module):
    """``[-1, 1]`` cut into ``bins`` equal parts, each of which is cut again, on ``levels`` levels in all."""

    levels: int = eqx.field(static=True)
    bins: int = eqx.field(static=True)

    def digits(self, action: Float[Array, "*shape"]) -> Int[Array, "level *shape"]:
        """The bin of each level in which a canonical action lies; beyond the bounds, the one next to it."""
        low, width, found = jnp.full(action.shape, -1.0), 2.0, []
        for _ in range(self.levels):
            width = width / self.bins
            digit = jnp.clip(jnp.floor((action - low) / width), 0, self.bins - 1)
            found.append(digit.astype("int32"))
            low = low + digit * width
        return jnp.stack(found)

    def centres(self, digits: Int[Array, "level *shape"]) -> Float[Array, "more *shape"]:
        """The middle of what is being cut on each level, and of the last bin: the action that the bins stand for."""
        found = [jnp.zeros(digits.shape[1:])]
        for level, digit in enumerate(digits):
            found.append(self.into(found[-1], level, digit))
        return jnp.stack(found)

    def into(self, centre: Float[Array, "*shape"], level: int, digit: Int[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The middle of a bin of what has its middle in ``centre``."""
        return centre + (digit - (self.bins - 1) / 2) * (2.0 / self.bins ** (level + 1))


class CoarseValue(eqx.Module):
    """``Q(o, ·)`` of ``sequence`` actions: for each level, step and dimension the values of its bins.

    Layers are normalised and end in ``silu``; the last one is 0 at first. Without a sequence there is no recurrence.
    """

    encoder: Encoder
    layers: tuple[tuple[Linear, eqx.nn.LayerNorm], ...]
    cell: eqx.nn.GRUCell | None
    head: Linear
    grid: Grid
    shape: tuple[int, int] = eqx.field(static=True)
    space: Box = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], grid: Grid, sequence: int, key: Key[Array, ""]):
        assert isinstance(spec.action, Box)
        self.grid, self.space, self.shape = grid, spec.action, (sequence, math.prod(spec.action.shape))
        encoder_key, layer_key, cell_key = jax.random.split(key, 3)
        self.encoder = Encoder(spec.observation, encoder_key)
        sizes = self.encoder.size + sum(self.shape) + grid.levels, *hidden
        keys, units = jax.random.split(layer_key, len(hidden)), hidden[-1]
        given = zip(sizes[:-1], hidden, keys, strict=True)
        self.layers = tuple((Linear(a, b, uniform_fan_in, k), eqx.nn.LayerNorm(b)) for a, b, k in given)
        self.cell = eqx.nn.GRUCell(units, units, key=cell_key) if sequence > 1 else None
        self.head = Linear(units, self.shape[1] * grid.bins, lambda _, shape: jnp.zeros(shape), cell_key)

    def bins(
        self, encoded: Float[Array, " size"], level: int, centre: Float[Array, "step dimension"]
    ) -> Float[Array, "step dimension bin"]:
        """Values of the bins of one level, where ``centre`` is the middle of what is cut."""

        def read(step: Int[Array, ""], centre: Float[Array, " dimension"]) -> Float[Array, " units"]:
            marks = jax.nn.one_hot(step, self.shape[0]), jax.nn.one_hot(level, self.grid.levels)
            x = jnp.concatenate([encoded, centre, *marks])
            for layer, norm in self.layers:
                x = jax.nn.silu(norm(layer(x)))
            return x

        features = jax.vmap(read)(jnp.arange(self.shape[0]), centre)
        if self.cell is not None:
            features = _joined(self.cell, features)
        return jax.vmap(self.head)(features).reshape(*self.shape, self.grid.bins)

    def best(self, observation: PyTree, key: Key[Array, ""] | None = None) -> Float[Array, "step dimension"]:
        """The best actions, canonical, level by level; with a ``key`` bins that are as good as each other are drawn."""
        encoded, centre = self.encoder(observation), jnp.zeros(self.shape)
        for level in range(self.grid.levels):
            values = self.bins(encoded, level, centre)
            digit = jnp.argmax(values, axis=-1)
            if key is not None:
                drawn = jax.random.randint(jax.random.fold_in(key, level), self.shape, 0, self.grid.bins)
                digit = jnp.where(jnp.max(values, axis=-1) - jnp.min(values, axis=-1) < SAME, drawn, digit)
            centre = self.grid.into(centre, level, digit)
        return centre

    def __call__(
        self, observation: PyTree, actions: Float[Array, "step dimension"]
    ) -> Float[Array, "level step dimension"]:
        """Values of the bins in which actions lie, on every level."""
        encoded, digits = self.encoder(observation), self.grid.digits(actions)
        centres = self.grid.centres(digits)
        levels = range(self.grid.levels)
        values = jnp.stack([self.bins(encoded, level, centres[level]) for level in levels])
        return jnp.take_along_axis(values, digits[..., None], axis=-1)[..., 0]


def require_box(spec: EnvSpec, name: str) -> None:
    """Refuse what cannot be cut. Raises ``UserError``."""
    if not isinstance(spec.action, Box) or not np.isfinite(spec.action.bounds()).all():
        raise UserError(
            f"{name} cuts one bounded box of actions into bins, {spec.name} has {spec.action}: use dqn, ppo or a2c"
        )


def _joined(cell: eqx.nn.GRUCell, features: Float[Array, "step units"]) -> Float[Array, "step units"]:
    """The unit's state after each step."""

    def step(hidden: Array, x: Array) -> tuple[Array, Array]:
        hidden = cell(x, hidden)
        return hidden, hidden

    return jax.lax.scan(step, jnp.zeros(cell.hidden_size), features)[1]

"""Heads: from features to a distribution over any action space.

How continuous parts are treated is a small class of its own, :class:`Gaussian` or :class:`SquashedGaussian`;
discrete parts are categorical; trees are products. One head serves any mixture of them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.distributions import Categorical, Distribution, Normal, Product, SquashedNormal, multi_categorical
from thespis.core.errors import UserError
from thespis.core.keys import per_index
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Text, Tree, leaves
from thespis.nets.mlp import Initialiser, Linear


@runtime_checkable
class Continuous(Protocol):
    """How the distribution over a box is made from a net's outputs."""

    def width(self, space: Box) -> int:
        """Outputs needed of the net."""
        ...

    def free(self, space: Box) -> Array:
        """Parameters beside the net."""
        ...

    def build(self, space: Box, outputs: Array, free: Array) -> Any:
        """The distribution."""
        ...


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """Normal with a free log standard deviation that does not depend on the state (Schulman et al., 2015)."""

    log_std: float = 0.0

    def width(self, space: Box) -> int:
        """Outputs needed of the net."""
        return math.prod(space.shape)

    def free(self, space: Box) -> Array:
        """Parameters beside the net."""
        return jnp.full(space.shape, self.log_std)

    def build(self, space: Box, outputs: Array, free: Array) -> Normal:
        """The distribution."""
        return Normal(outputs.reshape(space.shape), free)


@dataclasses.dataclass(frozen=True)
class SquashedGaussian:
    """Squashed normal whose spread depends on the state (Haarnoja et al., 2018); needs bounded boxes."""

    lowest_log_std: float = -20.0
    highest_log_std: float = 2.0

    def width(self, space: Box) -> int:
        """Outputs needed of the net."""
        require_bounded(space)
        return 2 * math.prod(space.shape)

    def free(self, space: Box) -> Array:
        """Parameters beside the net: none."""
        return jnp.zeros(0)

    def build(self, space: Box, outputs: Array, free: Array) -> SquashedNormal:
        """The distribution."""
        mean, log_std = jnp.split(outputs, 2)
        log_std = jnp.clip(log_std, self.lowest_log_std, self.highest_log_std)
        return SquashedNormal(mean.reshape(space.shape), log_std.reshape(space.shape))

    def fits(self, space: Space) -> None:
        """Parts of an action that are no box are not its business."""

    def rise(self, weights: Float[Array, " k"], q: Float[Array, " k"], bonus: Float[Array, " k"]) -> Float[Array, ""]:
        """What the actor climbs in one view, of its candidates' weights, values and bonuses for entropy."""
        return jnp.sum(weights * (q + bonus))


def require_bounded(space: Box) -> None:
    """Refuse a box without bounds where an actor squashes its actions into them."""
    low, high = space.bounds()
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"this method squashes actions into their bounds, and {space} has an infinite one: give the "
            "action space finite bounds, or use ppo or a2c"
        )


class PolicyHead(eqx.Module):
    """One linear layer whose outputs are cut into the parts of the action space."""

    out: Linear
    free: tuple[Array, ...]
    space: Space = eqx.field(static=True)
    continuous: Continuous = eqx.field(static=True)

    def __init__(
        self,
        space: Space,
        size_in: int,
        key: Key[Array, ""],
        *,
        init: Initialiser,
        continuous: Continuous,
    ):
        self.space, self.continuous = space, continuous
        self.out = Linear(size_in, sum(self._width(part) for part in leaves(space)), init, key)
        self.free = tuple(continuous.free(part) for part in leaves(space) if isinstance(part, Box))

    def _width(self, part: Space) -> int:
        match part:
            case Discrete():
                return part.n
            case MultiDiscrete():
                return sum(part.nvec)
            case Box():
                return self.continuous.width(part)
            case Text():
                raise UserError("utterances need a language model: use a method such as grpo (thespis list methods)")
        raise ValueError(f"{part} is not a leaf of a space")

    def __call__(self, features: Float[Array, " size"], legal: PyTree = None) -> Any:
        """The distribution over one action; ``legal`` mirrors the action space (see ``core.records.View``)."""
        widths = [self._width(part) for part in leaves(self.space)]
        outputs = iter(jnp.split(self.out(features), np.cumsum(widths)[:-1]))
        free = iter(self.free)

        def build(space: Space, legal: Any) -> Any:
            match space:
                case Tree():
                    pairs = zip((part for _, part in space.parts), space.split(legal), strict=True)
                    return Product(tuple(build(part, mask) for part, mask in pairs), space)
                case Discrete():
                    return Categorical(next(outputs), legal)
                case MultiDiscrete():
                    return multi_categorical(space, next(outputs), legal)
                case Box():
                    return self.continuous.build(space, next(outputs), next(free))
                case _:
                    raise ValueError(f"{space} has no distribution")

        return build(self.space, legal)


def act_rows(one: Any, memory: Any, view: Any, key: Key[Array, ""]) -> Any:
    """Run ``one(memory, view, key)`` for every row, each with a key that does not depend on their number."""
    rows = jax.tree.leaves(view)[0].shape[0]
    return jax.vmap(one)(memory, view, per_index(key, rows))


def chances(policy: Distribution, *, greedy: bool) -> Float[Array, " n"]:
    """Of every choice; with ``greedy`` all on the likeliest. Raises ``UserError`` unless it is one discrete choice."""
    if not isinstance(policy, Categorical):
        raise UserError("only policies over one discrete choice can be read as probabilities")
    return jax.nn.one_hot(policy.mode(), policy.probs.size) if greedy else policy.probs

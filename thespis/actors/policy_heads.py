"""Policy heads: from features to a distribution over any action space.

How boxes are treated is a small class of its own, :class:`Gaussian` or :class:`SquashedGaussian`; discrete parts are
categorical; dicts and tuples are products. One head serves any mixture of them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.continuous_heads import ContinuousHead as ContinuousHead
from thespis.actors.continuous_heads import OnPolicyHead, SoftActorHead
from thespis.actors.distributions import (
    Categorical,
    Distribution,
    Normal,
    ProductDistribution,
    SquashedNormal,
    multi_categorical,
)
from thespis.actors.state_dependent_noise import (
    ExplorationNoise,
    HeadWithNoise,
    direct,
    init_noise,
    require_bounded,
)
from thespis.core.errors import UserError
from thespis.core.spaces import Box, CompositeSpace, Discrete, MultiDiscrete, Space, Text, leaf_spaces
from thespis.nets.mlp import Initializer, Linear
from thespis.runtime.keys import indexed_keys


@dataclasses.dataclass(frozen=True)
class Gaussian(OnPolicyHead):
    """Gaussian policy head: normal with a free log standard deviation (Schulman et al., 2015).

    The standard deviation does not depend on the state.
    """

    log_std_init: float = 0.0

    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``: its means."""
        return math.prod(space.shape)

    def init_free_params(self, space: Box, num_features: int) -> Array:
        """The initial log standard deviations."""
        return jnp.full(space.shape, self.log_std_init)

    def distribution(self, space: Box, outputs: Array, free_params: Array, features: Array) -> Normal:
        """Normal distribution with the network's mean and standard deviation."""
        return Normal(outputs.reshape(space.shape), free_params)


@dataclasses.dataclass(frozen=True)
class SquashedGaussian(SoftActorHead):
    """Squashed Gaussian policy head with a state-dependent standard deviation (Haarnoja et al., 2018).

    It needs bounded boxes.
    """

    log_std_min: float = -20.0
    log_std_max: float = 2.0

    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``: means and log standard deviations."""
        require_bounded(space)
        return 2 * math.prod(space.shape)

    def init_free_params(self, space: Box, num_features: int) -> Array:
        """Parameters outside the network: none."""
        return jnp.zeros(0)

    def distribution(self, space: Box, outputs: Array, free_params: Array, features: Array) -> SquashedNormal:
        """The squashed normal; log standard deviations are clipped to the limits."""
        mean, log_std = jnp.split(outputs, 2)
        log_std = jnp.clip(log_std, self.log_std_min, self.log_std_max)
        return SquashedNormal(mean.reshape(space.shape), log_std.reshape(space.shape))

    def check_space(self, space: Space) -> None:
        """Accept every action space: parts that are not boxes do not use this head."""

    def actor_objective(
        self, weights: Float[Array, " k"], q_values: Float[Array, " k"], entropy_bonus: Float[Array, " k"]
    ) -> Float[Array, ""]:
        """The actor's objective in one view, to be maximised, from each sample's weight, value and entropy bonus."""
        return jnp.sum(weights * (q_values + entropy_bonus))


class PolicyHead(eqx.Module):
    """Policy head: one linear layer whose outputs are split among the parts of the action space."""

    out: Linear
    free_params: tuple[Array, ...]
    space: Space = eqx.field(static=True)
    continuous_head: ContinuousHead = eqx.field(static=True)

    def __init__(
        self,
        space: Space,
        in_size: int,
        key: Key[Array, ""],
        *,
        init: Initializer,
        continuous_head: ContinuousHead,
    ):
        self.space, self.continuous_head = space, continuous_head
        self.out = Linear(in_size, sum(self._num_outputs(part) for part in leaf_spaces(space)), init, key)
        self.free_params = tuple(
            continuous_head.init_free_params(part, in_size) for part in leaf_spaces(space) if isinstance(part, Box)
        )

    def _num_outputs(self, part: Space) -> int:
        match part:
            case Discrete():
                return part.n
            case MultiDiscrete():
                return sum(part.nvec)
            case Box():
                return self.continuous_head.num_outputs(part)
            case Text():
                raise UserError("text actions need a language model: use a method such as grpo (thespis list methods)")
        raise ValueError(f"{part} is not a leaf of a space")

    def init_noise(self, n: int) -> ExplorationNoise | None:
        """The exploration noise of ``n`` fresh episodes; ``None`` if the head draws an independent one at each step."""
        head = self.continuous_head
        if not isinstance(head, HeadWithNoise) or not self.free_params:
            return None
        return init_noise(self.free_params, head.resample_interval, n)

    def __call__(
        self, features: Float[Array, " size"], action_mask: PyTree = None, noise: ExplorationNoise | None = None
    ) -> Any:
        """The distribution over one action; ``action_mask`` mirrors the action space (see ``core.records.View``).

        ``noise``: the exploration noise while acting, for a head that has one.
        """
        widths = [self._num_outputs(part) for part in leaf_spaces(self.space)]
        outputs = iter(jnp.split(self.out(features), np.cumsum(widths)[:-1]))
        free_params = iter(self.free_params)
        directions = iter(noise.directions if noise else ())

        def build(space: Space, legal: Any) -> Any:
            match space:
                case CompositeSpace():
                    pairs = zip((part for _, part in space.spaces), space.unpack(legal), strict=True)
                    return ProductDistribution(tuple(build(part, mask) for part, mask in pairs), space)
                case Discrete():
                    return Categorical(next(outputs), legal)
                case MultiDiscrete():
                    return multi_categorical(space, next(outputs), legal)
                case Box():
                    params = next(free_params)
                    policy = self.continuous_head.distribution(space, next(outputs), params, features)
                    return direct(policy, params, features, next(directions)) if noise else policy
                case _:
                    raise ValueError(f"{space} has no distribution")

        return build(self.space, action_mask)


def vmap_act(act_one: Any, memory: Any, view: Any, key: Key[Array, ""]) -> Any:
    """Run ``act_one(memory, view, key)`` for every row, with keys that do not depend on the number of rows."""
    rows = jax.tree.leaves(view)[0].shape[0]
    return jax.vmap(act_one)(memory, view, indexed_keys(key, rows))


def action_probs(policy: Distribution, *, greedy: bool) -> Float[Array, " n"]:
    """Probability of every choice; with ``greedy`` all of it on the most probable one.

    Raises ``UserError`` unless the action is one discrete choice.
    """
    if not isinstance(policy, Categorical):
        raise UserError("only policies over one discrete choice can be read as probabilities")
    return jax.nn.one_hot(policy.mode(), policy.probs.size) if greedy else policy.probs

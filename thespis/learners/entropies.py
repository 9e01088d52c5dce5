"""Whose randomness a soft actor is paid for: of all that it does, or of what matters most at the moment."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, leaves, shape_of
from thespis.learners.backup import Backup
from thespis.learners.soft import Candidates, candidates
from thespis.objectives.causes import effects_on_last


class PlainEntropy(eqx.Module):
    """Of all alike."""

    def init(self, spec: EnvSpec) -> PyTree:
        """Nothing is learnt."""
        return ()

    def draw(self, state: PyTree, distribution: Any, key: Key[Array, ""]) -> Candidates:
        """As the distribution itself draws them."""
        return candidates(distribution, key)

    def update(self, state: PyTree, data: Backup, rewards: Float[Array, " row"], index: Int[Array, ""]) -> PyTree:
        """Nothing is learnt."""
        return state


class Causes(eqx.Module):
    """Weights of the action's numbers, and what they are found from: observations, actions, rewards as they came."""

    weights: Float[Array, " action"]
    seen: Float[Array, "sample variable"]


class CausalEntropy(eqx.Module):
    r"""Of each number of an action as much as it causes reward (Ji et al., 2024, equation 4).

    .. math:: H_c(\pi(\cdot|s)) = -E\left[ \sum_i w_i \log \pi(a_i|s) \right], \quad w = d \, \mathrm{softmax}(B)

    with :math:`B_i` the direct effect of the :math:`i`-th of :math:`d` numbers on reward, found by DirectLiNGAM.
    Differs from the authors' code: effects are found among the transitions that were learnt from last, theirs among
    those that were collected last; and see :func:`thespis.objectives.causes.effects_on_last`.
    """

    every: int = eqx.field(static=True, default=10_000)
    """Updates between two looks for causes."""
    samples: int = eqx.field(static=True, default=10_000)
    """Transitions that each look is made at; all weights are one until there are as many."""

    def init(self, spec: EnvSpec) -> Causes:
        """Weights of one. Raises ``UserError`` for other actions than a box."""
        if not isinstance(spec.action, Box):
            raise UserError(f"causes are sought among the numbers of a box, not in {spec.action}: use PlainEntropy")
        numbers = math.prod(spec.action.shape)
        seen = sum(math.prod(shape_of(part)) for part in leaves(spec.observation))
        return Causes(jnp.ones(numbers), jnp.zeros((self.samples, seen + numbers + 1)))

    def draw(self, state: Causes, distribution: Any, key: Key[Array, ""]) -> Candidates:
        """As the distribution draws them, log-densities weighed number by number."""
        actions, weights, parts = distribution.candidates_in_parts(key)
        return actions, weights, parts.reshape(len(parts), -1) @ state.weights

    def update(self, state: Causes, data: Backup, rewards: Float[Array, " row"], index: Int[Array, ""]) -> Causes:
        """Rows are added in place of the oldest; now and then their causes are found."""
        columns = (*jax.tree.leaves(data.view.observation), data.action, rewards)
        rows = jnp.concatenate([x.reshape(len(rewards), -1).astype("float32") for x in columns], axis=1)
        places = (index * len(rows) + jnp.arange(len(rows))) % self.samples
        seen = state.seen.at[places].set(rows)
        # index is the same for all seeds, so under vmap this stays a branch
        due = ((index + 1) % self.every == 0) & ((index + 1) * len(rows) >= self.samples)
        numbers = state.weights.size

        def found() -> Float[Array, " action"]:
            return numbers * jax.nn.softmax(effects_on_last(seen.T)[-1 - numbers : -1])

        return Causes(jax.lax.cond(due, found, lambda: state.weights), seen)


Entropy = PlainEntropy | CausalEntropy

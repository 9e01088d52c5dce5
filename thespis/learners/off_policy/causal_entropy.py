"""Entropy bonuses of soft actor-critics: plain, or weighted by each action dimension's causal effect on reward.

The effects are found by causal discovery in a linear, non-Gaussian, acyclic model (DirectLiNGAM).

Source: Ji et al., 2024 (the weighted entropy); Shimizu et al., 2011 (DirectLiNGAM); Hyvärinen and Smith, 2013 (its
measure of independence); Hyvärinen, 1998 (approximate entropy).

Differs from the authors' code: see :class:`CausalEntropy` and :func:`causal_effects_on_last`.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, leaf_spaces, space_shape
from thespis.learners.off_policy.critic_updates import NStepBatch
from thespis.learners.off_policy.soft_actor_critic import ActionSamples, action_samples

EPSILON = 1e-8


def _standardize(x: Float[Array, " n"]) -> Float[Array, " n"]:
    return (x - jnp.mean(x)) / (jnp.std(x) + EPSILON)


def approximate_entropy(x: Float[Array, " n"]) -> Float[Array, ""]:
    """Approximate entropy of standardised samples in nats (Hyvärinen, 1998, with its constants)."""
    odd, even = jnp.mean(jnp.log(jnp.cosh(x))), jnp.mean(x * jnp.exp(-(x**2) / 2))
    return 0.5 * (1 + jnp.log(2 * jnp.pi)) - 79.047 * (odd - 0.37457) ** 2 - 7.4129 * even**2


def _residual(x: Float[Array, " n"], regressor: Float[Array, " n"]) -> Float[Array, " n"]:
    """The residual of a linear regression of ``x`` on ``regressor``."""
    centred = regressor - jnp.mean(regressor)
    return x - jnp.mean(x * centred) / (jnp.mean(centred**2) + EPSILON) * regressor


def _most_exogenous(x: Float[Array, "p n"], remaining: Bool[Array, " p"]) -> Int[Array, ""]:
    """The index among ``remaining`` of the variable that is most independent of its regressions' residuals."""
    x = jax.vmap(_standardize)(x)
    own = jax.vmap(approximate_entropy)(x)

    def independence(i):
        def entropy_gap(j):
            of_i, of_j = _standardize(_residual(x[i], x[j])), _standardize(_residual(x[j], x[i]))
            return own[j] + approximate_entropy(of_i) - own[i] - approximate_entropy(of_j)

        gaps = jax.lax.map(entropy_gap, jnp.arange(len(x)))
        return -jnp.sum(jnp.where(remaining & (jnp.arange(len(x)) != i), jnp.minimum(gaps, 0.0) ** 2, 0.0))

    return jnp.argmax(jnp.where(remaining, jax.lax.map(independence, jnp.arange(len(x))), -jnp.inf))


def causal_order(x: Float[Array, "p n"]) -> Int[Array, " p"]:
    """Positions of ``p`` variables in a causal order, causes first, from ``n`` samples of each.

    DirectLiNGAM (Shimizu et al., 2011): the variable that is most independent of the others' residuals comes first, its
    effect is removed from the others, and so on. The measure of independence is that of Hyvärinen and Smith (2013).
    """
    p = len(x)

    def step(place, carried):
        x, remaining, order = carried
        first = _most_exogenous(x, remaining)
        residuals = jax.vmap(lambda row: _residual(row, x[first]))(x)
        remaining = remaining & (jnp.arange(p) != first)
        return jnp.where(remaining[:, None], residuals, x), remaining, order.at[first].set(place)

    return jax.lax.fori_loop(0, p, step, (x, jnp.ones(p, bool), jnp.zeros(p, "int32")))[2]


def causal_effects_on_last(x: Float[Array, "p n"]) -> Float[Array, " p"]:
    """Direct linear effect of every variable on the last one: 0 where it does not precede it in causal order.

    Least squares on all variables that precede it. Differs from common code, whose regression is sparse (adaptive
    lasso).
    """
    order = causal_order(x)
    before = order < order[-1]
    x = x - jnp.mean(x, axis=1, keepdims=True)
    regressors = jnp.where(before[:, None], x, 0.0)
    gram = regressors @ regressors.T / x.shape[1] + jnp.diag(jnp.where(before, EPSILON, 1.0))
    return jnp.linalg.solve(gram, regressors @ x[-1] / x.shape[1])


class _PlainEntropy(eqx.Module):
    """Plain entropy of the policy, all action dimensions weighted alike."""

    def init(self, spec: EnvSpec) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def action_samples(self, state: PyTree, distribution: Any, key: Key[Array, ""]) -> ActionSamples:
        """Action samples with their log-probabilities."""
        return action_samples(distribution, key)

    def update(
        self, state: PyTree, batch: NStepBatch, rewards: Float[Array, " row"], update_index: Int[Array, ""]
    ) -> PyTree:
        """Return the state unchanged: nothing is learned."""
        return state


PLAIN_ENTROPY = _PlainEntropy()
"""What ``entropy=None`` does."""


class CausalEntropyState(eqx.Module):
    """Weights of the action dimensions, and the samples (observation, action, raw reward) they are estimated from."""

    action_weights: Float[Array, " action"]
    samples: Float[Array, "sample variable"]


class EntropyBonus(eqx.Module):
    """Slot: the entropy that a policy is rewarded for, from samples of its actions."""

    @abc.abstractmethod
    def init(self, spec: EnvSpec) -> Any:
        """The initial state, a tree of arrays. Raises ``UserError`` for action spaces that are not supported."""

    @abc.abstractmethod
    def action_samples(self, state: Any, distribution: Any, key: Key[Array, ""]) -> ActionSamples:
        """Action samples with their weights and (weighted) log-probabilities."""

    @abc.abstractmethod
    def update(self, state: Any, batch: NStepBatch, rewards: Float[Array, " row"], update_index: Int[Array, ""]) -> Any:
        """The state after a batch with these rewards."""


class CausalEntropy(EntropyBonus):
    r"""Entropy in which each action dimension is weighted by its causal effect on reward (Ji et al., 2024, equation 4).

    .. math:: H_c(\pi(\cdot|s)) = -E\left[ \sum_i w_i \log \pi(a_i|s) \right], \quad w = d \, \mathrm{softmax}(B)

    with :math:`B_i` the direct effect of the :math:`i`-th of :math:`d` dimensions on reward, estimated by DirectLiNGAM.
    Differs from the authors' code: effects are estimated from the transitions that were last learned from, theirs from
    those that were last collected; and see :func:`causal_effects_on_last`.
    """

    update_interval: int = eqx.field(static=True, default=10_000)
    """Updates between two estimates of the causal effects."""
    num_samples: int = eqx.field(static=True, default=10_000)
    """Transitions used for each estimate; all weights are 1 until there are as many."""

    def init(self, spec: EnvSpec) -> CausalEntropyState:
        """Weights of 1 and an empty sample buffer.

        Raises ``UserError`` unless the action space is a box.
        """
        if not isinstance(spec.action_space, Box):
            raise UserError(f"causal entropy needs a box of actions, not {spec.action_space}: use entropy=none")
        action_size = math.prod(spec.action_space.shape)
        observation_size = sum(math.prod(space_shape(part)) for part in leaf_spaces(spec.observation_space))
        return CausalEntropyState(
            jnp.ones(action_size), jnp.zeros((self.num_samples, observation_size + action_size + 1))
        )

    def action_samples(self, state: CausalEntropyState, distribution: Any, key: Key[Array, ""]) -> ActionSamples:
        """Action samples with log-probabilities weighted by dimension."""
        actions, weights, parts = distribution.action_samples_per_dim(key)
        return actions, weights, parts.reshape(len(parts), -1) @ state.action_weights

    def update(
        self, state: CausalEntropyState, batch: NStepBatch, rewards: Float[Array, " row"], update_index: Int[Array, ""]
    ) -> CausalEntropyState:
        """Add a batch in place of the oldest samples; re-estimate the weights every ``update_interval`` updates."""
        columns = (*jax.tree.leaves(batch.view.observation), batch.action, rewards)
        rows = jnp.concatenate([x.reshape(len(rewards), -1).astype("float32") for x in columns], axis=1)
        slots = (update_index * len(rows) + jnp.arange(len(rows))) % self.num_samples
        samples = state.samples.at[slots].set(rows)
        # update_index is the same for all seeds, so under vmap this stays a branch
        due = ((update_index + 1) % self.update_interval == 0) & ((update_index + 1) * len(rows) >= self.num_samples)
        action_size = state.action_weights.size

        def estimate_weights() -> Float[Array, " action"]:
            return action_size * jax.nn.softmax(causal_effects_on_last(samples.T)[-1 - action_size : -1])

        return CausalEntropyState(jax.lax.cond(due, estimate_weights, lambda: state.action_weights), samples)

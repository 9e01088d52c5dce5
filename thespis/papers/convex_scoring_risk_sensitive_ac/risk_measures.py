r"""Risk measures of an episode's total cost, each the minimum of a function over an auxiliary number (Han et al. 2025).

.. math:: \rho(Y) = \min_v h(E[f(Y, v)], v)

At a given :math:`v` the expectation of :meth:`score`, which is :math:`f`, is an ordinary objective: a cost at the end
of the episode, in a state that includes the cost so far. :meth:`outer_function` is :math:`h`, increasing in its first
argument; :meth:`best_auxiliary` is the best :math:`v` for a sample of costs. Costs are negated rewards.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number

Costs = Float[Array, " episode"]
Scalar = Float[Array, ""]


class RiskMeasure(eqx.Module):
    """Slot: a risk measure of costs, as the smallest expected score over an auxiliary number."""

    @abc.abstractmethod
    def project_auxiliary(self, auxiliary: Scalar) -> Scalar:
        """The nearest auxiliary number that is allowed."""

    @abc.abstractmethod
    def score(self, cost: Scalar, auxiliary: Scalar) -> Scalar:
        """Score of a cost."""

    @abc.abstractmethod
    def outer_function(self, mean: Scalar, auxiliary: Scalar) -> Scalar:
        """The risk, from the expected score."""

    @abc.abstractmethod
    def best_auxiliary(self, costs: Costs) -> Scalar:
        """The auxiliary number that makes the risk of a sample of costs smallest."""


class MeanCost(RiskMeasure):
    """Mean cost: the risk-neutral measure. The auxiliary number stays 0."""

    def project_auxiliary(self, auxiliary: Scalar) -> Scalar:
        """0, the only value allowed."""
        return jnp.zeros_like(auxiliary)

    def score(self, cost: Scalar, auxiliary: Scalar) -> Scalar:
        """Score of a cost: the cost, unchanged."""
        return cost

    def outer_function(self, mean: Scalar, auxiliary: Scalar) -> Scalar:
        """The identity: the expected score is the risk."""
        return mean

    def best_auxiliary(self, costs: Costs) -> Scalar:
        """The best auxiliary number: 0, which plays no part."""
        return jnp.zeros(())


class MeanVariance(RiskMeasure):
    """Mean-variance risk: the variance of the cost plus a weighted mean.

    The score is ``f(y, v) = mean_coef * y + (y - v)²``; the best ``v`` is the mean.
    """

    mean_coef: Number = 0.0
    """Weight of the mean cost."""

    def project_auxiliary(self, auxiliary: Scalar) -> Scalar:
        """The number itself: any value is allowed."""
        return auxiliary

    def score(self, cost: Scalar, auxiliary: Scalar) -> Scalar:
        """The squared distance from the auxiliary number, plus the weighted cost."""
        return self.mean_coef * cost + jnp.square(cost - auxiliary)

    def outer_function(self, mean: Scalar, auxiliary: Scalar) -> Scalar:
        """The identity: the expected score is the risk."""
        return mean

    def best_auxiliary(self, costs: Costs) -> Scalar:
        """The best auxiliary number: the mean cost."""
        return jnp.mean(costs)


class ExpectedShortfall(RiskMeasure):
    """Expected shortfall (CVaR), the mean of the worst costs: ``f(y, v) = v + max(y - v, 0) / (1 - level)``.

    Best at the quantile of ``level`` (Rockafellar and Uryasev 2000).
    """

    level: Number = 0.8
    """Share of the lowest costs that do not count, in [0, 1)."""

    def project_auxiliary(self, auxiliary: Scalar) -> Scalar:
        """The number itself: any value is allowed."""
        return auxiliary

    def score(self, cost: Scalar, auxiliary: Scalar) -> Scalar:
        """The auxiliary number plus the scaled excess of the cost over it."""
        return auxiliary + jnp.maximum(cost - auxiliary, 0.0) / (1.0 - self.level)

    def outer_function(self, mean: Scalar, auxiliary: Scalar) -> Scalar:
        """The identity: the expected score is the risk."""
        return mean

    def best_auxiliary(self, costs: Costs) -> Scalar:
        """The quantile: the smallest cost that at most ``1 - level`` of all exceed."""
        rank = jnp.ceil(self.level * costs.size).astype("int32") - 1
        return jnp.sort(costs)[jnp.clip(rank, 0, costs.size - 1)]


class EntropicVaR(RiskMeasure):
    r"""Entropic value at risk (Ahmadi-Javid 2012): :math:`\min_{v > 0} v \log(E[e^{Y/v}] / (1 - level))`.

    The score is :math:`v (e^{y/v} - 1)`, which for large :math:`v` is the cost; beyond 30 times :math:`v` it is linear.
    """

    level: Number = 0.8
    """Confidence level, as for the expected shortfall, which this measure bounds from above."""
    min_auxiliary: float = eqx.field(static=True, default=0.1)
    """Smallest auxiliary number."""
    max_auxiliary: float = eqx.field(static=True, default=100.0)
    """Largest auxiliary number."""

    def project_auxiliary(self, auxiliary: Scalar) -> Scalar:
        """The auxiliary number clipped to its bounds."""
        return jnp.clip(auxiliary, self.min_auxiliary, self.max_auxiliary)

    def score(self, cost: Scalar, auxiliary: Scalar) -> Scalar:
        """Exponential score of the cost, linear beyond 30 times the auxiliary number."""
        beyond = jnp.maximum(cost / auxiliary - 30.0, 0.0)
        return auxiliary * (jnp.expm1(cost / auxiliary - beyond) + beyond * jnp.exp(30.0))

    def outer_function(self, mean: Scalar, auxiliary: Scalar) -> Scalar:
        """The risk in units of cost."""
        return auxiliary * (jnp.log1p(mean / auxiliary) - jnp.log1p(-self.level))

    def best_auxiliary(self, costs: Costs) -> Scalar:
        """Golden-section search over the logarithm: the function is unimodal."""
        share = (5**0.5 - 1) / 2

        def risk(log_v: Scalar) -> Scalar:
            v = jnp.exp(log_v)
            return v * (jax.nn.logsumexp(costs / v) - jnp.log(costs.size) - jnp.log1p(-self.level))

        def narrow(_, span):
            low, high = span
            left, right = high - share * (high - low), low + share * (high - low)
            falls = risk(left) > risk(right)
            return jnp.where(falls, left, low), jnp.where(falls, high, right)

        span = jnp.log(jnp.float32(self.min_auxiliary)), jnp.log(jnp.float32(self.max_auxiliary))
        low, high = jax.lax.fori_loop(0, 40, narrow, span)
        return jnp.exp((low + high) / 2)


def estimate_risk(risk_measure: RiskMeasure, costs: Costs) -> Scalar:
    """Risk of a sample of costs, at its best auxiliary number."""
    v = risk_measure.best_auxiliary(costs)
    return risk_measure.outer_function(jnp.mean(jax.vmap(risk_measure.score, in_axes=(0, None))(costs, v)), v)

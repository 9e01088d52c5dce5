r"""Risks of an episode's whole cost, each the least of one function over an auxiliary number (Han et al. 2025).

.. math:: \rho(Y) = \min_v h(E[f(Y, v)], v)

At a given :math:`v` the expectation of :meth:`score`, which is :math:`f`, is an ordinary objective: a cost that falls
due at the end, of a state that knows what the episode has cost so far. :meth:`outer` is :math:`h`, increasing in its
first argument; :meth:`settle` the best :math:`v` of a sample of costs. Costs are rewards with their sign changed.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.learners.gradient import Number

Costs = Float[Array, " episode"]
Scalar = Float[Array, ""]


class Mean(eqx.Module):
    """None: the mean cost. The auxiliary number stays 0."""

    def within(self, v: Scalar) -> Scalar:
        """The auxiliary number that is allowed."""
        return jnp.zeros_like(v)

    def score(self, cost: Scalar, v: Scalar) -> Scalar:
        """The cost itself."""
        return cost

    def outer(self, mean: Scalar, v: Scalar) -> Scalar:
        """The mean itself."""
        return mean

    def settle(self, costs: Costs) -> Scalar:
        """0."""
        return jnp.zeros(())


class Variance(eqx.Module):
    """Variance, and the mean if that has weight: ``f(y, v) = mean * y + (y - v)²``, best at the mean."""

    mean: Number = 0.0
    """Weight of the mean cost."""

    def within(self, v: Scalar) -> Scalar:
        """Any."""
        return v

    def score(self, cost: Scalar, v: Scalar) -> Scalar:
        """The squared distance."""
        return self.mean * cost + jnp.square(cost - v)

    def outer(self, mean: Scalar, v: Scalar) -> Scalar:
        """The mean itself."""
        return mean

    def settle(self, costs: Costs) -> Scalar:
        """The mean."""
        return jnp.mean(costs)


class Shortfall(eqx.Module):
    """Expected shortfall, the mean of the worst costs: ``f(y, v) = v + max(y - v, 0) / (1 - level)``.

    Best at the quantile of ``level`` (Rockafellar and Uryasev 2000).
    """

    level: Number = 0.8
    """Share of costs that are not counted, in [0, 1)."""

    def within(self, v: Scalar) -> Scalar:
        """Any."""
        return v

    def score(self, cost: Scalar, v: Scalar) -> Scalar:
        """How far beyond."""
        return v + jnp.maximum(cost - v, 0.0) / (1.0 - self.level)

    def outer(self, mean: Scalar, v: Scalar) -> Scalar:
        """The mean itself."""
        return mean

    def settle(self, costs: Costs) -> Scalar:
        """The quantile: the least cost that no more than ``1 - level`` of all exceed."""
        at = jnp.ceil(self.level * costs.size).astype("int32") - 1
        return jnp.sort(costs)[jnp.clip(at, 0, costs.size - 1)]


class EntropicValue(eqx.Module):
    r"""Entropic value at risk (Ahmadi-Javid 2012): :math:`\min_{v > 0} v \log(E[e^{Y/v}] / (1 - level))`.

    The score is :math:`v (e^{y/v} - 1)`, which for large :math:`v` is the cost; beyond 30 times :math:`v` it is linear.
    """

    level: Number = 0.8
    """As that of the expected shortfall, which it bounds from above."""
    least: float = eqx.field(static=True, default=0.1)
    """Smallest auxiliary number."""
    most: float = eqx.field(static=True, default=100.0)
    """Largest."""

    def within(self, v: Scalar) -> Scalar:
        """What lies between the two."""
        return jnp.clip(v, self.least, self.most)

    def score(self, cost: Scalar, v: Scalar) -> Scalar:
        """Exponential in the cost."""
        beyond = jnp.maximum(cost / v - 30.0, 0.0)
        return v * (jnp.expm1(cost / v - beyond) + beyond * jnp.exp(30.0))

    def outer(self, mean: Scalar, v: Scalar) -> Scalar:
        """In units of cost again."""
        return v * (jnp.log1p(mean / v) - jnp.log1p(-self.level))

    def settle(self, costs: Costs) -> Scalar:
        """By golden sections of the logarithm: the function has one valley."""
        share = (5**0.5 - 1) / 2

        def risk(log_v: Scalar) -> Scalar:
            v = jnp.exp(log_v)
            return v * (jax.nn.logsumexp(costs / v) - jnp.log(costs.size) - jnp.log1p(-self.level))

        def narrower(_, span):
            low, high = span
            left, right = high - share * (high - low), low + share * (high - low)
            falls = risk(left) > risk(right)
            return jnp.where(falls, left, low), jnp.where(falls, high, right)

        span = jnp.log(jnp.float32(self.least)), jnp.log(jnp.float32(self.most))
        low, high = jax.lax.fori_loop(0, 40, narrower, span)
        return jnp.exp((low + high) / 2)


Risk = Mean | Variance | Shortfall | EntropicValue


def risk_of(risk: Risk, costs: Costs) -> Scalar:
    """What a sample of costs amounts to."""
    v = risk.settle(costs)
    return risk.outer(jnp.mean(jax.vmap(risk.score, in_axes=(0, None))(costs, v)), v)

r"""Regularizers of a deterministic actor: a loss beside the critic's value, such as cloning of recorded actions.

Behavior cloning as in TD3+BC: the actor :math:`\mu` minimizes

.. math:: -\frac{\alpha}{\frac 1 N \sum_i |Q(s_i, \mu(s_i))|} \; \frac 1 N \sum_i Q(s_i, \mu(s_i))
   \; + \; \frac 1 M \sum_{j} \| \mu(s_j) - a_j \|^2 / d

over the :math:`N` rows of a batch and those :math:`M` of them whose actions, of :math:`d` dimensions, are cloned; no
gradient flows through the divisor. With the Q-filter, a row is cloned only while the critic values the recorded action
higher than the actor's own.

Source: Fujimoto and Gu, 2021 (TD3+BC, arXiv:2106.06860), eqs. 3 to 5; cloning of demonstrations beside own replay,
and the Q-filter: Nair et al., 2018 (arXiv:1709.10089), section IV.

Differs from TD3+BC: observations are not standardized. From Nair et al.: the values are divided by their mean size, and
the squared error is a mean, not a sum.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.core.records import Number
from thespis.objectives.statistics import masked_mean


class ActorRegularizer(eqx.Module):
    """Slot: what a deterministic actor minimizes, given the critic's values and the recorded actions."""

    @abc.abstractmethod
    def actor_loss(
        self,
        values: Float[Array, " row"],
        actions: Float[Array, "row dim"],
        recorded_values: Float[Array, " row"],
        recorded_actions: Float[Array, "row dim"],
        alive: Bool[Array, " row"] | None,
        is_demo: Bool[Array, " row"],
    ) -> Float[Array, ""]:
        """The loss of the actor whose ``actions`` (canonical, in [-1, 1]) have these ``values``; lower is better.

        ``recorded_actions`` are those of the batch. ``alive``: rows that count (``None``: all). ``is_demo``: rows that
        come from demonstrations, which are all rows of a batch that has no source of that name.
        """


class BehaviorCloning(ActorRegularizer):
    """Behavior cloning of the recorded actions beside the critic's value (TD3+BC); of demonstrations alone, if any."""

    alpha: Number = 2.5
    """Weight of the value against the cloning loss; 0 is behavior cloning alone."""
    q_filter: bool = eqx.field(static=True, default=False)
    """Whether to clone only actions that the critic values higher than the actor's own."""

    def actor_loss(
        self,
        values: Float[Array, " row"],
        actions: Float[Array, "row dim"],
        recorded_values: Float[Array, " row"],
        recorded_actions: Float[Array, "row dim"],
        alive: Bool[Array, " row"] | None,
        is_demo: Bool[Array, " row"],
    ) -> Float[Array, ""]:
        """The weighted value, negated, plus the mean squared error to the cloned actions."""
        size = jax.lax.stop_gradient(masked_mean(jnp.abs(values), alive))
        weight = self.alpha / jnp.maximum(size, 1e-6)
        cloned = is_demo if alive is None else is_demo & alive
        if self.q_filter:
            cloned = cloned & (recorded_values > jax.lax.stop_gradient(values))
        error = jnp.mean(jnp.square(actions - recorded_actions), axis=-1)
        return masked_mean(error, cloned) - weight * masked_mean(values, alive)

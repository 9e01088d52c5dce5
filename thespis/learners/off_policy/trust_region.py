"""Trust regions of off-policy actors: KL penalties towards an earlier actor."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.actors.stochastic import StochasticActor
from thespis.core.records import Number, View


class _NoTrustRegion(eqx.Module):
    """No trust region: the actor moves freely."""

    def init(self, actor: StochasticActor) -> PyTree:
        """An empty state: no earlier actor is kept."""
        return ()

    def penalty(self, old_policy: PyTree, policy: Any, view: View, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """A loss of zero: there is no penalty."""
        return jnp.zeros(())

    def update(self, old_actor: PyTree, actor: PyTree, num_updates: Int[Array, ""]) -> PyTree:
        """An empty state: no earlier actor is kept."""
        return ()


NO_TRUST_REGION = _NoTrustRegion()
"""What ``trust_region=None`` does."""


class TrustRegion(eqx.Module):
    """Slot: the penalty for moving away from an earlier actor."""

    @abc.abstractmethod
    def init(self, actor: StochasticActor) -> PyTree:
        """The earlier actor that is kept, at first the initial one; ``()`` if none is kept."""

    @abc.abstractmethod
    def penalty(self, old_policy: Any, policy: Any, view: View, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """Penalty at one view; ``old_policy``: from a view to a distribution, ``alpha``: the entropy coefficient."""

    @abc.abstractmethod
    def update(self, old_actor: PyTree, actor: PyTree, num_updates: Int[Array, ""]) -> PyTree:
        """The earlier actor after ``num_updates`` updates."""


class MirrorDescentStep(TrustRegion):
    r"""Mirror-descent trust region: one problem for ``update_interval`` updates (Tomar et al. 2022, equation 17).

    In their code entropy is linearized at the actor with which the problem started, which leaves

    .. math:: (c - \alpha) \, KL(\pi \| \pi_k) + E_\pi[\alpha \log \pi - Q]
    """

    kl_coef: Number = 1.0
    """Their ``c``: one over the step size of mirror descent, in units of reward."""
    update_interval: int = eqx.field(static=True, default=1_000)
    """Updates on each problem."""

    def init(self, actor: StochasticActor) -> PyTree:
        """Copy of the initial actor."""
        return jax.tree.map(jnp.copy, actor)

    def penalty(
        self, old_policy: Callable[[View], Any], policy: Any, view: View, alpha: Float[Array, ""]
    ) -> Float[Array, ""]:
        """KL penalty at one view, with the weight reduced by the entropy coefficient ``alpha``."""
        return (self.kl_coef - alpha) * policy.kl(old_policy(view))

    def update(self, old_actor: PyTree, actor: PyTree, num_updates: Int[Array, ""]) -> PyTree:
        """Replace the old actor by the present one every ``update_interval`` updates."""
        return jax.lax.cond(num_updates % self.update_interval == 0, lambda: actor, lambda: old_actor)

"""What a preference of one conversation to another loses; arguments are log-ratios of policy and reference, summed."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from thespis.learners.gradient import Number
from thespis.objectives import preferences

Ratios = Float[Array, " pair"]


class Logistic(eqx.Module):
    """That of DPO (Rafailov et al. 2023)."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the smaller, the further the policy goes."""
    doubt: Number = 0.0
    """Probability that a label is the wrong way round, below 1/2."""

    def __call__(self, chosen: Ratios, rejected: Ratios) -> Ratios:
        """See :func:`thespis.objectives.preferences.dpo`."""
        return preferences.dpo(chosen, rejected, self.beta, self.doubt)


class Squared(eqx.Module):
    """That of IPO (Azar et al. 2023): it ends where the margin is ``1 / (2 beta)``, however certain the preference."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""

    def __call__(self, chosen: Ratios, rejected: Ratios) -> Ratios:
        """See :func:`thespis.objectives.preferences.ipo`."""
        return preferences.ipo(chosen, rejected, self.beta)


class Hinge(eqx.Module):
    """That of SLiC (Zhao et al. 2023): nothing is lost by a margin of ``1 / beta`` or more."""

    beta: Number = 0.1
    """One over the margin, above 0."""

    def __call__(self, chosen: Ratios, rejected: Ratios) -> Ratios:
        """See :func:`thespis.objectives.preferences.hinge`."""
        return preferences.hinge(chosen, rejected, self.beta)


Preference = Logistic | Squared | Hinge

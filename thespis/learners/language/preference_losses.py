"""Preference losses (DPO, IPO, hinge) on pairs of dialogues, from summed log-ratios of policy and reference."""

from __future__ import annotations

import abc

import equinox as eqx
from jaxtyping import Array, Float

from thespis.core.records import Number
from thespis.objectives import preferences

LogRatios = Float[Array, " pair"]


class PreferenceLoss(eqx.Module):
    """Slot: the loss of a preference between two dialogues."""

    @abc.abstractmethod
    def __call__(self, chosen: LogRatios, rejected: LogRatios) -> LogRatios:
        """Loss of each pair, from the summed log-ratios of policy and reference."""


class SigmoidLoss(PreferenceLoss):
    """DPO loss (Rafailov et al. 2023)."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the smaller, the further the policy may move."""
    label_smoothing: Number = 0.0
    """Probability that a preference label is flipped, below 1/2."""

    def __call__(self, chosen: LogRatios, rejected: LogRatios) -> LogRatios:
        """See :func:`thespis.objectives.preferences.dpo_loss`."""
        return preferences.dpo_loss(chosen, rejected, self.beta, self.label_smoothing)


class IPOLoss(PreferenceLoss):
    """IPO loss (Azar et al. 2023), with its minimum at a margin of ``1 / (2 beta)``, however certain the preference."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""

    def __call__(self, chosen: LogRatios, rejected: LogRatios) -> LogRatios:
        """See :func:`thespis.objectives.preferences.ipo_loss`."""
        return preferences.ipo_loss(chosen, rejected, self.beta)


class HingeLoss(PreferenceLoss):
    """SLiC hinge loss (Zhao et al. 2023), zero for a margin of ``1 / beta`` or more."""

    beta: Number = 0.1
    """Inverse of the margin, above 0."""

    def __call__(self, chosen: LogRatios, rejected: LogRatios) -> LogRatios:
        """See :func:`thespis.objectives.preferences.hinge_loss`."""
        return preferences.hinge_loss(chosen, rejected, self.beta)

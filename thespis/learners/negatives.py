"""Supervised learning from one's own answers, right and wrong: an objective beside those of the policy gradient."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.objectives.negatives import negative_aware
from thespis.objectives.policies import Number

Ids = Float[Array, "*axes"]


class ByFailures(eqx.Module):
    """The share of wrong answers: on what was sampled, the gradient of Dr. GRPO."""

    def __call__(self, rate: Ids) -> Ids:
        """``1 - rate``."""
        return 1.0 - rate


class ByOdds(eqx.Module):
    """The root of the odds of a wrong answer: on what was sampled, the gradient of GRPO (Chen et al. 2025, 4.1)."""

    def __call__(self, rate: Ids) -> Ids:
        """``sqrt((1 - rate) / rate)``."""
        return jnp.sqrt((1.0 - rate) / rate)


class NegativeAware(eqx.Module):
    """Likelihood of right answers, and of wrong ones by the policy that is implied to give them (NFT).

    Needs rewards of 0 and 1 at the end and ``credit=Whole(Mean)``: the share of right answers of a group is read from
    its advantages, which are ``1 - rate`` and ``-rate``. A group that is all right or all wrong teaches nothing.
    """

    weighting: ByFailures | ByOdds = ByFailures()
    """How much a question weighs: ByFailures or ByOdds."""
    negatives: Number = 1.0
    """Weight of wrong answers; 0 is fine-tuning on right ones alone (RFT)."""
    floor: Number = 1.0
    """The least value of the implied ratio whose logarithm is taken, in (0, 1]."""

    def __call__(self, log_prob: Ids, log_ratio: Ids, advantage: Ids) -> Ids:
        """See :func:`thespis.objectives.negatives.negative_aware`."""
        right, taught = advantage > 0, advantage != 0
        rate = jnp.where(taught, jnp.where(right, 1.0 - advantage, -advantage), 0.5)
        loss = self.weighting(rate) * negative_aware(log_ratio, right, rate, self.floor)
        return jnp.where(taught, jnp.where(right, 1.0, self.negatives) * loss, 0.0)

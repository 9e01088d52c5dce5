"""Losses of ids that were said: what each is to become, how many are weighed together, and what holds them back."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.objectives import groups
from thespis.objectives.policies import Number, kl_k3, policy_gradient, reverse_kl

Ids = Float[Array, "*axes"]


class Gradient(eqx.Module):
    """The policy gradient itself (Williams 1992): right for the policy that has sampled, so for one step on a batch."""

    def __call__(self, log_prob: Ids, log_ratio: Ids, advantage: Ids) -> Ids:
        """``-A log pi``."""
        return policy_gradient(log_prob, advantage)


class Clipped(eqx.Module):
    """The clipped ratio of each id (Schulman et al. 2017).

    With ``high`` above ``low`` unlikely ids can grow (Yu et al. 2025).
    """

    low: Number = 0.2
    """Largest fall of the ratio that still earns."""
    high: Number = 0.2
    """Largest rise of the ratio that still earns."""

    def __call__(self, log_prob: Ids, log_ratio: Ids, advantage: Ids) -> Ids:
        """``-min(rho A, clip(rho) A)``."""
        ratio = jnp.exp(log_ratio)
        return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - self.low, 1.0 + self.high) * advantage)


class OverTokens(eqx.Module):
    """The mean over all ids of the batch (Yu et al. 2025, DAPO)."""

    def __call__(self, losses: Float[Array, "row time"], real: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.groups.over_tokens`."""
        return groups.over_tokens(losses, real)


class OverAnswers(eqx.Module):
    """The mean over conversations of the mean over their ids (Shao et al. 2024, GRPO)."""

    def __call__(self, losses: Float[Array, "row time"], real: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.groups.over_answers`."""
        return groups.over_answers(losses, real)


class OverBudget(eqx.Module):
    """The sum over a constant, the ids that a conversation may have (Liu et al. 2025, Dr. GRPO)."""

    def __call__(self, losses: Float[Array, "row time"], real: Bool[Array, "row time"]) -> Float[Array, ""]:
        """See :func:`thespis.objectives.groups.over_budget`."""
        return groups.over_budget(losses, real, float(losses.shape[1]))


class Unheld(eqx.Module):
    """No reference is kept."""

    held: ClassVar[bool] = False

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids) -> Ids:
        """Nothing."""
        return jnp.zeros_like(log_prob)


class Held(eqx.Module):
    """A penalty on KL to the model that the policy began as: of each id's distribution, with an unbiased gradient.

    What an id does to the divergence of later ones is not in it.
    """

    weight: Number = 0.01
    """In units of advantage."""

    held: ClassVar[bool] = True

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids) -> Ids:
        """See :func:`thespis.objectives.policies.reverse_kl`."""
        return self.weight * reverse_kl(log_prob, reference, log_prob - log_ratio)


class HeldByK3(eqx.Module):
    """The penalty of GRPO (Shao et al. 2024, equation 4). **Biased**: its gradient is that of the other direction."""

    weight: Number = 0.04
    """In units of advantage."""

    held: ClassVar[bool] = True

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids) -> Ids:
        """See :func:`thespis.objectives.policies.kl_k3`."""
        return self.weight * kl_k3(reference - log_prob)


Objective = Gradient | Clipped
Divisor = OverTokens | OverAnswers | OverBudget
Reference = Unheld | Held | HeldByK3

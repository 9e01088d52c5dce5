"""Losses of ids that were said: what each is to become, how many are weighed together, and what holds them back."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.learners.negatives import NegativeAware
from thespis.objectives import groups
from thespis.objectives.policies import Number, kl_k3, policy_gradient, ppo_clip, reverse_kl

Ids = Float[Array, "*axes"]


class Gradient(eqx.Module):
    """The policy gradient itself (Williams 1992): right for the policy that has sampled, so for one step on a batch."""

    def __call__(self, log_prob: Ids, log_ratio: Ids, advantage: Ids) -> Ids:
        """``-A log pi``."""
        return policy_gradient(log_prob, advantage)


class EachId(eqx.Module):
    """Every id has a ratio of its own."""

    def __call__(self, log_ratio: Ids) -> Ids:
        """As they are."""
        return log_ratio


class EachTurn(eqx.Module):
    """An utterance is one action (Chen et al. 2025, LOOP)."""

    def __call__(self, log_ratio: Ids) -> Ids:
        """The product of an utterance's ratios; through each id flows its own gradient."""
        return _together(log_ratio, (2,))


class EachTalk(eqx.Module):
    """All that was said in a conversation is one action (Chen et al. 2025, LOOP)."""

    def __call__(self, log_ratio: Ids) -> Ids:
        """The product of a conversation's ratios; through each id flows its own gradient."""
        return _together(log_ratio, (0, 2))


def _together(log_ratio: Float[Array, "time row utterance"], axes: tuple[int, ...]) -> Ids:
    """Every id with the sum over ``axes`` (0 where nothing was said), whose gradient is the sum's over all of them."""
    total = log_ratio.sum(axis=axes, keepdims=True)
    return log_ratio + jax.lax.stop_gradient(total - log_ratio)


class Clipped(eqx.Module):
    """The clipped ratio of each id (Schulman et al. 2017), or of ids that are one action together.

    With ``high`` above ``low`` unlikely ids can grow (Yu et al. 2025).
    """

    low: Number = 0.2
    """Largest fall of the ratio that still earns."""
    high: Number = 0.2
    """Largest rise of the ratio that still earns."""
    shared: EachId | EachTurn | EachTalk = EachId()
    """What has a ratio: EachId, EachTurn or EachTalk."""

    def __call__(self, log_prob: Ids, log_ratio: Ids, advantage: Ids) -> Ids:
        """See :func:`thespis.objectives.policies.ppo_clip`."""
        return ppo_clip(self.shared(log_ratio), advantage, self.low, self.high)


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

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids, index: Any) -> Ids:
        """Nothing."""
        return jnp.zeros_like(log_prob)


class Held(eqx.Module):
    """A penalty on KL to the model that the policy began as: of each id's distribution, with an unbiased gradient.

    What an id does to the divergence of later ones is not in it.
    """

    weight: Number = 0.01
    """In units of advantage."""

    held: ClassVar[bool] = True

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids, index: Any) -> Ids:
        """See :func:`thespis.objectives.policies.reverse_kl`."""
        return self.weight * reverse_kl(log_prob, reference, log_prob - log_ratio)


class HeldByK3(eqx.Module):
    """The penalty of GRPO (Shao et al. 2024, equation 4). **Biased**: its gradient is that of the other direction."""

    weight: Number = 0.04
    """In units of advantage."""

    held: ClassVar[bool] = True

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids, index: Any) -> Ids:
        """See :func:`thespis.objectives.policies.kl_k3`."""
        return self.weight * kl_k3(reference - log_prob)


class HeldFirst(eqx.Module):
    """The penalty of :class:`Held`, with a larger weight on first utterances for the first ``until`` updates.

    So later utterances learn to better what the model said before it learnt (Kumar et al. 2024, SCoRe: stage I).
    """

    weight: Number = 0.01
    """Of every id, in units of advantage: their beta 1."""
    pinned: Number = 0.1
    """Of first utterances in the first stage: their beta 2."""
    until: int = eqx.field(static=True, default=100)
    """Updates of the first stage."""

    held: ClassVar[bool] = True

    def __call__(self, log_prob: Ids, log_ratio: Ids, reference: Ids, index: Any) -> Ids:
        """As :class:`Held`, by turns: ``[time, row, utterance]``."""
        first = (jnp.arange(log_prob.shape[0]) == 0) & (index < self.until)
        weight = jnp.where(first, self.pinned, self.weight)[:, None, None]
        return weight * reverse_kl(log_prob, reference, log_prob - log_ratio)


Objective = Gradient | Clipped | NegativeAware
Divisor = OverTokens | OverAnswers | OverBudget
Reference = Unheld | Held | HeldByK3 | HeldFirst
"""``index`` counts updates."""

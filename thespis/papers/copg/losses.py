r"""Policy gradients on responses of another policy, without importance weights: the rivals of CoPG.

The gradient of a response is :math:`-(R(y) - b) \nabla \log \pi(y)` with the regularized reward :math:`R(y) = r(y) -
\beta \log \frac{\pi(y)}{\pi_{ref}(y)}`, through which no gradient flows. It is right if the policy itself has sampled,
whatever the baseline :math:`b`. Of other responses it is right for one baseline, the mean of :math:`R` over the
responses that it is learned from. The other response of a pair is a sample of that: with :math:`b = R(y')` for
:math:`y` and :math:`R(y)` for :math:`y'` it is CoPG's gradient, and that of
:class:`~thespis.learners.language.preference_losses.RegressionLoss` divided by :math:`2 \beta`.

Source: Flet-Berliac et al., 2024, equations 18 to 24.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores


class OffPolicyGradientLoss(PreferenceLoss):
    """Policy gradient without a baseline, on both responses of each pair, whoever sampled them."""

    beta: Number = 0.1
    """Weight of KL to the reference, at least 0."""

    @property
    def orders_pairs(self) -> bool:
        """No: the loss reads returns."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Float[Array, " pair"]:
        """Policy-gradient loss of both responses."""
        return _surrogate(chosen, self.beta, 0.0) + _surrogate(rejected, self.beta, 0.0)


class ValueBaselineLoss(PreferenceLoss):
    """Policy gradient of the second response of each pair, with the value of the policy as baseline.

    The first responses must be the policy's own, and the second ones may be anyone's: ``online-dpo`` with
    ``opponent_weight=1`` has those of the reference. Own responses give an unbiased estimate of the value, and nothing
    else is learned from them.
    """

    beta: Number = 0.1
    """Weight of KL to the reference, at least 0."""
    pairs_per_prompt: int = eqx.field(static=True, default=1)
    """Pairs with the same prompt, one after the other: half of ``feed.group_size``. The value is their mean return."""

    @property
    def orders_pairs(self) -> bool:
        """No: the first response is the policy's own."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Float[Array, " pair"]:
        """Policy-gradient loss of the second response."""
        values = chosen.returns.reshape(-1, self.pairs_per_prompt).mean(axis=1)
        return _surrogate(rejected, self.beta, jnp.repeat(values, self.pairs_per_prompt))


def _surrogate(
    responses: ResponseScores, beta: Number, baseline: Float[Array, " pair"] | float
) -> Float[Array, " pair"]:
    """A loss with the gradient of policy gradients, of responses with a regularized reward."""
    advantages = responses.returns - beta * responses.log_ratio - baseline
    return -jax.lax.stop_gradient(advantages) * responses.log_prob

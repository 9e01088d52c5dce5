r"""iREPO's loss: the difference of implicit rewards is fitted to the logit of the annotators' preference.

.. math:: \left(\log \frac{p}{1 - p} - \beta (h_1 - h_2)\right)^2, \qquad h = \log \frac{\pi(y)}{\pi_{ref}(y)}

:math:`p` is the share of annotators who prefer the first response. If their preferences follow Bradley and Terry, its
logit is the difference of their rewards, and the minimum over all pairs is the policy that maximizes that reward with a
penalty :math:`\beta` on KL to the reference.

Source: Le et al., 2024, section 3. Differs: shares are clipped, as the logit of a unanimous vote is infinite.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Number
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores
from thespis.objectives import preferences


class IREPOLoss(PreferenceLoss):
    """iREPO loss (Le et al. 2024): log-ratios are fitted to the logits of soft preference labels."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    min_share: Number = 0.05
    """Least share of annotators for either response, above 0 and below 1/2: shares are clipped to it."""

    @property
    def orders_pairs(self) -> bool:
        """No: the loss reads returns, which are the shares of annotators."""
        return False

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Float[Array, " pair"]:
        """Squared error of each pair."""
        share = jnp.clip(chosen.returns, self.min_share, 1 - self.min_share)
        logit = jnp.log(share) - jnp.log1p(-share)
        return preferences.regression_loss(chosen.log_ratio, rejected.log_ratio, logit, self.beta)

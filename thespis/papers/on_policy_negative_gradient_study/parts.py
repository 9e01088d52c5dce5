"""Maximum likelihood of preferred responses, as a preference loss without a negative gradient.

With ``online-dpo`` it is an on-policy best-of-two, and with pairs that another policy sampled Pref-FT.

Source: Tajwar et al., 2024, section 3.
"""

from __future__ import annotations

from jaxtyping import Array, Float

from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores


class LikelihoodLoss(PreferenceLoss):
    """Maximum likelihood of preferred responses: rejected ones have no gradient (Pref-FT, online best of n)."""

    def __call__(self, chosen: ResponseScores, rejected: ResponseScores) -> Float[Array, " pair"]:
        """Negative log-likelihood of the chosen dialogue of each pair."""
        return -chosen.log_prob

r"""Direct preference optimization: fits the policy to preference pairs, with its log-ratio to a reference as reward.

Minimizes :math:`-\log \sigma(\beta (h_w - h_l))`, with :math:`h = \log \pi(y|x) - \log \pi_{ref}(y|x)` summed over all
response tokens of a dialogue; the environment's tokens have the same probability under both and are not part of it.

Source: Rafailov et al., 2023, equation 7. Other losses of pairs (``loss_type``) are in
:mod:`thespis.learners.language.preference_losses`.

Differs: a pair may be any two dialogues with the same initial state and different returns.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation
from thespis.data.feeds import PreferencePairs
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder


class DPO(LMOffline):
    """Direct preference optimization: offline preference learning without a reward model, for multi-turn dialogues."""

    loss_type: PreferenceLoss = SigmoidLoss()
    """Preference loss: SigmoidLoss (DPO), IPOLoss, HingeLoss (SLiC), RobustLoss, EXOLoss, SPPOLoss, RegressionLoss
    (REBEL), RPOLoss (with likelihood), or one without a reference model: SimPOLoss, ORPOLoss, CPLLoss."""
    feed: PreferencePairs = eqx.field(static=True, default=PreferencePairs())
    """Pairs of dialogues: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "dpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Direct Preference Optimization", "Rafailov et al.", 2023, "arXiv:2305.18290"),
    )
    details: ClassVar[tuple[str, ...]] = ("log-ratios are sums over tokens, but where the loss says otherwise",)

    @property
    def uses_reference(self) -> bool:
        """Whether the loss does."""
        return self.loss_type.needs_reference

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Preference loss of the batch; rows alternate between the chosen and the rejected dialogue of a pair."""
        dialogues = batch.dialogues
        log_probs = dialogues.response_log_probs(model, self.sampler)[0]
        scores = ResponseScores.from_dialogues(dialogues, log_probs, batch.ref_log_probs)
        chosen, rejected = (jax.tree.map(lambda x, i=i: x[i::2], scores) for i in range(2))
        metrics = {
            "accuracy": jnp.mean(chosen.log_ratio > rejected.log_ratio, dtype="float32"),
            "chosen_ratio": chosen.log_ratio.mean(),
            "rejected_ratio": rejected.log_ratio.mean(),
        }
        return self.loss_type(chosen, rejected).mean(), metrics

"""Supervised fine-tuning: maximum likelihood of the responses in a dataset of dialogues.

Tokens of the environment or of the chat template are context and not learned. With ``min_return`` only dialogues with
at least that return are learned: with samples of the model itself that is rejection sampling (Yuan et al., 2023), or
filtered behavior cloning. With ``loss_mask=EnvTokensFirst`` the model learns to predict the environment's tokens before
it imitates (Zhang et al., 2025).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.loss_masks import LossMask, ResponseTokens
from thespis.learners.language.policy_losses import LossReduction, TokenMean
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean


class SFT(LMOffline):
    """Supervised fine-tuning: maximizes the likelihood of responses in a dataset of dialogues."""

    model: str = eqx.field(static=True, default="blank")
    """Initial parameters: blank, tiny, or the directory of a checkpoint."""
    loss_reduction: LossReduction = TokenMean()
    """Average of the token losses: TokenMean, SequenceMean or FixedLength."""
    min_return: Number = -float("inf")
    """Minimum return; dialogues that returned less are left out."""
    loss_mask: LossMask = ResponseTokens()
    """Tokens that are learned: ResponseTokens, or EnvTokensFirst (those of the environment before them)."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has), max_tokens."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_reference: ClassVar[bool] = False
    name: ClassVar[str] = "sft"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training language models to follow instructions", "Ouyang et al.", 2022, "arXiv:2203.02155"),
    )
    details: ClassVar[tuple[str, ...]] = ("tokens of the environment are not learned",)

    @property
    def uses_returns(self) -> bool:
        """Whether dialogues are selected by their returns: with ``min_return``."""
        return bool(self.min_return > -float("inf"))

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Negative log-likelihood of the unmasked tokens."""
        selected = batch.dialogues.returns >= self.min_return
        log_probs, mask = self.loss_mask(model, self.sampler, batch, selected)
        metrics = {
            "negative_log_likelihood": masked_mean(-log_probs, mask),
            "learnt": jnp.mean(selected, dtype="float32"),
        }
        return self.loss_reduction(-log_probs, mask), metrics

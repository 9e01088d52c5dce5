r"""Kahneman-Tversky optimization: offline alignment from dialogues labeled good or bad, without pairs.

A good dialogue has the loss :math:`\lambda_D (1 - \sigma(\beta (h - z)))`, a bad one :math:`\lambda_U (1 - \sigma(\beta
(z - h)))`, with :math:`h = \log \pi(y|x) - \log \pi_{ref}(y|x)` of the whole dialogue and :math:`z` the divergence
between policy and reference, estimated on responses paired with the wrong prompts, never below 0 and without gradient.

Source: Ethayarajh et al., 2024, equations 7 and 8.

Differs: of a dialogue with several turns one is drawn for :math:`z`, with the response of the next dialogue of the
batch at that turn, and counts for all of its turns.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.dialogues import single_turn_dialogues, sum_over_tokens
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import kto_loss
from thespis.objectives.statistics import masked_mean


class KTO(LMOffline):
    """Kahneman-Tversky optimization: offline alignment from unpaired good and bad multi-turn dialogues."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    desirable_weight: Number = 1.0
    """Weight of good dialogues."""
    undesirable_weight: Number = 1.0
    """Weight of bad dialogues."""
    desirable_threshold: Number = 0.0
    """Return above which a dialogue is good."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "kto"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "KTO: Model Alignment as Prospect Theoretic Optimization", "Ethayarajh et al.", 2024, "arXiv:2402.01306"
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("the reference point is estimated on responses to other prompts",)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Mean KTO loss over the dialogues of the batch."""
        dialogues = batch.dialogues
        ratio = sum_over_tokens(
            dialogues.response_log_probs(model, self.sampler)[0] - batch.ref_log_probs, dialogues.response_mask
        )
        good, point = dialogues.returns > self.desirable_threshold, self._reference_point(model, batch)
        losses = kto_loss(ratio, good, self.beta, point, (self.desirable_weight, self.undesirable_weight))
        metrics = {"good_ratio": masked_mean(ratio, good), "bad_ratio": masked_mean(ratio, ~good), "point": point}
        return losses.mean(), metrics

    def _reference_point(self, model: Decoder, batch: OfflineBatch) -> Float[Array, ""]:
        """Divergence estimated on the responses of other dialogues; 0 in a batch without other responses."""
        dialogues = batch.dialogues
        prompts, turn, rows = batch.sample_turn()
        response_mask = dialogues.response_mask[turn, jnp.roll(rows, -1)]
        responses = jnp.where(response_mask, dialogues.responses[turn, jnp.roll(rows, -1)], -1)
        mismatched = single_turn_dialogues(prompts, responses, response_mask[:, 0])
        model = jax.lax.stop_gradient(model)
        ratio = (
            mismatched.response_log_probs(model, self.sampler)[0]
            - mismatched.response_log_probs(batch.reference, self.sampler)[0]
        )
        sums = sum_over_tokens(ratio, mismatched.response_mask) * dialogues.alive.sum(axis=0)
        return jnp.maximum(masked_mean(sums, mismatched.alive[0]), 0.0)

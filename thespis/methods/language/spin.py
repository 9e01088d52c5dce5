r"""Self-play fine-tuning: prefers the dataset's responses to responses of an earlier version of the model.

.. math:: -\log \sigma(\beta (h(y) - h(y'))), \qquad h(y) = \log \pi(y|x) - \log \pi_t(y|x), \quad y' \sim \pi_t(y'|x)

The opponent :math:`\pi_t` is the model as it was at the last synchronization. Nothing is left to learn where the
model's responses are those of the dataset.

Applied turn by turn to an expert's dialogues, this is the implicit reward of StepAgent (Deng et al., 2024). Both papers
begin with supervised fine-tuning on the same dialogues: ``num_sft_updates``.

Source: Chen et al., 2024, equation 4.7.

Differs: of a dialogue with several turns one is drawn; the opponent's responses are sampled anew in every update.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.actors.lm_policy import generate_responses
from thespis.core.records import Citation
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold


class SPIN(LMOffline):
    """Self-play fine-tuning: prefers a dataset's responses to those of an earlier model, for multi-turn dialogues."""

    loss_type: PreferenceLoss = SigmoidLoss()
    """Preference loss on log-ratios: SigmoidLoss, IPOLoss, HingeLoss, and others that ``dpo`` takes."""
    ref_sync_interval: int = eqx.field(static=True, default=200)
    """Updates between synchronizations of the opponent with the model; 0: the opponent never changes."""
    num_sft_updates: int = eqx.field(static=True, default=0)
    """Updates of supervised fine-tuning before all others; a multiple of ref_sync_interval, so that the first opponent
    is the fine-tuned model."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = False
    name: ClassVar[str] = "spin"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Self-Play Fine-Tuning Converts Weak Language Models to Strong Language Models",
            "Chen et al.",
            2024,
            "arXiv:2401.01335",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("the opponent's responses are sampled anew in every update",)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Preference loss on one sampled turn of each dialogue; at first the negative log-likelihood of all turns."""
        prompts, turn, rows = batch.sample_turn()
        alive = batch.dialogues.alive[turn, rows]
        opponent_responses = generate_responses(
            batch.reference, self.sampler, batch.dialogue_spec, prompts, fold(batch.key, "opponent")
        )

        def scores(responses: Array) -> ResponseScores:
            dialogues: Dialogues = single_turn_dialogues(prompts, responses, alive)
            log_probs, ref_log_probs = (
                dialogues.response_log_probs(source, self.sampler)[0] for source in (model, batch.reference)
            )
            return ResponseScores.from_dialogues(dialogues, log_probs, ref_log_probs)

        dataset, opponent = scores(batch.dialogues.responses[turn, rows]), scores(opponent_responses)
        metrics = {
            "accuracy": jnp.mean(dataset.log_ratio > opponent.log_ratio, dtype="float32"),
            "margin": jnp.mean(dataset.log_ratio - opponent.log_ratio),
        }
        loss = self.loss_type(dataset, opponent).mean()
        if self.num_sft_updates:
            log_probs = batch.dialogues.response_log_probs(model, self.sampler)[0]
            sft_loss = -masked_mean(log_probs, batch.dialogues.response_mask)
            loss = jnp.where(batch.update_index < self.num_sft_updates, sft_loss, loss)
        return loss, metrics

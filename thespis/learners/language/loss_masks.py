"""Loss masks of supervised fine-tuning: which tokens of a dialogue are learned, responses or the environment's."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import flatten_turns
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.nets.decoder import Decoder

MaskedLogProbs = tuple[Float[Array, "row id"], Bool[Array, "row id"]]
"""Log-probabilities, and which of them are learned."""


class LossMask(eqx.Module):
    """Slot: which tokens of dialogues are learned in supervised fine-tuning."""

    @abc.abstractmethod
    def __call__(
        self, model: Decoder, sampler: TemperatureSampler, batch: OfflineBatch, row_mask: Bool[Array, " row"]
    ) -> MaskedLogProbs:
        """Log-probabilities of tokens, and which are learned; ``row_mask``: dialogues whose responses may be."""


class ResponseTokens(LossMask):
    """Loss mask of response tokens only."""

    def __call__(
        self, model: Decoder, sampler: TemperatureSampler, batch: OfflineBatch, row_mask: Bool[Array, " row"]
    ) -> MaskedLogProbs:
        """Log-probabilities of response tokens; those in rows of ``row_mask`` are learned."""
        dialogues = batch.dialogues
        log_probs = dialogues.response_log_probs(model, sampler)[0]
        return flatten_turns(log_probs), flatten_turns(dialogues.response_mask & row_mask[:, None])


class EnvTokensFirst(LossMask):
    """Loss mask: the environment's tokens for the first ``num_env_token_updates``, then responses (Zhang et al. 2025).

    So the policy is at first a world model: it predicts as text what follows an action. Of a truncated dialogue, such
    as a branch with another response, only the environment's last reply is learned, and no response. Differs: the
    environment's replies to the demonstrator are predicted, too.
    """

    num_env_token_updates: int = eqx.field(static=True, default=100)
    """Updates on the environment's tokens."""

    def __call__(
        self, model: Decoder, sampler: TemperatureSampler, batch: OfflineBatch, row_mask: Bool[Array, " row"]
    ) -> MaskedLogProbs:
        """Environment tokens in all dialogues; responses in dialogues of ``row_mask`` that were not truncated."""
        dialogues = batch.dialogues
        env_mask = dialogues.env_token_mask(dialogues.alive & (dialogues.is_last_turn | ~dialogues.truncated))
        response_mask = dialogues.response_token_mask(dialogues.alive & row_mask & ~dialogues.truncated)
        loss_mask = jnp.where(batch.update_index < self.num_env_token_updates, env_mask, response_mask)
        return dialogues.transcript_log_probs(model, sampler), loss_mask

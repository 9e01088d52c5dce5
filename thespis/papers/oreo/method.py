r"""OREO (offline reasoning optimization): policy and soft-value critic fitted to path consistency on dialogues.

The optimal policy under a KL penalty and its soft value satisfy, from every step on, :math:`V(s_t) = R_t - \beta
\sum_{i \ge t} h_i` with :math:`h_i = \log \pi(a_i|s_i) - \log \pi_{ref}(a_i|s_i)` and :math:`R_t` the reward-to-go. The
critic minimizes the squared difference; so does the policy, each step by its own :math:`h_t` with later ones fixed,
plus a penalty :math:`\alpha` on its divergence from the reference:

.. math:: (V(s_t) - R_t + \beta h_t + \beta \, \mathrm{fixed}[\sum_{i > t} h_i])^2 + \alpha \tfrac12 h_t^2

Source: Wang et al., 2024, section 4 and its code, whose beta and alpha these are. ``critic.turn_level`` makes turns the
steps, instead of tokens.

Differs: the critic is a linear head on a decoder of its own; the divergence is estimated at the response tokens, by
:math:`\tfrac12 h^2`, theirs is summed over the vocabulary; all steps have equal weight, where theirs gives equal weight
to dialogues.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.dialogues import sum_from_token
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.response_critics import PathConsistencyCritic, SoftValueCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.policy_losses import kl_k2
from thespis.objectives.statistics import masked_mean


class OREO(LMOffline):
    """OREO: offline RL of language models by path consistency between policy and soft value, for dialogues."""

    critic: PathConsistencyCritic = SoftValueCritic()
    """Soft-value critic: beta, turn_level (whether steps are turns), learning_rate."""
    kl_coef: Number = 0.01
    """Alpha: coefficient of the divergence from the reference in the policy loss."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "oreo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Offline Reinforcement Learning for LLM Multi-Step Reasoning", "Wang et al.", 2024, "arXiv:2412.16145"
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("the critic has its own decoder",)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Squared inconsistency over steps, plus the KL penalty."""
        dialogues, beta = batch.dialogues, self.critic.beta
        ratio = jnp.where(
            dialogues.response_mask, dialogues.response_log_probs(model, self.sampler)[0] - batch.ref_log_probs, 0.0
        )
        step_ratio = ratio.sum(axis=-1, keepdims=True) if self.critic.turn_level else ratio
        later = jax.lax.stop_gradient(sum_from_token(ratio, dialogues.response_mask) - step_ratio)
        error = batch.values[:-1] - dialogues.rewards_to_go[..., None] + beta * (step_ratio + later)
        kl = masked_mean(kl_k2(ratio), dialogues.response_mask)
        consistency = masked_mean(jnp.square(error), self.critic.step_mask(dialogues))
        return consistency + self.kl_coef * kl, {"inconsistency": consistency, "divergence": kl}

r"""Direct advantage policy optimization: offline fit of turn-level log-ratios to advantages of a pre-trained critic.

.. math:: \tfrac12 (A(s, a) / \beta - \log \pi(a|s) + \log \pi_{ref}(a|s))^2, \qquad A(s, a) = r + V(s') - V(s)

``V(s)`` is the probability that the reference succeeds from ``s``, which a critic learns first and alone from the
outcomes of dialogues; actor and critic share nothing.

Source: Liu et al., 2024 (called DAPO there; not Yu et al.'s of 2025, whose loss ``grpo`` has).

Differs: the success probability of a state is learned from the dataset's dialogues that visited it, instead of from
fresh completions of every step.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.response_critics import StateValueCritic, SuccessCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean


class DirectAdvantagePolicyOptimization(LMOffline):
    """Direct advantage policy optimization: offline regression of turn-level log-ratios on a critic's advantages."""

    critic: StateValueCritic = SuccessCritic()
    """Critic of the success probability before each turn: SuccessCritic."""
    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: a smaller value lets the policy move further."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "direct-advantage"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy "
            "Optimization",
            "Liu et al.",
            2024,
            "arXiv:2412.18279",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("success is estimated from the outcomes of the dataset's dialogues",)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Mean squared difference between advantage and log-ratio over turns."""
        dialogues, value = batch.dialogues, batch.values[..., 0]
        advantage = dialogues.reward + value[1:] - value[:-1]
        ratio = jnp.where(
            dialogues.response_mask, dialogues.response_log_probs(model, self.sampler)[0] - batch.ref_log_probs, 0.0
        ).sum(axis=-1)
        losses = 0.5 * jnp.square(advantage / self.beta - ratio)
        return masked_mean(losses, dialogues.alive), {
            "advantage": masked_mean(jnp.abs(advantage), dialogues.alive),
            "ratio": masked_mean(ratio, dialogues.alive),
        }

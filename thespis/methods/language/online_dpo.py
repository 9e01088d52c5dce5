r"""Online preference optimization: samples pairs of responses, has them compared, and learns from the better and worse.

Both responses of a pair are the model's own, and their returns (``--feedback``: the environment's reward, a trained
reward model, or a judge's preference, ``win-rate``) say which is better. The loss is any that ``dpo`` takes:

- ``SigmoidLoss``: online DPO (Guo et al., 2024); with ``pairs="extremes"`` the best and the worst of a larger group;
- ``IPOLoss`` with ``behavior_weight`` :math:`1 - \tau / \eta`: INPO (Zhang et al., 2024, equation 9), where the
  reference is the geometric mixture of the initial model and of the one that sampled, :math:`\beta = \eta`;
- ``SPPOLoss(win_rates=True)`` with ``ref_sync_interval``: SPPO (Wu et al., 2024);
- ``DNOLoss`` with ``ref_sync_interval``: DNO as derived (Rosset et al., 2024, algorithm 1), a regression on win rates;
  its practical form is ``SigmoidLoss`` with extreme pairs and ``ref_sync_interval``;
- ``NashMDLoss`` with an ``opponent_weight``: Nash-MD-PG (Munos et al., 2023): the second response of a pair is by a
  geometric mixture of the model and the reference, and only the first is learned from.

Differs from these papers: one gradient step on each batch of fresh pairs (``feed.num_updates`` for more), where they
sample a large set once in each of a few iterations.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import Citation, Number
from thespis.data.feeds import Episodes
from thespis.learners.language.lm_offline import LMOffline, LMOfflineState, OfflineBatch
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss, order_pairs
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder
from thespis.nets.geometric_mixture import GeometricMixture
from thespis.runs.ranges import FRACTION, in_range


class OnlineDPO(LMOffline):
    """Online preference optimization: DPO and other preference losses on pairs of the model's own responses."""

    loss_type: PreferenceLoss = SigmoidLoss()
    """Preference loss: SigmoidLoss (DPO), IPOLoss, SPPOLoss, DNOLoss, NashMDLoss, RegressionLoss, or one of ``dpo``."""
    pairs: Literal["adjacent", "extremes"] = eqx.field(static=True, default="adjacent")
    """Pairs of a group: all neighbours, two by two; or the responses of the greatest and of the least return."""
    behavior_weight: Number = eqx.field(default=0.0, metadata=in_range(FRACTION))
    """Weight of the model that sampled in the reference, a geometric mixture with the reference model."""
    opponent_weight: Number | None = eqx.field(default=None, metadata=in_range(FRACTION))
    """Weight of the reference in the mixture that gives every second response; None: the model gives all of them."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=2, num_envs=64))
    """Feed of dialogues: group_size (of equal initial states: even), num_envs, max_steps (turns), num_updates."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "online-dpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Direct Language Model Alignment from Online AI Feedback", "Guo et al.", 2024, "arXiv:2402.04792"),
        Citation("Iterative Nash Policy Optimization", "Zhang et al.", 2024, "arXiv:2407.00617"),
        Citation("Nash Learning from Human Feedback", "Munos et al.", 2023, "arXiv:2312.00886"),
    )
    details: ClassVar[tuple[str, ...]] = ("one gradient step on each batch of fresh pairs",)

    def __check_init__(self):
        """Raise ``ValueError`` for groups of an odd number, and for an opponent where returns choose the pairs."""
        if self.feed.group_size % 2:
            raise ValueError(
                f"feed.group_size={self.feed.group_size}: pairs need an even number of dialogues in a group"
            )
        if self.opponent_weight is not None and self.pairs != "adjacent":
            raise ValueError("opponent_weight: every second response is the opponent's, so pairs must be adjacent")

    @property
    def uses_reference(self) -> bool:
        """Whether the loss does."""
        return self.loss_type.needs_reference

    def policy(self, state: LMOfflineState, mode: Mode) -> LMPolicy:
        """The decoder as policy; to collect, with the opponent in every second row."""
        model = state.model
        if mode is Mode.EXPLORE and self.opponent_weight is not None:
            weight = jnp.asarray(self.opponent_weight, "float32")
            model = GeometricMixture(state.model, state.reference, weight, alternates=True)
        return LMPolicy(model, self.sampler, state.dialogue_spec, mode)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Preference loss of the pairs; a pair of equal returns does not count where the loss orders pairs."""
        dialogues, mask = batch.dialogues, batch.dialogues.response_mask
        log_probs = dialogues.response_log_probs(model, self.sampler)[0]
        sampled = jnp.where(mask, batch.transitions.extras, 0.0)
        references = (1 - self.behavior_weight) * batch.ref_log_probs + self.behavior_weight * sampled
        scores = ResponseScores.from_dialogues(dialogues, log_probs, references)
        first, second = make_pairs(scores, self.feed.group_size, self.pairs, self.loss_type.orders_pairs)
        losses = self.loss_type(first, second)
        is_tied = first.returns == second.returns
        if self.loss_type.orders_pairs:
            losses = jnp.where(is_tied, 0.0, losses)
        metrics = {
            "accuracy": jnp.mean(first.log_ratio > second.log_ratio, dtype="float32"),
            "ties": jnp.mean(is_tied, dtype="float32"),
            "kl": jnp.mean(scores.log_ratio),
        }
        return losses.mean(), metrics


class ReferenceSampledDPO(OnlineDPO):
    """Off-policy preference optimization: as online DPO, but the reference model samples the pairs.

    The pairs are those of a logged dataset of the reference's responses in which none occurs twice.
    """

    def __check_init__(self):
        """Raise ``ValueError`` for a loss without a reference model."""
        if not self.uses_reference:
            raise ValueError(f"{type(self.loss_type).__name__} has no reference model, which samples the pairs here")

    def policy(self, state: LMOfflineState, mode: Mode) -> LMPolicy:
        """The decoder as policy; to collect, the reference."""
        model = state.reference if mode is Mode.EXPLORE else state.model
        return LMPolicy(model, self.sampler, state.dialogue_spec, mode)


def make_pairs(
    scores: ResponseScores, group_size: int, pairs: Literal["adjacent", "extremes"], is_ordered: bool
) -> tuple[ResponseScores, ResponseScores]:
    """The first and second dialogues of all pairs in groups of adjacent dialogues.

    ``pairs``: all neighbours two by two, or the dialogues with the greatest and the least return of each group. Where
    pairs are ordered the first has the greater return; of equal ones the first stays first.
    """
    groups = jax.tree.map(lambda x: x.reshape(-1, group_size), scores)
    if pairs == "extremes":
        extremes = jnp.stack([jnp.argmax(groups.returns, axis=1), jnp.argmin(groups.returns, axis=1)], axis=1)
        groups = jax.tree.map(lambda x: jnp.take_along_axis(x, extremes, axis=1), groups)
    first, second = (jax.tree.map(lambda x, i=i: x[:, i::2].ravel(), groups) for i in range(2))
    return order_pairs(first, second, first.returns >= second.returns) if is_ordered else (first, second)

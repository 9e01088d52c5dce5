r"""A-LoL (advantage left-over lunch): offline policy gradient with dialogue likelihoods weighted by advantage.

.. math:: -\hat r \, A \, \log \pi(y|x), \qquad A = \max(R - V(x), 0), \quad
          \hat r = \mathrm{clip}(\pi(y|x) / \pi_{ref}(y|x), 1 - \epsilon, 1 + \epsilon)

No gradient flows through the weights. Dialogues with a negative advantage are left out; ``V`` is a head on the
reference model, which is trained first and alone. Each dialogue is one action.

Source: Baheti et al., 2024; ``clip_range`` is their code's. ``importance_ratio=TokenRatio`` is A-LoL sequence,
``importance_ratio=None`` A-LoL without a reference.

Differs: instead of sampling dialogues by their advantage, the sampled ones are weighted by it.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.records import Citation, Number
from thespis.data.feeds import LoggedEpisodes
from thespis.learners.language.dialogues import sum_over_tokens
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.response_critics import ReferenceCritic, StateValueCritic
from thespis.nets.decoder import Decoder


class ImportanceRatio(eqx.Module):
    """Slot: the weights of tokens in the loss, from how much likelier the model makes them than the reference."""

    @abc.abstractmethod
    def __call__(self, log_ratio: Float[Array, "time row token"], mask: Array) -> Float[Array, "time row token"]:
        """Weights of tokens, from their log-ratios; ``mask`` says which tokens are responses."""


class SequenceRatio(ImportanceRatio):
    """Importance ratio of a whole dialogue, clipped."""

    clip_range: Number = 0.9
    """Clip range (epsilon): maximum distance of the ratio from 1."""

    def __call__(self, log_ratio: Float[Array, "time row token"], mask: Array) -> Float[Array, "time row token"]:
        """The dialogue's clipped ratio at every token, from log-ratios of tokens."""
        whole = jnp.exp(sum_over_tokens(log_ratio, mask))[None, :, None]
        return jnp.broadcast_to(jnp.clip(whole, 1 - self.clip_range, 1 + self.clip_range), log_ratio.shape)


class TokenRatio(ImportanceRatio):
    """Importance ratio of each token, clipped."""

    clip_range: Number = 0.9
    """Clip range (epsilon): maximum distance of the ratio from 1."""

    def __call__(self, log_ratio: Float[Array, "time row token"], mask: Array) -> Float[Array, "time row token"]:
        """Clipped ratios of tokens, from their log-ratios."""
        return jnp.clip(jnp.exp(log_ratio), 1 - self.clip_range, 1 + self.clip_range)


class _NoRatio(eqx.Module):
    """No importance ratio: all weights are 1."""

    def __call__(self, log_ratio: Float[Array, "time row token"], mask: Array) -> Float[Array, "time row token"]:
        """Ones, in the shape of the log-ratios."""
        return jnp.ones_like(log_ratio)


_NO_RATIO = _NoRatio()
"""What ``importance_ratio=None`` does."""


class ALoL(LMOffline):
    """A-LoL: offline policy gradient on dialogues with positive advantage, with clipped importance weights."""

    critic: StateValueCritic = ReferenceCritic()
    """Critic of a dialogue's expected return: ReferenceCritic."""
    importance_ratio: ImportanceRatio | None = SequenceRatio()
    """Importance weights: SequenceRatio (A-LoL), TokenRatio (A-LoL sequence), None (without a reference) or your own
    module:Class."""
    prioritized: bool = eqx.field(static=True, default=True)
    """Whether dialogues are weighted by their share of the batch's advantages, as if sampled by them."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Dialogues of a dataset: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "a-lol"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Improving Language Models with Advantage-based Offline Policy Gradients",
            "Baheti et al.",
            2024,
            "arXiv:2305.14718",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("dialogues with a negative advantage are left out",)

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Weighted negative log-likelihood of the dialogues."""
        dialogues = batch.dialogues
        log_prob = dialogues.response_log_probs(model, self.sampler)[0]
        advantage = jnp.maximum(dialogues.returns - batch.values[0, :, 0], 0.0)
        weight = jax.lax.stop_gradient(
            (self.importance_ratio or _NO_RATIO)(log_prob - batch.ref_log_probs, dialogues.response_mask)
        )
        losses = -advantage * sum_over_tokens(weight * log_prob, dialogues.response_mask)
        shares = advantage / jnp.maximum(advantage.sum(), 1e-6) if self.prioritized else 1 / advantage.shape[0]
        return jnp.sum(shares * losses), {
            "advantage": advantage.mean(),
            "kept": jnp.mean(advantage > 0, dtype="float32"),
        }

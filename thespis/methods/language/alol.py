r"""A-LoL, advantage left-over lunch: likelihood of conversations, weighed by how much better than expected they were.

.. math:: -\hat r \, A \, \log \pi(y|x), \qquad A = \max(R - V(x), 0), \quad
          \hat r = \mathrm{clip}(\pi(y|x) / \pi_{ref}(y|x), 1 - \epsilon, 1 + \epsilon)

No gradient flows through the weights. What was worse than expected is left out; ``V`` is a head on the reference, which
learns first and alone. Conversations are one action each.

Source: Baheti et al., 2024; ``clip`` is their code's. ``ratio=Each`` is A-LoL sequence, ``ratio=Free`` A-LoL without a
reference. Differs: in place of drawing conversations by their advantage, those drawn are weighed by it.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.learners.appraising import Onlooker
from thespis.learners.gradient import Number
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import per_row
from thespis.nets.decoder import Decoder


class Together(eqx.Module):
    """One ratio for a conversation."""

    clip: Number = 0.9
    """How far it may be from 1."""

    def __call__(self, ratio: Float[Array, "time row utterance"], real: Array) -> Float[Array, "time row utterance"]:
        """Of log-ratios of ids."""
        whole = jnp.exp(per_row(ratio, real))[None, :, None]
        return jnp.broadcast_to(jnp.clip(whole, 1 - self.clip, 1 + self.clip), ratio.shape)


class Each(eqx.Module):
    """A ratio for each id."""

    clip: Number = 0.9
    """How far it may be from 1."""

    def __call__(self, ratio: Float[Array, "time row utterance"], real: Array) -> Float[Array, "time row utterance"]:
        """Of log-ratios of ids."""
        return jnp.clip(jnp.exp(ratio), 1 - self.clip, 1 + self.clip)


class Free(eqx.Module):
    """None."""

    def __call__(self, ratio: Float[Array, "time row utterance"], real: Array) -> Float[Array, "time row utterance"]:
        """Ones."""
        return jnp.ones_like(ratio)


class ALoL(Schooled):
    """A-LoL for conversations of any number of turns."""

    critic: Onlooker = Onlooker()
    """What a conversation is expected to return: Onlooker, with first and learning_rate."""
    ratio: Together | Each | Free = Together()
    """Importance weights: Together (A-LoL), Each (A-LoL sequence) or Free (without a reference)."""
    prioritised: bool = eqx.field(static=True, default=True)
    """Whether conversations count by their share of the batch's advantages, as if they had been drawn by them."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    held: ClassVar[bool] = True
    name: ClassVar[str] = "a-lol"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Improving Language Models with Advantage-based Offline Policy Gradients", "Baheti et al.", 2024,
                 "arXiv:2305.14718"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("conversations worse than expected are left out",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Each conversation by itself."""
        told = lesson.told
        log_prob = told.log_probs_by(model, self.sampling)[0]
        advantage = jnp.maximum(told.returns - lesson.values[0, :, 0], 0.0)
        weight = jax.lax.stop_gradient(self.ratio(log_prob - lesson.tether, told.real))
        losses = -advantage * per_row(weight * log_prob, told.real)
        shares = advantage / jnp.maximum(advantage.sum(), 1e-6) if self.prioritised else 1 / advantage.shape[0]
        return jnp.sum(shares * losses), {
            "advantage": advantage.mean(),
            "kept": jnp.mean(advantage > 0, dtype="float32"),
        }

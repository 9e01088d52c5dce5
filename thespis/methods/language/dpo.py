r"""Direct preference optimisation: the policy itself stands for a reward, which explains what was preferred to what.

Descends :math:`-\log \sigma(\beta (h_w - h_l))`, with :math:`h = \log \pi(y|x) - \log \pi_{ref}(y|x)` summed over all
ids that were said in a conversation; what the world said has the same probability under both and is not in it.

Source: Rafailov et al., 2023, equation 7. ``loss=Squared`` is IPO (Azar et al., 2023), ``loss=Hinge`` SLiC's (Zhao et
al., 2023). Differs: pairs may be made of any conversations that began alike and returned different rewards.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import Pairs
from thespis.core.records import Citation
from thespis.learners.appraising import Silent
from thespis.learners.preferring import Logistic, Preference
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import per_row
from thespis.nets.decoder import Decoder


class DPO(Schooled):
    """DPO for conversations of any number of turns."""

    loss: Preference = Logistic()
    """What a preference loses: Logistic (DPO), Squared (IPO) or Hinge (SLiC)."""
    feed: Pairs = eqx.field(static=True, default=Pairs())
    """Pairs of conversations: batch, turns (0: those of the longest)."""

    critic: ClassVar[Silent] = Silent()
    held: ClassVar[bool] = True
    name: ClassVar[str] = "dpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Direct Preference Optimization", "Rafailov et al.", 2023, "arXiv:2305.18290"),
    )
    details: ClassVar[tuple[str, ...]] = ("log-ratios are sums over ids, whatever the loss",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Every second conversation is the better one of a pair."""
        told = lesson.told
        ratio = per_row(told.log_probs_by(model, self.sampling)[0] - lesson.tether, told.real)
        chosen, rejected = ratio[0::2], ratio[1::2]
        metrics = {
            "accuracy": jnp.mean(chosen > rejected, dtype="float32"),
            "chosen_ratio": chosen.mean(),
            "rejected_ratio": rejected.mean(),
        }
        return self.loss(chosen, rejected).mean(), metrics

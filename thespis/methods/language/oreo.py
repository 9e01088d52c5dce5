r"""OREO, offline reasoning optimisation: policy and critic agree about every step of conversations that somebody had.

The best policy under a penalty on divergence and its soft value satisfy, from every step on,
:math:`V(s_t) = R_t - \beta \sum_{i \ge t} h_i` with :math:`h_i = \log \pi(a_i|s_i) - \log \pi_{ref}(a_i|s_i)` and
:math:`R_t` the rewards to go. The critic descends the squared difference; so does the policy, each step by its own
:math:`h_t`, later ones being fixed, beside a penalty :math:`\alpha` on its divergence from the reference:

.. math:: (V(s_t) - R_t + \beta h_t + \beta \, \mathrm{fixed}[\sum_{i > t} h_i])^2 + \alpha \tfrac12 h_t^2

Source: Wang et al., 2024, section 4 and its code, whose beta and alpha these are. ``critic.turns`` makes turns the
steps, in place of ids. Differs: the critic is a linear head on a decoder of its own; the divergence is estimated at the
ids that were said, by :math:`\tfrac12 h^2`, theirs is summed over all ids; steps count alike, theirs conversations.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.learners.appraising import SoftReturn
from thespis.learners.gradient import Number
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import onwards
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean
from thespis.objectives.policies import kl_k2


class OREO(Schooled):
    """OREO for conversations of any number of turns."""

    critic: SoftReturn = SoftReturn()
    """The soft value: beta, turns (whether steps are turns), learning_rate."""
    divergence: Number = 0.01
    """Alpha, weight of the divergence from the reference beside the consistency."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    held: ClassVar[bool] = True
    name: ClassVar[str] = "oreo"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Offline Reinforcement Learning for LLM Multi-Step Reasoning", "Wang et al.", 2024,
                 "arXiv:2412.16145"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("the critic is a decoder of its own",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The squared inconsistency of every step."""
        told, beta = lesson.told, self.critic.beta
        ratio = jnp.where(told.real, told.log_probs_by(model, self.sampling)[0] - lesson.tether, 0.0)
        own = ratio.sum(axis=-1, keepdims=True) if self.critic.turns else ratio
        later = jax.lax.stop_gradient(onwards(ratio, told.real) - own)
        off = lesson.values[:-1] - told.to_go[..., None] + beta * (own + later)
        held = mean(kl_k2(ratio), told.real)
        consistency = mean(jnp.square(off), self.critic.asked(told))
        return consistency + self.divergence * held, {"inconsistency": consistency, "divergence": held}

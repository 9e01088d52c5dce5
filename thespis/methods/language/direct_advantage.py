r"""Direct advantage policy optimisation: log-ratios of turns are fitted to advantages, by a critic that came first.

.. math:: \tfrac12 (A(s, a) / \beta - \log \pi(a|s) + \log \pi_{ref}(a|s))^2, \qquad A(s, a) = r + V(s') - V(s)

``V(s)`` is the probability that the reference succeeds from ``s``, which a critic learns first and alone from how
conversations ended; actor and critic share nothing.

Source: Liu et al., 2024 (called DAPO there; not Yu et al.'s of 2025, whose loss ``grpo`` has). Differs: the success of
a state is that of the conversations of the dataset that went through it, in place of fresh completions of every step.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.learners.appraising import Success
from thespis.learners.gradient import Number
from thespis.learners.schooling import Lesson, Schooled
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean


class DirectAdvantage(Schooled):
    """Direct advantage policy optimisation over turns."""

    critic: Success = Success()
    """The probability of success before each turn: first, learning_rate."""
    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0: the smaller, the further the policy goes."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    held: ClassVar[bool] = True
    name: ClassVar[str] = "direct-advantage"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy "
                 "Optimization", "Liu et al.", 2024, "arXiv:2412.18279"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("success is estimated from how conversations of the dataset ended",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The squared difference of every turn."""
        told, value = lesson.told, lesson.values[..., 0]
        advantage = told.reward + value[1:] - value[:-1]
        ratio = jnp.where(told.real, told.log_probs_by(model, self.sampling)[0] - lesson.tether, 0.0).sum(axis=-1)
        missed = 0.5 * jnp.square(advantage / self.beta - ratio)
        return mean(missed, told.alive), {
            "advantage": mean(jnp.abs(advantage), told.alive),
            "ratio": mean(ratio, told.alive),
        }

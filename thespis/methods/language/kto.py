r"""Kahneman-Tversky optimisation: conversations that are good or bad, each by itself, weighed as people weigh them.

A good one loses :math:`\lambda_D (1 - \sigma(\beta (h - z)))`, a bad one :math:`\lambda_U (1 - \sigma(\beta (z - h)))`,
with :math:`h = \log \pi(y|x) - \log \pi_{ref}(y|x)` of the whole conversation and :math:`z` the divergence of policy
and reference over answers that do not belong to their questions, never below 0 and without gradient.

Source: Ethayarajh et al., 2024, equations 7 and 8. Differs: of a conversation of several turns one is drawn for
:math:`z`, answered as the next conversation of the batch was at that turn, and counts for all of its turns.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.learners.appraising import Silent
from thespis.learners.gradient import Number
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import answers, per_row
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean
from thespis.objectives.preferences import kto


class KTO(Schooled):
    """KTO for conversations of any number of turns."""

    beta: Number = 0.1
    """Weight of the divergence from the reference, above 0."""
    good: Number = 1.0
    """Weight of good conversations."""
    bad: Number = 1.0
    """Weight of bad ones."""
    above: Number = 0.0
    """A conversation is good if it returned more."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    critic: ClassVar[Silent] = Silent()
    held: ClassVar[bool] = True
    name: ClassVar[str] = "kto"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("KTO: Model Alignment as Prospect Theoretic Optimization", "Ethayarajh et al.", 2024,
                 "arXiv:2402.01306"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("the reference point is made of answers to other questions",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Each conversation by itself."""
        told = lesson.told
        ratio = per_row(told.log_probs_by(model, self.sampling)[0] - lesson.tether, told.real)
        good, point = told.returns > self.above, self._point(model, lesson)
        losses = kto(ratio, good, self.beta, point, (self.good, self.bad))
        metrics = {"good_ratio": mean(ratio, good), "bad_ratio": mean(ratio, ~good), "point": point}
        return losses.mean(), metrics

    def _point(self, model: Decoder, lesson: Lesson) -> Float[Array, ""]:
        """The divergence over answers of others; 0 in a batch without other answers."""
        told = lesson.told
        before, turn, rows = lesson.any_turn()
        there = told.real[turn, jnp.roll(rows, -1)]
        said = jnp.where(there, told.said[turn, jnp.roll(rows, -1)], -1)
        other = answers(before, said, there[:, 0])
        model = jax.lax.stop_gradient(model)
        ratio = other.log_probs_by(model, self.sampling)[0] - other.log_probs_by(lesson.reference, self.sampling)[0]
        sums = per_row(ratio, other.real) * told.alive.sum(axis=0)
        return jnp.maximum(mean(sums, other.alive[0]), 0.0)

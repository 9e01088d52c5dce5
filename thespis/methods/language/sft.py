"""Supervised fine-tuning: maximise the likelihood of what was said in the conversations of a dataset.

What the world, or a template, said is seen and not learnt. With ``least`` only conversations that returned so much are
learnt: with samples of one's own that is rejection sampling (Yuan et al., 2023), or filtered behaviour cloning. With
``learnt=AnswersFirst`` the model foretells what the world says before it imitates (Zhang et al., 2025).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.learners.appraising import Silent
from thespis.learners.gradient import Number
from thespis.learners.pupils import Learnt, Utterances
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.utterances import Divisor, OverTokens
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean


class SFT(Schooled):
    """Maximum likelihood of utterances."""

    model: str = eqx.field(static=True, default="blank")
    """Where parameters come from: blank, tiny, or the directory of a checkpoint."""
    divisor: Divisor = OverTokens()
    """What is averaged: OverTokens, OverAnswers or OverBudget."""
    least: Number = -float("inf")
    """Conversations that returned less are left out."""
    learnt: Learnt = Utterances()
    """Which ids are learnt: Utterances, or AnswersFirst (those of the world before them)."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    critic: ClassVar[Silent] = Silent()
    held: ClassVar[bool] = False
    name: ClassVar[str] = "sft"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Training language models to follow instructions", "Ouyang et al.", 2022, "arXiv:2203.02155"),
    )
    details: ClassVar[tuple[str, ...]] = ("what the world says is not learnt",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Ids that were not to be expected."""
        good = lesson.told.returns >= self.least
        log_probs, learnt = self.learnt(model, self.sampling, lesson, good)
        metrics = {"negative_log_likelihood": mean(-log_probs, learnt), "learnt": jnp.mean(good, dtype="float32")}
        return self.divisor(-log_probs, learnt), metrics

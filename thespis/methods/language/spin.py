r"""Self-play fine-tuning: what was said in a dataset is preferred to what the model itself would have said before.

.. math:: -\log \sigma(\beta (h(y) - h(y'))), \qquad h(y) = \log \pi(y|x) - \log \pi_t(y|x), \quad y' \sim \pi_t(y'|x)

The opponent :math:`\pi_t` is the model as it was at the last renewal. Nothing is left to learn where the model says
what the dataset does.

Of an expert's conversations, turn by turn, this is the implicit reward of StepAgent (Deng et al., 2024).

Source: Chen et al., 2024, equation 4.7. Differs: of a conversation of several turns one is drawn; utterances of the
opponent are drawn anew in every update.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from thespis.actors.language import say
from thespis.core.feeds import LoggedEpisodes
from thespis.core.keys import fold
from thespis.core.records import Citation
from thespis.learners.appraising import Silent
from thespis.learners.preferring import Logistic, Preference
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import Told, answers, per_row
from thespis.nets.decoder import Decoder


class SPIN(Schooled):
    """SPIN for conversations of any number of turns."""

    loss: Preference = Logistic()
    """What a preference loses: Logistic, Squared or Hinge."""
    renewed: int = eqx.field(static=True, default=200)
    """Updates after which the opponent is what the model is by then; 0: it never changes."""
    feed: LoggedEpisodes = eqx.field(static=True, default=LoggedEpisodes())
    """Conversations of a dataset: batch, turns (0: those of the longest)."""

    critic: ClassVar[Silent] = Silent()
    held: ClassVar[bool] = True
    name: ClassVar[str] = "spin"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Self-Play Fine-Tuning Converts Weak Language Models to Strong Language Models", "Chen et al.", 2024,
                 "arXiv:2401.01335"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("the opponent speaks anew in every update",)

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """One turn of each conversation."""
        before, turn, rows = lesson.any_turn()
        alive = lesson.told.alive[turn, rows]
        own = say(lesson.reference, self.sampling, lesson.talking, before, fold(lesson.key, "opponent"))

        def ratio(said: Array) -> Float[Array, " row"]:
            told: Told = answers(before, said, alive)
            away = told.log_probs_by(model, self.sampling)[0] - told.log_probs_by(lesson.reference, self.sampling)[0]
            return per_row(away, told.real)

        theirs, ours = ratio(lesson.told.said[turn, rows]), ratio(own)
        metrics = {"accuracy": jnp.mean(theirs > ours, dtype="float32"), "margin": jnp.mean(theirs - ours)}
        return self.loss(theirs, ours).mean(), metrics

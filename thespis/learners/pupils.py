"""Which ids of conversations are learnt by maximum likelihood: those that the actor says, or the world's, too."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.language.sampling import Sampling
from thespis.learners.schooling import Lesson
from thespis.learners.transcripts import by_row
from thespis.nets.decoder import Decoder

Ids = tuple[Float[Array, "row id"], Bool[Array, "row id"]]
"""Log-probabilities, and which of them are learnt."""


class Utterances(eqx.Module):
    """What was said."""

    def __call__(self, model: Decoder, sampling: Sampling, lesson: Lesson, good: Bool[Array, " row"]) -> Ids:
        """In ``good`` conversations."""
        told = lesson.told
        log_probs = told.log_probs_by(model, sampling)[0]
        return by_row(log_probs), by_row(told.real & good[:, None])


class AnswersFirst(eqx.Module):
    """The world's answers for the first ``until`` updates, then what was said (Zhang et al. 2025).

    So the actor itself is at first a model of the world: it foretells as text what follows on what was done. Of a
    conversation that was cut, as a branch is where another thing was said, only what followed last is learnt, and
    nothing of what was said. Differs: what the world has answered to the demonstrator is foretold, too.
    """

    until: int = eqx.field(static=True, default=100)
    """Updates that learn answers."""

    def __call__(self, model: Decoder, sampling: Sampling, lesson: Lesson, good: Bool[Array, " row"]) -> Ids:
        """Answers in all conversations; utterances in ``good`` ones that have ended by themselves."""
        told = lesson.told
        answers = told.replied(told.alive & (told.last | ~told.cut))
        said = told.spoken(told.alive & good & ~told.cut)
        learnt = jnp.where(lesson.index < self.until, answers, said)
        return told.all_log_probs_by(model, sampling), learnt


Learnt = Utterances | AnswersFirst

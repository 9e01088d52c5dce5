r"""SWEET-RL: a critic that knows what the actor must find out ranks what might be said next, and the actor prefers it.

First a critic learns merits of turns from pairs of whole conversations at the same task, one of which returned more; it
reads what the world tells critics alone. Then, at turns of the dataset, several utterances are drawn and ranked by it;
one of the better half is preferred to one of the worse half:

.. math:: -\log \sigma(\beta (h(a^+) - h(a^-))) - w \log \pi(a^+|o) / L,
          \qquad h(a) = \log \pi(a|o) - \log \pi_{ref}(a|o), \quad a \sim \pi_{ref}(\cdot|o)

The actor reads nothing but the conversation. Needs a world that tells, such as ``text:questions-told``; else the critic
knows no more than the actor.

Source: Zhou et al., 2025, and its code, whose beta, w and rule of halves these are; they draw 16. Differs:
one pair is made of fresh utterances in every update, where theirs are drawn once and make four; the turns are those of
the pairs that taught the critic.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.actors.language import say
from thespis.core.feeds import Pairs
from thespis.core.keys import fold
from thespis.core.records import Citation
from thespis.learners.gradient import Number
from thespis.learners.merits import Merits
from thespis.learners.preferring import Logistic, Preference
from thespis.learners.schooling import Lesson, Schooled
from thespis.learners.transcripts import answers, as_critics_read, per_row
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean


class SWEET(Schooled):
    """SWEET-RL for conversations of any number of turns."""

    critic: Merits = Merits()
    """The merits of turns: beta, first, learning_rate."""
    loss: Preference = Logistic()
    """What a preference loses: Logistic, Squared or Hinge."""
    candidates: int = eqx.field(static=True, default=8)
    """Utterances that are ranked at each turn, 2 or more."""
    likelihood: Number = 0.01
    """Weight of the likelihood of what is preferred, by id."""
    feed: Pairs = eqx.field(static=True, default=Pairs())
    """Pairs of conversations: batch, turns (0: those of the longest)."""

    held: ClassVar[bool] = True
    name: ClassVar[str] = "sweet-rl"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SWEET-RL: Training Multi-Turn LLM Agents on Collaborative Reasoning Tasks", "Zhou et al.", 2025,
                 "arXiv:2503.15478"),
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = ("the critic learns first and alone", "utterances are drawn anew")

    def lost(self, model: Decoder, lesson: Lesson) -> tuple[Float[Array, ""], dict[str, Array]]:
        """One turn of each conversation."""
        before, turn, rows = lesson.any_turn()
        alive = lesson.told.alive[turn, rows]
        said, merit = self.ranked(lesson, before, turn, rows)
        middle, last = self.candidates // 2, self.candidates - 1
        key, count = fold(lesson.key, "pair"), rows.shape
        low, high = jax.random.randint(key, (2, *count), jnp.array([[0], [middle]]), jnp.array([[middle], [last + 1]]))

        def told(place: Int[Array, " row"]) -> tuple[Float[Array, " row"], Float[Array, ""]]:
            one = answers(before, said[rows, place], alive)
            log_prob = one.log_probs_by(model, self.sampling)[0]
            away = log_prob - one.log_probs_by(lesson.reference, self.sampling)[0]
            return per_row(away, one.real), mean(log_prob, one.real)

        (better, likelihood), (worse, _) = told(high), told(low)
        metrics = {
            "accuracy": jnp.mean(better > worse, dtype="float32"),
            "merit_gap": jnp.mean(merit[rows, high] - merit[rows, low]),
        }
        return self.loss(better, worse).mean() - self.likelihood * likelihood, metrics

    def ranked(
        self, lesson: Lesson, before: Int[Array, "row length"], turn: Int[Array, " row"], rows: Int[Array, " row"]
    ) -> tuple[Int[Array, "row candidate utterance"], Float[Array, "row candidate"]]:
        """Utterances of the reference and their merits, the least first."""
        times = self.candidates
        said = say(
            lesson.reference, self.sampling, lesson.talking, jnp.repeat(before, times, axis=0),
            fold(lesson.key, "candidates"),
        )  # fmt: skip
        steps = as_critics_read(lesson.steps) if self.informed else lesson.steps
        read = jnp.repeat(steps.view.observation[turn, rows], times, axis=0)
        alive = jnp.repeat(lesson.told.alive[turn, rows], times)
        found = self.critic.merit(lesson.values, lesson.reference, answers(read, said, alive))
        merit = found[0].reshape(-1, times)
        order = jnp.argsort(merit, axis=1)
        said = said.reshape(*merit.shape, -1)
        return jnp.take_along_axis(said, order[..., None], axis=1), jnp.take_along_axis(merit, order, axis=1)

"""Conversations as they were held, in rows: what is between a feed and credit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.actors.language import Talking
from thespis.core.records import Transition
from thespis.learners.transcripts import Told


class Conversations(Told):
    """Conversations of one's own; rows of a group begin alike and lie behind each other."""

    log_probs: Float[Array, "time row utterance"]
    """Of what was said, as it was sampled."""

    @classmethod
    def none(cls, rows: int, talking: Talking, turns: int) -> Conversations:
        """Room for conversations in which nothing was said."""
        said, alive = jnp.full((turns, rows, talking.utterance), -1), jnp.zeros((turns, rows), bool)
        starts, transcript = jnp.zeros((turns + 1, rows), said.dtype), jnp.full((rows, talking.length), -1)
        return cls(transcript, starts, said, alive, jnp.zeros(alive.shape), alive[0], jnp.zeros(said.shape))

    def rows(self, at: Int[Array, " chosen"]) -> Conversations:
        """The conversations in these rows."""
        return self._with(lambda _, x: x[at], lambda _, x: x[:, at])

    def where(self, chosen: Bool[Array, " row"], other: Conversations) -> Conversations:
        """These rows where ``chosen``, else those of the other."""

        def choose(axis: int, name: str, x: Array) -> Array:
            here = chosen.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
            return jnp.where(here, x, getattr(other, name))

        return self._with(lambda *given: choose(0, *given), lambda *given: choose(1, *given))

    def written(self, at: Int[Array, " chosen"], others: Conversations) -> Conversations:
        """With other conversations in these rows, none of which is named twice."""
        return self._with(
            lambda name, x: x.at[at].set(getattr(others, name)), lambda name, x: x.at[:, at].set(getattr(others, name))
        )

    def _with(self, by_row: Callable[[str, Array], Array], by_time: Callable[[str, Array], Array]) -> Conversations:
        """Every leaf changed: those that begin with an axis of rows, and those that begin with one of time."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        rowed = {"transcript", "cut"}
        return Conversations(**{name: (by_row if name in rowed else by_time)(name, x) for name, x in fields.items()})


def conversations_of(steps: Transition, mask: Bool[Array, "time row"]) -> Conversations:
    """What a feed brings, in rows; see :meth:`thespis.learners.transcripts.Told.of`."""
    told = Told.of(steps, mask)
    return Conversations(**vars(told), log_probs=jnp.where(told.real, steps.extras, 0.0))

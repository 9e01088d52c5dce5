"""Conversations in which every message tells, each behind a word of its own, where to go and where one is."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


@dataclasses.dataclass(frozen=True)
class Signs:
    """Goals of such conversations, one id each; who arrives is answered no more.

    ``goal`` and ``place``: the ids of the words behind which they stand, first the goal; ``stop``: those that end an
    utterance. Utterances should not speak of either, as those that are listed do not.
    """

    goal: int
    place: int
    stop: tuple[int, ...]
    reward: float = 1.0

    def achieved(self, transcript: Int[Array, " time"]) -> Int[Array, ""]:
        """The place that was told last; the goal, if the last utterance was not answered."""
        said = jnp.isin(transcript, jnp.asarray(self.stop))
        silent = _last(said) > _last(transcript == self.place)
        return transcript[_last(transcript == jnp.where(silent, self.goal, self.place)) + 1]

    def retold(
        self, transcript: Int[Array, " time"], goal: Int[Array, ""]
    ) -> tuple[Int[Array, " time"], Bool[Array, ""]]:
        """The transcript with another goal in all its messages, up to the utterance that leads there."""
        place = jnp.arange(transcript.shape[0])
        before = jnp.pad(transcript, (1, 0), constant_values=-1)[:-1]
        arrived = (before == self.place) & (transcript == goal)
        begins = (transcript == self.goal) & (place <= jnp.argmax(arrived))
        left = jnp.where(arrived.any(), _last(begins), transcript.shape[0])
        told = jnp.where(before == self.goal, goal, transcript)
        return jnp.where(place < left, told, -1), arrived.any() | (self.achieved(transcript) == goal)


def _last(marks: Bool[Array, " time"]) -> Int[Array, ""]:
    """The place of the last mark; -1 if there is none."""
    return jnp.max(jnp.where(marks, jnp.arange(marks.shape[0]), -1))

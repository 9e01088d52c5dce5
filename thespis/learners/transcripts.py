"""Whole conversations as losses see them: one transcript each, where its utterances begin, and what was said."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.actors.language import features_of, log_probs_of
from thespis.core.records import Transition
from thespis.critics.values import seen_by_critics
from thespis.language.sampling import Sampling
from thespis.nets.decoder import Decoder
from thespis.objectives.decisions import stitched


class Told(eqx.Module):
    """Conversations: ``transcript[row, length]``, all else ``[time, row, ...]``; the last transcript holds all."""

    transcript: Int[Array, "row length"]
    starts: Int[Array, "turns row"]
    """How long a transcript was before each utterance; last, how long it is in the end."""
    said: Int[Array, "time row utterance"]
    alive: Bool[Array, "time row"]
    """One's own turns of the conversation itself: false behind its end, and where another one speaks."""
    reward: Float[Array, "time row"]
    cut: Bool[Array, " row"]
    """Conversations that did not end by themselves."""

    @classmethod
    def of(cls, steps: Transition, mask: Bool[Array, "time row"]) -> Told:
        """Those of steps whose observations are transcripts; where ``mask`` is false another speaks, or all is over.

        What comes to one who waits belongs to what was said last. Nothing is kept of what lies behind the end.
        """
        last, rows = mask.shape[0] - 1 - jnp.argmax(mask[::-1], axis=0), jnp.arange(mask.shape[1])
        transcript = steps.next_view.observation[last, rows]
        ends = (transcript >= 0).sum(axis=1)
        over = jnp.arange(len(mask))[:, None] > last
        starts = jnp.where(over, ends, (steps.view.observation >= 0).sum(axis=-1))
        starts, said = jnp.concatenate([starts, ends[None]]), jnp.where(mask[..., None], steps.action, -1)
        over_rows = jax.vmap(stitched, in_axes=1, out_axes=1)
        no_value = jnp.zeros(steps.reward.shape)
        reward, _, terminated, _ = over_rows(mask, steps.reward, no_value, steps.terminated, steps.ended)
        reward = jnp.where(mask, reward, 0.0)
        return cls(transcript, starts, said, mask, reward, ~terminated[last, rows])

    @property
    def real(self) -> Bool[Array, "time row utterance"]:
        """Ids that were said within the conversation."""
        return (self.said >= 0) & self.alive[..., None]

    @property
    def last(self) -> Bool[Array, "time row"]:
        """One's last turn of each conversation."""
        return self.alive & (jnp.cumsum(self.alive[::-1], axis=0)[::-1] == 1)

    @property
    def returns(self) -> Float[Array, " row"]:
        """What each conversation earned."""
        return jnp.where(self.alive, self.reward, 0.0).sum(axis=0)

    @property
    def to_go(self) -> Float[Array, "time row"]:
        """What each turn and those after it have earned."""
        earned = jnp.where(self.alive, self.reward, 0.0)
        return jnp.cumsum(earned[::-1], axis=0)[::-1]

    def log_probs_by(
        self, model: Decoder, sampling: Sampling
    ) -> tuple[Float[Array, "time row utterance"], Float[Array, "time row utterance"]]:
        """Of each id that was said, and the entropies of what it was drawn from; where none is real, anything."""
        features = features_of(model, self.transcript, self.starts[:-1], self.said.shape[-1])
        return log_probs_of(model, sampling, features, self.said)

    def all_log_probs_by(self, model: Decoder, sampling: Sampling) -> Float[Array, "row length"]:
        """Of every id of the transcripts, whoever said it; at the first one, and behind the last, anything."""
        rows, length = self.transcript.shape
        features = features_of(model, self.transcript, jnp.zeros((1, rows), "int32"), length)[0]
        return log_probs_of(model, sampling, features, self.transcript)[0]

    def spoken(self, turns: Bool[Array, "time row"]) -> Bool[Array, "row length"]:
        """Which ids of the transcripts are those of the utterances of these turns."""
        return _between(self.starts[:-1], self._ends, turns, self.transcript.shape[1])

    def replied(self, turns: Bool[Array, "time row"]) -> Bool[Array, "row length"]:
        """Which ids of the transcripts the world said in answer to the utterances of these turns."""
        return _between(self._ends, self.starts[1:], turns, self.transcript.shape[1])

    @property
    def _ends(self) -> Int[Array, "time row"]:
        """How long a transcript was behind each utterance."""
        return self.starts[:-1] + (self.said >= 0).sum(axis=-1)


def _between(
    begin: Int[Array, "time row"], end: Int[Array, "time row"], turns: Bool[Array, "time row"], length: int
) -> Bool[Array, "row length"]:
    place = jnp.arange(length)
    inside = (place >= begin[..., None]) & (place < end[..., None])
    return (inside & turns[..., None]).any(axis=0)


def as_critics_read(steps: Transition) -> Transition:
    """Steps whose observations are transcripts as critics read them: behind what the world tells critics alone."""
    seen = seen_by_critics(steps.privileged, steps.view.observation)
    after = seen_by_critics(steps.next_privileged, steps.next_view.observation)
    views = (dataclasses.replace(steps.view, observation=seen), dataclasses.replace(steps.next_view, observation=after))
    return dataclasses.replace(steps, view=views[0], next_view=views[1])


def answers(before: Int[Array, "row length"], said: Int[Array, "row utterance"], alive: Bool[Array, " row"]) -> Told:
    """Conversations of one turn: ``said`` in answer to ``before``; rows that are not ``alive`` say nothing."""
    start = (before >= 0).sum(axis=1)
    room = jnp.pad(before, ((0, 0), (0, said.shape[1])), constant_values=-1)
    place = jnp.arange(room.shape[1]) - start[:, None]
    added = jnp.take_along_axis(said, jnp.clip(place, 0, said.shape[1] - 1), axis=1)
    transcript = jnp.where(place < 0, room, jnp.where(place < said.shape[1], added, -1))
    starts = jnp.stack([start, (transcript >= 0).sum(axis=1)])
    return Told(transcript, starts, said[None], alive[None], jnp.zeros((1, len(said))), jnp.zeros_like(alive))


def by_row(x: Array) -> Array:
    """``[time, row, utterance]`` as ``[row, time * utterance]``."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def per_row(x: Float[Array, "time row utterance"], real: Bool[Array, "time row utterance"]) -> Float[Array, " row"]:
    """The sum over all ids of each conversation that are ``real``."""
    return jnp.where(real, x, 0.0).sum(axis=(0, 2))


def onwards(
    x: Float[Array, "time row utterance"], real: Bool[Array, "time row utterance"]
) -> Float[Array, "time row utterance"]:
    """The sum over this id and all later ones of its conversation that are ``real``."""
    time, rows, width = x.shape
    summed = jnp.cumsum(by_row(jnp.where(real, x, 0.0))[:, ::-1], axis=1)[:, ::-1]
    return summed.reshape(rows, time, width).transpose(1, 0, 2)

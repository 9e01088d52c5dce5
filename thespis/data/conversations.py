"""Conversations as transitions: a turn is a step, all that was said before is seen, an utterance is done."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from thespis.core.records import Transition, View


def turns_of(
    transcript: Int[np.ndarray, "row length"],
    starts: Int[np.ndarray, "time row"],
    said: Int[np.ndarray, "time row utterance"],
    reward: Float[np.ndarray, "time row"],
) -> Transition:
    """Steps ``[time]`` of whole conversations behind each other.

    ``starts``: how long each transcript was before an utterance; -1 stands behind the last id of a transcript and of an
    utterance, and in all of a turn that was not taken. Conversations are terminated where they end.
    """
    taken = (said >= 0).any(axis=2).T
    row, time = np.nonzero(taken)
    last = np.append(row[1:] != row[:-1], True)
    begins, full = starts[time, row], (transcript >= 0).sum(axis=1)[row]
    until = np.where(last, full, np.append(begins[1:], 0))
    place = np.arange(transcript.shape[1])

    def up_to(count: np.ndarray) -> View:
        return View(np.where(place < count[:, None], transcript[row], -1).astype("int32"))

    first = np.append(True, last[:-1])
    number = reward[time, row].astype("float32")
    action = said[time, row].astype("int32")
    return Transition(up_to(begins), action, number, last, np.zeros_like(last), up_to(until), first)


def knowing(steps: Transition, hidden: Int[np.ndarray, "row ids"]) -> Transition:
    """Steps with what critics alone may know: ``hidden`` ids of their conversation before all that was said."""
    own = hidden[np.cumsum(steps.first) - 1].astype("int32")
    seen, after = (np.concatenate([own, view.observation], axis=1) for view in (steps.view, steps.next_view))
    return dataclasses.replace(steps, privileged=seen, next_privileged=after)

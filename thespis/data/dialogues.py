"""Dialogues as transitions: a turn is a step, the text so far is the observation, a response is the action."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from thespis.core.records import Transition, View


def dialogue_transitions(
    transcript: Int[np.ndarray, "row length"],
    response_starts: Int[np.ndarray, "time row"],
    responses: Int[np.ndarray, "time row token"],
    rewards: Float[np.ndarray, "time row"],
) -> Transition:
    """Transitions ``[time]`` of whole dialogues, one after another.

    ``response_starts``: the length of each transcript before a response. -1 pads transcripts and responses after their
    last token, and fills turns that were not taken. Dialogues terminate at their last turn.
    """
    has_response = (responses >= 0).any(axis=2).T
    row, time = np.nonzero(has_response)
    last = np.append(row[1:] != row[:-1], True)
    start, total_length = response_starts[time, row], (transcript >= 0).sum(axis=1)[row]
    end = np.where(last, total_length, np.append(start[1:], 0))
    position = np.arange(transcript.shape[1])

    def prefix(count: np.ndarray) -> View:
        return View(np.where(position < count[:, None], transcript[row], -1).astype("int32"))

    first = np.append(True, last[:-1])
    number = rewards[time, row].astype("float32")
    action = responses[time, row].astype("int32")
    return Transition(prefix(start), action, number, last, np.zeros_like(last), prefix(end), first)


def add_privileged(steps: Transition, hidden_tokens: Int[np.ndarray, "row token"]) -> Transition:
    """Add privileged observations: ``hidden_tokens`` of each dialogue, followed by the text so far."""
    hidden = hidden_tokens[np.cumsum(steps.is_first) - 1].astype("int32")
    privileged, next_privileged = (
        np.concatenate([hidden, view.observation], axis=1) for view in (steps.view, steps.next_view)
    )
    return dataclasses.replace(steps, privileged=privileged, next_privileged=next_privileged)

"""The one stream of events that the terminal, the run store, trackers and a user's callbacks read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

KINDS = ("start", "progress", "metrics", "evaluation", "checkpoint", "warning", "done")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    ``kind`` is one of :data:`KINDS`; ``step`` counts environment steps (transitions) per seed so far;
    ``data`` holds plain numbers, strings, lists and dictionaries, which JSON can carry:

    - ``start``: ``config`` (the content of run.json), ``device``, ``planned_bytes``, ``run`` (directory);
    - ``progress``: ``fraction`` in [0, 1], ``steps_per_second`` (all seeds together), ``seconds_left``,
      ``elapsed`` (seconds);
    - ``metrics``: ``rows``, one dictionary per seed with ``step``, ``seed``, ``episodes``,
      ``episode_return``, ``episode_length`` and the method's metrics; ``None`` where nothing was measured;
    - ``evaluation``: ``greedy`` and ``sampled``, episode returns per seed; ``sampled`` may be ``None``;
    - ``checkpoint``: ``path``, ``seconds``;
    - ``warning``: ``message``;
    - ``done``: ``reason`` (``finished``, ``stopped`` or ``interrupted``), ``seconds``.
    """

    kind: str
    step: int
    data: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse a kind that no listener knows."""
        if self.kind not in KINDS:
            raise ValueError(f"unknown event kind {self.kind!r}: it is one of {', '.join(KINDS)}")


Listener = Callable[[Event], bool | None]
"""Receives every event, in order. Returning ``True`` asks the run to stop after this event."""


class Bus:
    """Hands every event to every listener, in the order in which they were given."""

    def __init__(self, listeners: Iterable[Listener] = ()):
        self.listeners = list(listeners)

    def emit(self, kind: str, step: int, **data: Any) -> bool:
        """Tell all listeners, and return whether any of them asked to stop.

        What a listener raises is not caught: a callback that fails ends the run with its own traceback.
        """
        event = Event(kind, step, data)
        answers = [listener(event) for listener in self.listeners]  # a list: all of them hear it
        return any(answer is True for answer in answers)

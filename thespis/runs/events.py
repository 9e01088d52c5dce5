"""The event stream of a run, for the terminal, the run directory, trackers and callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

EVENT_KINDS = ("start", "memory", "progress", "metrics", "evaluation", "held_out", "checkpoint", "warning", "done")


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a run.

    ``kind`` is one of :data:`EVENT_KINDS`; ``step`` counts environment steps (transitions) per seed so far;
    ``data`` holds plain numbers, strings, lists and dictionaries that fit into JSON:

    - ``start``: ``config`` (the content of run.json), ``device``, ``planned_bytes``, ``run`` (directory); for a run
      that is one of several stages also its name ``stage``, and ``stages``, the directory of all;
    - ``memory``: ``working_bytes``, memory for intermediate results of the largest program, known once it is compiled;
    - ``progress``: ``fraction`` in [0, 1], ``steps_per_second`` (all seeds together), ``seconds_left``,
      ``elapsed`` (seconds);
    - ``metrics``: ``rows``, one dictionary per seed with ``step``, ``seed``, ``episodes``,
      ``episode_return``, ``episode_length`` and the method's metrics; ``None`` where nothing was measured;
    - ``evaluation``: ``greedy`` and ``sampled``, episode returns per seed; ``sampled`` may be ``None``;
    - ``held_out``: ``metrics``, values per seed by name, on held-out data;
    - ``checkpoint``: ``path``, ``seconds``;
    - ``warning``: ``message``;
    - ``done``: ``reason`` (``finished``, ``stopped`` or ``interrupted``), ``seconds``.
    """

    kind: str
    step: int
    data: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise an error for an unknown kind of event."""
        if self.kind not in EVENT_KINDS:
            raise ValueError(f"unknown event kind {self.kind!r}: it is one of {', '.join(EVENT_KINDS)}")


Callback = Callable[[Event], bool | None]
"""Called with every event, in order. Returning ``True`` asks the run to stop after this event."""


class EventBus:
    """Passes every event to all callbacks, in the order of registration."""

    def __init__(self, callbacks: Iterable[Callback] = ()):
        self.callbacks = list(callbacks)

    def emit(self, kind: str, step: int, **data: Any) -> bool:
        """Call all callbacks; returns whether any of them asked to stop.

        Exceptions are not caught: a callback that fails ends the run with its own traceback.
        """
        event = Event(kind, step, data)
        results = [callback(event) for callback in self.callbacks]  # a list: all of them are called
        return any(result is True for result in results)

"""Where the cue of a memory task matters: what an environment with a cue says of itself, for measures of memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from jaxtyping import Array, Int


@dataclasses.dataclass(frozen=True)
class CueTask:
    """First step at which the cue of an episode matters: after ``num_steps`` steps, all with the same ``action``."""

    num_steps: int
    action: int
    num_cues: int
    cue: Callable[[Any], Int[Array, ""]]
    """The cue of an episode, from the environment's state."""


class HasCue(Protocol):
    """An environment whose episodes begin with a cue that is needed later."""

    def cue_task(self) -> CueTask:
        """Where the cue matters first."""
        ...

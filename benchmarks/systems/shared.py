"""What the scripts of all systems share: reading the work, the clock, and the one line they answer with."""

from __future__ import annotations

import json
import resource
import sys
import time
from types import SimpleNamespace

BEGAN = time.perf_counter()
TARGET_EVERY = 100
"""Updates between copies of DQN's net to its target."""


def work() -> SimpleNamespace:
    """The work given on the command line; ``bare`` is the environment's name without its library."""
    job = json.loads(sys.argv[1])
    return SimpleNamespace(**job, bare=job["env"].rpartition(":")[2])


class Stopwatch:
    """Reads the clock when ``begin`` steps are made and again when ``steps`` more are."""

    def __init__(self, begin: int, steps: int):
        self.begin, self.end = begin, begin + steps
        self.marks: list[tuple[int, float]] = []

    def at(self, step: int) -> bool:
        """Tell it how many steps are made; true as soon as enough are."""
        due = (self.begin, self.end)[min(len(self.marks), 1)]
        if step >= due and len(self.marks) < 2:
            self.marks.append((step, time.perf_counter()))
        return len(self.marks) == 2

    def answer(self, **more: object) -> None:
        """Print what was measured."""
        (first, since), (last, until) = self.marks
        answer(last - first, until - since, since - BEGAN, **more)


def answer(steps: int, seconds: float, before: float, **more: object) -> None:
    """Print one line: steps (of one seed) and seconds of the measured part, seconds before it, peak memory in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"steps": steps, "seconds": seconds, "before": before, "peak_mb": peak} | more))

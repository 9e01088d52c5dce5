"""Shared by all systems' scripts: reading the work, the stopwatch, and the line of results."""

from __future__ import annotations

import json
import resource
import sys
import time
from types import SimpleNamespace

START_TIME = time.perf_counter()
TARGET_EVERY = 100
"""Updates between copies of DQN's network to its target."""
MINATAR_FILTERS = 16
DQN_INTERVAL = 4
"""Steps of all environments between DQN's updates from images."""
DQN_BUFFER_SIZE = 100_000


def work() -> SimpleNamespace:
    """The work from the command line; ``bare`` is the environment's name without its library."""
    job = json.loads(sys.argv[1])
    return SimpleNamespace(**job, bare=job["env"].rpartition(":")[2])


class Stopwatch:
    """Reads the clock after ``begin`` steps and again after ``steps`` more."""

    def __init__(self, begin: int, steps: int):
        self.begin, self.end = begin, begin + steps
        self.marks: list[tuple[int, float]] = []

    def at(self, step: int) -> bool:
        """Record the number of steps; returns whether the measurement is complete."""
        due = (self.begin, self.end)[min(len(self.marks), 1)]
        if step >= due and len(self.marks) < 2:
            self.marks.append((step, time.perf_counter()))
        return len(self.marks) == 2

    def print_result(self, **more: object) -> None:
        """Print the result."""
        (first, start), (last, end) = self.marks
        print_result(last - first, end - start, start - START_TIME, **more)


def print_result(steps: int, seconds: float, before: float, **more: object) -> None:
    """Print one line: steps (of one seed) and seconds of the measured part, seconds before it, peak memory in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"steps": steps, "seconds": seconds, "before": before, "peak_mb": peak} | more))

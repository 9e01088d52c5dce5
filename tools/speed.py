"""Slowness of this machine relative to the one that set the time budget of ``make test``: ``1.0`` or more."""

from __future__ import annotations

import time

REFERENCE = 0.21
"""Seconds of :func:`work` on that machine, the best of five."""


def work() -> float:
    """Seconds of a fixed loop in plain Python, which is most of what tests do besides compilation."""
    start = time.perf_counter()
    words = {}
    for i in range(2_000_000):
        words[i % 1_000] = words.get(i % 997, 0) + i
    return time.perf_counter() - start


def main() -> None:
    """Print the factor with two digits; a faster machine counts as 1."""
    print(f"{max(min(work() for _ in range(5)) / REFERENCE, 1.0):.2f}")


if __name__ == "__main__":
    main()

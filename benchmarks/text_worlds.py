"""What the built-in conversations are worth to their demonstrators: writes the table of ``docs/text-worlds.md``.

    python benchmarks/text_worlds.py                     # 2,000 episodes of each: a few minutes, no timing

A demonstrator that only wanders says anything that has the form of an utterance: it is the player at random.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from performance_page import between_marks

from thespis.core.spaces import Text
from thespis.envs.text import naming
from thespis.envs.text.task import Spoken
from thespis.tiny import demonstrations

PAGE = Path(__file__).parent.parent / "docs" / "text-worlds.md"
HEAD = [
    "| world | words | turns | ids of an utterance | ids in all | demonstrated on average | best script | demonstrator "
    "| at random |",
    "|---|---|---|---|---|---|---|---|---|",
]


def row(name: str, episodes: int) -> str:
    """A line of the table."""
    task: Any = naming.world(name).task  # pyright: ignore[reportAttributeAccessIssue]  # all have `wandering`
    worths, told = [], task.manners
    lost = {"lost": 0.0} if "lost" in type(task).__dataclass_fields__ else {}
    for default, wandering in ((False, 0.0), (True, task.wandering), (False, 1.0)):
        world = Spoken(task if default else type(task)(wandering=wandering, **lost))
        transcript, _, _, earned = demonstrations(world, episodes)
        worths.append(f"{np.mean(earned):.3f}")
        if default:
            worths[-1] += f" ({task.lost if lost else wandering})"
            length = np.mean(np.sum(np.asarray(transcript) >= 0, axis=-1))
    seen = Spoken(task).spec.observation
    assert isinstance(seen, Text)
    cells = told.vocabulary.size, told.turns, told.utterance, seen.length, f"{length:.0f}", *worths
    return f"| `{told.name}` | " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    episodes = parser.parse_args().episodes
    table = "\n".join([*HEAD, *(row(name, episodes) for name in naming.TASKS)])
    print(table)
    between_marks(PAGE, table, "conversations")


if __name__ == "__main__":
    main()

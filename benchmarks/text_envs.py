"""Returns of demonstrators in the built-in text environments; writes the table of ``docs/text-environments.md``.

    python benchmarks/text_envs.py                     # 2,000 episodes of each: a few minutes

A demonstrator with noise 1 gives random responses of valid form.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from performance_page import replace_between_marks

from thespis.core.spaces import Text
from thespis.envs.text import registry
from thespis.envs.text.task import TextEnv
from thespis.training.demonstrations import demonstration_returns

PAGE = Path(__file__).parent.parent / "docs" / "text-environments.md"
HEAD = [
    "| environment | words | turns | tokens of a response | tokens, all | tokens, mean demonstration | best script "
    "| demonstrator | random |",
    "|---|---|---|---|---|---|---|---|---|",
]


def row(name: str, episodes: int) -> str:
    """A line of the table: sizes, and mean returns of the best script, of the demonstrator and of random responses."""
    task: Any = registry.make_text_env(name).task  # pyright: ignore[reportAttributeAccessIssue]  # all have `demonstrator_noise`
    task_spec = task.task_spec
    # the maze's demonstrator does not know the way in some cells; the others err at random
    clean = {"demonstrator_random_cells": 0.0} if hasattr(task, "demonstrator_random_cells") else {}
    scripts = {
        "best": dataclasses.replace(task, demonstrator_noise=0.0, **clean),
        "demonstrator": task,
        "random": dataclasses.replace(task, demonstrator_noise=1.0, **clean),
    }
    returns = {}
    for script, variant in scripts.items():
        transcript, _, _, episode_returns = demonstration_returns(TextEnv(variant), episodes)
        returns[script] = f"{np.mean(episode_returns):.3f}"
        if script == "demonstrator":
            num_tokens = np.mean(np.sum(np.asarray(transcript) >= 0, axis=-1))
    returns["demonstrator"] += f" ({task.demonstrator_random_cells if clean else task.demonstrator_noise})"
    space = TextEnv(task).spec.observation_space
    assert isinstance(space, Text)
    sizes = task_spec.vocabulary.size, task_spec.max_turns, task_spec.max_response_tokens, space.max_length
    cells = *sizes, f"{num_tokens:.0f}", *returns.values()
    return f"| `text:{name}` | " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    episodes = parser.parse_args().episodes
    table = "\n".join([*HEAD, *(row(name, episodes) for name in registry.TASK_NAMES)])
    print(table)
    replace_between_marks(PAGE, table, "conversations")


if __name__ == "__main__":
    main()

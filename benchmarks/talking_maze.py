"""A tiny model in the text maze: what it does after its demonstrations alone, and after learning by itself.

    python benchmarks/talking_maze.py --seeds 3          # writes benchmarks/results/talking-maze.json

The seeds learn one after the other, each in a run of its own. The time of a seed holds compiling and training, that of
the first one the lesson too, which is given once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import thespis

WORLD = "text:maze"
SETTINGS: dict[str, Any] = {
    "credit": "TurnCritic", "credit.discount": 0.95, "value_weight": 0.1, "minibatch": 16,
    "learning_rate": "Annealed", "learning_rate.first": 1.5e-4, "learning_rate.steps": 840,
}  # fmt: skip
OUT = Path(__file__).parent / "results" / "talking-maze.json"


def success(run: Any, episodes: int) -> dict[str, float]:
    """Shares of episodes that arrive."""
    modes = {"greedy": True, "sampled": False}
    return {name: float(run.play(episodes, greedy=greedy).returns.mean()) for name, greedy in modes.items()}


def one(seed: int, steps: int, episodes: int, out: Path) -> dict[str, Any]:
    """A seed's figures."""
    began, held = time.perf_counter(), {"learning_rate": 0.0}
    told = thespis.train("ppo-lm", WORLD, steps=1, seeds=[seed], out=out / f"told-{seed}", settings=held)
    run = thespis.train("ppo-lm", WORLD, steps=steps, seeds=[seed], settings=SETTINGS, out=out / f"learnt-{seed}")
    seconds = round(time.perf_counter() - began)
    imitation, after = (success(each, episodes) for each in (told, run))
    return {"seed": seed, "imitation": imitation, "after": after, "seconds": seconds}


def main() -> None:
    """All seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--episodes", type=int, default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        os.environ["XDG_CACHE_HOME"] = kept  # the lesson is part of the work
        found = []
        for seed in range(asked.seeds):
            found.append(one(seed, asked.steps, asked.episodes, Path(kept)))
            print(json.dumps(found[-1]), flush=True)
    OUT.write_text(json.dumps({"steps": asked.steps, "episodes": asked.episodes, "seeds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""A small language model in the text maze: success after imitation of demonstrations, and after PPO.

    python benchmarks/lm_maze.py --seeds 3          # writes benchmarks/results/lm-maze.json

Seeds train one after the other, each in its own run. The time of a seed includes compilation and training; that of the
first seed also includes pretraining, which is done once.
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

ENV = "text:maze"
SETTINGS: dict[str, Any] = {
    "advantage_estimator": "TurnGAE",
    "advantage_estimator.discount": 0.95,
    "vf_coef": 0.1,
    "minibatch_size": 16,
    "learning_rate": "LinearSchedule",
    "learning_rate.init_value": 1.5e-4,
    "learning_rate.transition_steps": 840,
}
OUT = Path(__file__).parent / "results" / "lm-maze.json"


def success(run: Any, episodes: int) -> dict[str, float]:
    """Shares of episodes that reach the goal."""
    modes = {"greedy": True, "sampled": False}
    return {name: float(run.play(episodes, greedy=greedy).returns.mean()) for name, greedy in modes.items()}


def run_seed(seed: int, steps: int, episodes: int, out: Path) -> dict[str, Any]:
    """Results of one seed."""
    start, frozen = time.perf_counter(), {"learning_rate": 0.0}
    imitation_run = thespis.train("ppo-lm", ENV, steps=1, seeds=[seed], out=out / f"imitation-{seed}", settings=frozen)
    trained_run = thespis.train(
        "ppo-lm", ENV, steps=steps, seeds=[seed], settings=SETTINGS, out=out / f"trained-{seed}"
    )
    seconds = round(time.perf_counter() - start)
    imitation, after = (success(run, episodes) for run in (imitation_run, trained_run))
    return {"seed": seed, "imitation": imitation, "after": after, "seconds": seconds}


def main() -> None:
    """All seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--episodes", type=int, default=1_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # pretraining is part of the work
        results = []
        for seed in range(args.seeds):
            results.append(run_seed(seed, args.steps, args.episodes, Path(folder)))
            print(json.dumps(results[-1]), flush=True)
    OUT.write_text(json.dumps({"steps": args.steps, "episodes": args.episodes, "seeds": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How much faster slow worlds become with workers: pairs of runs, one without and one with, in turn.

    python benchmarks/workers.py 8 32      # environments: a case for each

The world sleeps for 5 ms a step, as a simulator on another machine would keep one waiting. Rates are steps per second
of training, start and compilation not counted.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from bench import machine

HERE = Path(__file__).parent
SECONDS, WORKERS, LENGTH, STEPS, PAIRS = 0.005, 4, 32, 4096, 5
RESULTS = HERE / "results" / "workers.json"


class Sleeps(gymnasium.Env):
    """A point that is pushed about; a step takes ``SECONDS``."""

    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return self.look(), {}

    def step(self, action):
        time.sleep(SECONDS)
        self.place = float(np.clip(self.place + 0.3 * float(action[0]), -5, 5))
        self.steps += 1
        return self.look(), -abs(self.place), False, self.steps == 100, {}

    def look(self):
        return np.array([self.place, self.steps / 100], np.float32)


def rate(envs: int, workers: int) -> float:
    """Steps per second of one run."""
    with tempfile.TemporaryDirectory() as out:
        words = ["train", "ppo", "--env", "workers:Sleeps", "--envs", envs, "--steps", STEPS, "--workers", workers]
        words += ["--set", f"length={LENGTH}", "--episodes", 1, "--quiet", "--out", f"{out}/run"]
        command = [sys.executable, "-m", "thespis", *map(str, words)]
        environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        subprocess.run(command, env=environment | {"JAX_PLATFORMS": "cpu"}, check=True, capture_output=True)
        *_, last = csv.DictReader((Path(out) / "run" / "progress.csv").open())
    return float(last["step"]) / float(last["elapsed"])


def case(envs: int) -> dict[str, Any]:
    """Pairs of runs in so many environments."""
    pairs = [{"none": rate(envs, 0), "workers": rate(envs, WORKERS)} for _ in range(PAIRS)]
    ratios = [pair["workers"] / pair["none"] for pair in pairs]
    work = {"workers": WORKERS, "seconds_a_step": SECONDS, "length": LENGTH, "steps": STEPS}
    return work | {"rates": pairs, "ratios": ratios, "median": statistics.median(ratios), "machine": machine()}


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description="Measure what workers are worth in a slow world.")
    parser.add_argument("envs", nargs="+", type=int, help="environments, of each case: 8 32")
    for envs in parser.parse_args().envs:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        found = kept | {str(envs): case(envs)}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found[str(envs)], indent=1))


if __name__ == "__main__":
    main()

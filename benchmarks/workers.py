"""Speedup by Ray workers in slow environments: alternating pairs of runs without and with workers.

    python benchmarks/workers.py 8 32      # environments: a case for each

The environment sleeps for 5 ms per step, like a simulator on another machine. Rates are steps per second of training,
without start and compilation.
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


class SlowEnv(gymnasium.Env):
    """A point on a line, moved by actions; a step takes ``SECONDS``."""

    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.uniform(-1, 1), 0
        return self._observe(), {}

    def step(self, action):
        time.sleep(SECONDS)
        self.position = float(np.clip(self.position + 0.3 * float(action[0]), -5, 5))
        self.steps += 1
        return self._observe(), -abs(self.position), False, self.steps == 100, {}

    def _observe(self):
        return np.array([self.position, self.steps / 100], np.float32)


def rate(envs: int, workers: int) -> float:
    """Steps per second of one run."""
    with tempfile.TemporaryDirectory() as out:
        words = ["train", "ppo", "--env", "workers:SlowEnv", "--envs", envs, "--steps", STEPS, "--workers", workers]
        words += ["--set", f"num_steps={LENGTH}", "--episodes", 1, "--quiet", "--out", f"{out}/run"]
        command = [sys.executable, "-m", "thespis", *map(str, words)]
        environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        subprocess.run(command, env=environment | {"JAX_PLATFORMS": "cpu"}, check=True, capture_output=True)
        *_, last = csv.DictReader((Path(out) / "run" / "progress.csv").open())
    return float(last["step"]) / float(last["elapsed"])


def case(envs: int) -> dict[str, Any]:
    """Pairs of runs with ``envs`` environments."""
    pairs = [{"none": rate(envs, 0), "workers": rate(envs, WORKERS)} for _ in range(PAIRS)]
    ratios = [pair["workers"] / pair["none"] for pair in pairs]
    work = {"workers": WORKERS, "seconds_a_step": SECONDS, "length": LENGTH, "steps": STEPS}
    return work | {"rates": pairs, "ratios": ratios, "median": statistics.median(ratios), "machine": machine()}


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="Measure the speedup by workers in a slow environment.")
    parser.add_argument("envs", nargs="+", type=int, help="number of environments of each case: 8 32")
    for envs in parser.parse_args().envs:
        saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results = saved | {str(envs): case(envs)}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(json.dumps(results[str(envs)], indent=1))


if __name__ == "__main__":
    main()

"""Time to train a policy that hovers a quadrotor, and its evaluation in an independent simulator.

``python benchmarks/quadrotor/hover.py [--seeds N] [--busy]``. Our time is that of the whole process, with an empty
and with a filled compilation cache; RLtools trains with as many steps and updates on its own quadrotor, without its
compilation. Nothing else may run meanwhile. ``judge.py`` describes the evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bench import RESULTS, machine, python_of, refuse_busy_machine  # noqa: E402
from judge import FLIGHTS, judge  # noqa: E402
from ours import EVERY, STEPS, WARMUP  # noqa: E402

TARGET = {"warm_seconds": 15.0, "cold_seconds": 40.0, "held": 0.95}


def train_seconds(task: str, seed: int, directory: Path, cache: Path) -> float:
    """Seconds of one training in a separate process."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(HERE / "ours.py"), task, str(seed), str(directory)]
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def evaluate(task: str, directory: Path) -> dict[str, float]:
    """Evaluation of the greedy policy of a run's first seed."""
    import jax

    import thespis
    from thespis.core.contracts import Mode
    from thespis.core.records import View
    from thespis.runtime.keys import seed_key

    run = thespis.load(directory)
    policy = run.method.policy(jax.tree.map(lambda x: x[0], run.states), Mode.EXPLOIT)
    memory = run.method.init_memory(policy, FLIGHTS)
    act = jax.jit(lambda obs: run.method.act(policy, memory, View(obs), seed_key(0))[0])
    history = (run.spec.observation_space.shape[0] - 18) // 4  # pyright: ignore[reportAttributeAccessIssue]
    return judge(lambda obs: np.asarray(act(obs)), history, task)


def ours(task: str, seeds: int, scratch: Path) -> dict[str, Any]:
    """Times and evaluations of every seed; the first one starts with an empty cache."""
    rows = []
    for seed in range(seeds):
        directory = scratch / f"{task}-{seed}"
        seconds = train_seconds(task, seed, directory, scratch / f"cache-{task}")
        rows.append({"seconds": seconds, "timing": json.loads((directory / "timing.json").read_text())})
        rows[-1] |= evaluate(task, directory)
        print(task, seed, rows[-1], flush=True)
    again = train_seconds(task, 0, scratch / f"{task}-again", scratch / f"cache-{task}")
    warm = [row["seconds"] for row in rows[1:]] + [again]
    return {"cold_seconds": rows[0]["seconds"], "warm_seconds": statistics.median(warm), "seeds": rows}


def rltools() -> dict[str, Any]:
    """Seconds of RLtools' training with one or two threads, whichever is faster."""
    command = [python_of("rltools"), str(HERE / "by_rltools.py"), str(STEPS), str(WARMUP), str(EVERY)]
    results = []
    for threads in ("1", "2"):
        environment = os.environ | {"MKL_NUM_THREADS": threads}
        process = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
        results.append(json.loads(process.stdout.strip().splitlines()[-1]) | {"threads": threads})
    return min(results, key=lambda row: row["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a hovering policy and evaluate it.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="measure even on a busy machine")
    args = parser.parse_args()
    if not args.busy:
        refuse_busy_machine()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        result: dict[str, Any] = {task: ours(task, args.seeds, Path(scratch)) for task in ("published", "l2f")}
    peer = rltools()
    trainings = [row["timing"]["program"] for row in result["published"]["seeds"]]
    result |= {"rltools": peer, "target": TARGET, "flights": FLIGHTS, "steps": STEPS, "every": EVERY}
    result["ratio"] = statistics.median(trainings) / peer["seconds"]
    packages = {name: version(name) for name in ("thespis-rl", "jax", "jaxlib", "l2f", "numpy")}
    result |= {"machine": machine() | {"load_before": load}, "versions": packages | {"rltools": "2.2.1"}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "quadrotor.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

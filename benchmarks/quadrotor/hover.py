"""From a command to a policy that holds a quadrotor in somebody else's simulator, and how long that takes.

``python benchmarks/quadrotor/hover.py [--seeds N] [--busy]``. The clock of ours runs from the start of a process to its
end, with an empty and with a filled compile cache; RLtools trains with as many steps and updates on its own quadrotor,
its compiling not counted. Nothing else may run meanwhile. The judge is told in ``judge.py``.
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

from bench import RESULTS, machine, python_of, refuse_a_busy_machine  # noqa: E402
from judge import FLIGHTS, judge  # noqa: E402
from ours import EVERY, STEPS, WARMUP  # noqa: E402

TARGET = {"warm_seconds": 15.0, "cold_seconds": 40.0, "held": 0.95}


def trained(task: str, seed: int, directory: Path, cache: Path) -> float:
    """Seconds of one training, in a process of its own."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(HERE / "ours.py"), task, str(seed), str(directory)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def judged(task: str, directory: Path) -> dict[str, float]:
    """What the judge says of the greedy policy of a run's first seed."""
    import jax

    import thespis
    from thespis.core.contracts import Mode
    from thespis.core.keys import key_of
    from thespis.core.records import View

    run = thespis.load(directory)
    policy = run.method.policy(jax.tree.map(lambda x: x[0], run.states), Mode.EXPLOIT)
    memory = run.method.begin(policy, FLIGHTS)
    act = jax.jit(lambda seen: run.method.act(policy, memory, View(seen), key_of(0))[0])
    history = (run.spec.observation.shape[0] - 18) // 4  # pyright: ignore[reportAttributeAccessIssue]
    return judge(lambda seen: np.asarray(act(seen)), history, task)


def ours(task: str, seeds: int, scratch: Path) -> dict[str, Any]:
    """Times and verdicts of every seed; the first finds an empty cache."""
    rows = []
    for seed in range(seeds):
        directory = scratch / f"{task}-{seed}"
        seconds = trained(task, seed, directory, scratch / f"cache-{task}")
        rows.append({"seconds": seconds, "timing": json.loads((directory / "timing.json").read_text())})
        rows[-1] |= judged(task, directory)
        print(task, seed, rows[-1], flush=True)
    again = trained(task, 0, scratch / f"{task}-again", scratch / f"cache-{task}")
    warm = [row["seconds"] for row in rows[1:]] + [again]
    return {"cold_seconds": rows[0]["seconds"], "warm_seconds": statistics.median(warm), "seeds": rows}


def rltools() -> dict[str, Any]:
    """Seconds of RLtools' training, the better of one thread and two."""
    command = [python_of("rltools"), str(HERE / "by_rltools.py"), str(STEPS), str(WARMUP), str(EVERY)]
    found = []
    for threads in ("1", "2"):
        environment = os.environ | {"MKL_NUM_THREADS": threads}
        done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]) | {"threads": threads})
    return min(found, key=lambda row: row["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a hovering policy, and have it judged.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="measure on a busy machine all the same")
    asked = parser.parse_args()
    if not asked.busy:
        refuse_a_busy_machine()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        found: dict[str, Any] = {task: ours(task, asked.seeds, Path(scratch)) for task in ("published", "l2f")}
    peer = rltools()
    trainings = [row["timing"]["program"] for row in found["published"]["seeds"]]
    found |= {"rltools": peer, "target": TARGET, "flights": FLIGHTS, "steps": STEPS, "every": EVERY}
    found["ratio"] = statistics.median(trainings) / peer["seconds"]
    packages = {name: version(name) for name in ("thespis", "jax", "jaxlib", "l2f", "numpy")}
    found |= {"machine": machine() | {"load_before": load}, "versions": packages | {"rltools": "2.2.1"}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "quadrotor.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Cost of replay: time of a sampled batch, and memory against the planned size.

    python benchmarks/replay.py                          # 1,000,000 transitions of each kind: needs 8 GB
    python benchmarks/replay.py --transitions 100000     # fewer, and nothing is saved

Every case runs in a separate process, so that its peak memory is its own. A compiled loop fills the ring, as a run
does; then a separate program samples batches, and each is waited for. Writes ``results/replay.json`` and the table of
``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine, refuse_busy_machine
from performance_page import replace_between_marks

HERE = Path(__file__).parent
RESULT, PAGE = HERE / "results" / "replay.json", HERE.parent / "docs" / "performance.md"
MARK = "replay"
TRANSITIONS, BATCHES, EPISODE = 1_000_000, 200, 1000
MILLISECONDS, SHARE = 1.0, 0.05
"""The goal: a batch takes less time, and memory differs from the plan by at most this share."""

CASES = {
    "HalfCheetah-v5": {"observation": [[17], "float32"], "action": [6], "batch": 256, "every": 1, "frames": 0},
    "4 frames of 84 x 84": {"observation": [[4, 84, 84], "uint8"], "action": [], "batch": 32, "every": 4, "frames": 4},
}
"""Shapes of one transition, batch sizes, steps between batches, and stacked frames."""


def measure(work: dict[str, Any], transitions: int) -> dict[str, float]:
    """Fill and sample in this process. Megabytes are 10**6 bytes; times are of single batches in milliseconds."""
    import jax
    import jax.numpy as jnp

    from thespis.data.feeds import Replay
    from thespis.runtime.keys import seed_key
    from thespis.runtime.memory_budget import tree_bytes

    every, feed = (
        work["every"],
        Replay(transitions, work["batch"], update_interval=work["every"], frame_stack=work["frames"]),
    )
    store = feed.make_store(transitions)
    example = jax.tree.map(lambda x: x[0, 0], synthetic(work, jnp.zeros((1, 1), "int32")))

    def block(i, ring):
        ticks = i * every + jnp.arange(every)
        return store.add(ring, synthetic(work, ticks[:, None]), i * every)

    shapes = jax.eval_shape(lambda: store.init(example, 1))
    written, blocks = jnp.int32(2 * transitions), jnp.int32(2 * transitions // every)
    keys = [jax.block_until_ready(seed_key(i)) for i in range(BATCHES)]
    make = jax.jit(lambda: store.init(example, 1)).lower().compile()
    fill = jax.jit(lambda ring, n: jax.lax.fori_loop(0, n, block, ring), donate_argnums=0)
    fill = fill.lower(shapes, blocks).compile()
    sample = jax.jit(lambda ring, written, key: store.sample(ring, example, (), written, written, key, ()).steps)
    sample = sample.lower(shapes, written, keys[0]).compile()

    Path("/proc/self/clear_refs").write_text("5")  # reset the peak after compilation
    before = resident("VmRSS")
    ring = jax.block_until_ready(fill(make(), blocks))  # everything is written twice
    times = []
    for key in keys:
        start = time.perf_counter()
        steps = jax.block_until_ready(sample(ring, written, key))
        times.append((time.perf_counter() - start) * 1e3)
    peak, planned = resident("VmHWM"), tree_bytes(shapes)
    check(work, steps, transitions)
    return {
        "planned_mb": planned / 1e6,
        "taken_mb": (peak - before) / 1e6,
        "peak_mb": peak / 1e6,
        "taken_of_planned": (peak - before) / planned,
        "median_ms": statistics.median(times),
        "slowest_tenth_ms": statistics.quantiles(times, n=10)[-1],
    }


def synthetic(work: dict[str, Any], ticks: Any) -> Any:
    """Transitions at ``ticks[time, env]``; rewards and observations encode the tick."""
    import jax.numpy as jnp

    from thespis.core.records import Transition, View

    shape, dtype = work["observation"]
    age_of_episode = ticks % EPISODE
    back = jnp.arange(shape[0] - 1, -1, -1) if work["frames"] else jnp.zeros(shape[0], "int32")

    def view_at(newest: Any, age: Any) -> View:
        numbers = (newest[..., None] - jnp.minimum(back, age[..., None])) % 251
        numbers = numbers.reshape(*numbers.shape, *[1] * (len(shape) - 1)).astype(dtype)
        return View(jnp.broadcast_to(numbers, (*ticks.shape, *shape)))

    reward, false = ticks.astype("float32"), jnp.zeros(ticks.shape, bool)
    action = jnp.broadcast_to(reward.reshape(*ticks.shape, *[1] * len(work["action"])), (*ticks.shape, *work["action"]))
    view, next_view = view_at(ticks, age_of_episode), view_at(ticks + 1, age_of_episode + 1)
    return Transition(view, action, reward, false, age_of_episode == EPISODE - 1, next_view, age_of_episode == 0)


def check(work: dict[str, Any], steps: Any, transitions: int) -> None:
    """Exit with one line unless samples equal the last transitions written."""
    import jax
    import numpy as np

    ticks = np.asarray(steps.reward).astype("int32")
    expected = synthetic(work, jax.numpy.asarray(ticks))
    equal = [np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (expected, steps)), strict=True)]
    if not all(equal) or ticks.min() < transitions:
        sys.exit("sampled transitions are not the last ones written")


def resident(field: str) -> int:
    """Current (``VmRSS``) or peak (``VmHWM``) memory of this process in bytes, from Linux."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if match is None:
        sys.exit("memory can be measured on Linux only")
    return int(match[1]) * 1024


def run(name: str, transitions: int) -> dict[str, Any]:
    """One case, measured in a separate process."""
    command = [sys.executable, str(HERE / "replay.py"), "--case", name, "--transitions", str(transitions)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parent)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        sys.exit(f"{name} failed:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def table(result: dict[str, Any]) -> str:
    """All cases in one table, in Markdown."""
    rows = [
        "| replay of | planned, MB | taken, of that | peak of the process, MB | batch | ms, median | slowest tenth |"
    ]
    rows += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for name, row in result["cases"].items():
        memory = "met" if abs(row["taken_of_planned"] - 1) <= SHARE else "missed"
        speed = "met" if row["median_ms"] < MILLISECONDS else "missed"
        memory = f"{row['planned_mb']:,.0f} | {row['taken_of_planned']:.1%}, {memory} | {row['peak_mb']:,.0f}"
        speed = f"{row['median_ms']:.2f}, {speed} | {row['slowest_tenth_ms']:.2f}"
        rows.append(f"| {result['transitions']:,} of {name} | {memory} | {CASES[name]['batch']} | {speed} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what replay costs.")
    parser.add_argument(
        "--transitions", type=int, default=TRANSITIONS, help="of each kind; results with fewer are not saved"
    )
    parser.add_argument("--busy", action="store_true", help="measure even on a busy machine")
    parser.add_argument("--page", action="store_true", help="only write the page from the existing result")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(CASES[args.case], args.transitions)))
        return
    if not args.page:
        if not args.busy and args.transitions == TRANSITIONS:
            refuse_busy_machine()
        result = {"machine": machine(), "busy": args.busy, "transitions": args.transitions, "work": CASES}
        result["cases"] = {name: run(name, args.transitions) for name in CASES}
        print(table(result))
        if args.transitions != TRANSITIONS:
            return
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    replace_between_marks(PAGE, table(json.loads(RESULT.read_text())), MARK)


if __name__ == "__main__":
    main()

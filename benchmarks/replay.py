"""What replay costs: the time of a sampled batch, and the memory that is taken beside what was planned.

    python benchmarks/replay.py                          # 1,000,000 transitions of each kind: needs 8 GB
    python benchmarks/replay.py --transitions 100000     # less, and nothing is kept

Every case is a process of its own, so that its peak of memory is its own. The ring is filled by a compiled loop, as
a run fills it; then batches are drawn by a program of its own, each waited for. Writes ``results/replay.json`` and the
table of ``docs/performance.md``.
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

from bench import machine, refuse_a_busy_machine
from performance_page import between_marks

HERE = Path(__file__).parent
RESULT, PAGE = HERE / "results" / "replay.json", HERE.parent / "docs" / "performance.md"
MARK = "replay"
TRANSITIONS, BATCHES, EPISODE = 1_000_000, 200, 1000
MILLISECONDS, SHARE = 1.0, 0.05
"""The bar: a batch takes less, and memory departs from the plan by no more."""

CASES = {
    "HalfCheetah-v5": {"observation": [[17], "float32"], "action": [6], "batch": 256, "every": 1, "frames": 0},
    "4 frames of 84 x 84": {"observation": [[4, 84, 84], "uint8"], "action": [], "batch": 32, "every": 4, "frames": 4},
}
"""Shapes of one transition, and how many are drawn."""


def measure(work: dict[str, Any], transitions: int) -> dict[str, float]:
    """Fill and draw in this process. Megabytes are 10**6 bytes; times are of single batches in milliseconds."""
    import jax
    import jax.numpy as jnp

    from thespis.core.feeds import Replay
    from thespis.core.keys import key_of
    from thespis.data.stores import store_for
    from thespis.loops.memory import planned_bytes

    every, feed = work["every"], Replay(transitions, work["batch"], every=work["every"], frames=work["frames"])
    store = store_for(feed, transitions)
    example = jax.tree.map(lambda x: x[0, 0], synthetic(work, jnp.zeros((1, 1), "int32")))

    def block(i, ring):
        ticks = i * every + jnp.arange(every)
        return store.add(ring, synthetic(work, ticks[:, None]), i * every)

    shapes = jax.eval_shape(lambda: store.open(example, 1))
    written, blocks = jnp.int32(2 * transitions), jnp.int32(2 * transitions // every)
    keys = [jax.block_until_ready(key_of(i)) for i in range(BATCHES)]
    make = jax.jit(lambda: store.open(example, 1)).lower().compile()
    fill = jax.jit(lambda ring, n: jax.lax.fori_loop(0, n, block, ring), donate_argnums=0)
    fill = fill.lower(shapes, blocks).compile()
    draw = jax.jit(lambda ring, written, key: store.batch(ring, example, (), written, written, key).steps)
    draw = draw.lower(shapes, written, keys[0]).compile()

    Path("/proc/self/clear_refs").write_text("5")  # compiling is over: its peak is forgotten
    before = resident("VmRSS")
    ring = jax.block_until_ready(fill(make(), blocks))  # all of it is written twice
    times = []
    for key in keys:
        began = time.perf_counter()
        steps = jax.block_until_ready(draw(ring, written, key))
        times.append((time.perf_counter() - began) * 1e3)
    peak, planned = resident("VmHWM"), planned_bytes(shapes)
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
    """What happened at ``ticks[time, env]``: rewards count ticks, and so do pictures, in stacks or alone."""
    import jax.numpy as jnp

    from thespis.core.records import Transition, View

    shape, dtype = work["observation"]
    since = ticks % EPISODE
    back = jnp.arange(shape[0] - 1, -1, -1) if work["frames"] else jnp.zeros(shape[0], "int32")

    def seen(newest: Any, age: Any) -> View:
        numbers = (newest[..., None] - jnp.minimum(back, age[..., None])) % 251
        numbers = numbers.reshape(*numbers.shape, *[1] * (len(shape) - 1)).astype(dtype)
        return View(jnp.broadcast_to(numbers, (*ticks.shape, *shape)))

    reward, no = ticks.astype("float32"), jnp.zeros(ticks.shape, bool)
    action = jnp.broadcast_to(reward.reshape(*ticks.shape, *[1] * len(work["action"])), (*ticks.shape, *work["action"]))
    now, after = seen(ticks, since), seen(ticks + 1, since + 1)
    return Transition(now, action, reward, no, since == EPISODE - 1, after, since == 0)


def check(work: dict[str, Any], steps: Any, transitions: int) -> None:
    """End with one line unless what was drawn is what was written last."""
    import jax
    import numpy as np

    ticks = np.asarray(steps.reward).astype("int32")
    told = synthetic(work, jax.numpy.asarray(ticks))
    equal = [np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (told, steps)), strict=True)]
    if not all(equal) or ticks.min() < transitions:
        sys.exit("what was drawn is not what was written last")


def resident(what: str) -> int:
    """Bytes of memory this process holds (``VmRSS``), or held at most (``VmHWM``), as Linux tells."""
    told = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if told is None:
        sys.exit("the memory of a process is read as Linux tells it")
    return int(told[1]) * 1024


def run(name: str, transitions: int) -> dict[str, Any]:
    """One case, measured in a process of its own."""
    command = [sys.executable, str(HERE / "replay.py"), "--case", name, "--transitions", str(transitions)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(found: dict[str, Any]) -> str:
    """All cases in one table, in Markdown."""
    rows = [
        "| replay of | planned, MB | taken, of that | peak of the process, MB | batch | ms, median | slowest tenth |"
    ]
    rows += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for name, told in found["cases"].items():
        memory = "met" if abs(told["taken_of_planned"] - 1) <= SHARE else "missed"
        speed = "met" if told["median_ms"] < MILLISECONDS else "missed"
        memory = f"{told['planned_mb']:,.0f} | {told['taken_of_planned']:.1%}, {memory} | {told['peak_mb']:,.0f}"
        speed = f"{told['median_ms']:.2f}, {speed} | {told['slowest_tenth_ms']:.2f}"
        rows.append(f"| {found['transitions']:,} of {name} | {memory} | {CASES[name]['batch']} | {speed} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what replay costs.")
    parser.add_argument("--transitions", type=int, default=TRANSITIONS, help="of each kind; fewer are not kept")
    parser.add_argument("--busy", action="store_true", help="measure on a busy machine all the same")
    parser.add_argument("--page", action="store_true", help="only write the page from the result that is there")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(measure(CASES[asked.case], asked.transitions)))
        return
    if not asked.page:
        if not asked.busy and asked.transitions == TRANSITIONS:
            refuse_a_busy_machine()
        found = {"machine": machine(), "busy": asked.busy, "transitions": asked.transitions, "work": CASES}
        found["cases"] = {name: run(name, asked.transitions) for name in CASES}
        print(table(found))
        if asked.transitions != TRANSITIONS:
            return
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    between_marks(PAGE, table(json.loads(RESULT.read_text())), MARK)


if __name__ == "__main__":
    main()

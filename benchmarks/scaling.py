"""What training costs on this machine as it grows: in environments, seeds, width and replay.

``python benchmarks/scaling.py [--quick]``: every row runs the compiled loop in a process of its own, so that its peak
of memory is its own. Writes ``results/scaling.json`` and the table of ``docs/scaling.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine, refuse_a_busy_machine
from performance_page import between_marks

HERE = Path(__file__).parent
RESULT, PAGE = HERE / "results" / "scaling.json", HERE.parent / "docs" / "scaling.md"

PPO = {"method": "ppo", "settings": ["length=32", "epochs=4", "minibatch=512"], "envs": 64, "seeds": 1}
DQN = {"method": "dqn", "settings": ["capacity=10000", "batch=64", "every=4", "warmup=1000"], "envs": 16, "seeds": 1}

ROWS = {
    "environments": [PPO | {"envs": n} for n in (16, 64, 256, 1024, 4096)],
    "seeds": [PPO | {"seeds": n} for n in (1, 4, 16)],
    "width": [PPO | {"settings": [*PPO["settings"], f"hidden={n},{n}"]} for n in (64, 256, 1024)],
    "replay": [DQN | {"settings": [f"capacity={n}", *DQN["settings"][1:]]} for n in (10_000, 100_000, 1_000_000)],
}
"""What grows, and the sizes at which it is measured."""

SECONDS, QUICK = 4.0, 0.5


def measure(work: dict[str, Any], seconds: float) -> dict[str, float]:
    """Steps per second (all seeds), milliseconds of one block, and peak and planned memory in MB; in this process."""
    from thespis.assembly import method_from
    from thespis.curricula.fixed import Fixed
    from thespis.envs import registry
    from thespis.feedback.environment import EnvironmentReward
    from thespis.loops.compiled import CompiledLoop
    from thespis.loops.memory import planned_bytes
    from thespis.loops.parts import Parts

    parts = Parts(method_from(work["method"], work["settings"]), EnvironmentReward(), Fixed())
    seeds = list(range(work["seeds"]))
    loop = CompiledLoop(parts, registry.compiled("CartPole-v1"), work["envs"], seeds, 2_000_000)
    carry = loop.advance(loop.init(), loop.warmup + 2)
    blocks, spent, best = 1, 0.0, float("inf")
    while spent < seconds:
        began = time.perf_counter()
        carry = loop.advance(carry, blocks)
        took = time.perf_counter() - began
        spent, best = spent + took, min(best, took / blocks)
        blocks = max(1, int(seconds / 8 / best))
    steps = loop.block_steps * len(seeds)
    return {
        "steps_per_second": steps / best,
        "block_ms": best * 1e3,
        "steps_per_block": steps,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "planned_mb": planned_bytes(loop.shapes()) / 2**20,
    }


def size_of(axis: str, work: dict[str, Any]) -> str:
    """How large the thing that grows is in this row."""
    if axis in ("environments", "seeds"):
        return f"{work[{'environments': 'envs', 'seeds': 'seeds'}[axis]]:,}"
    name = {"width": "hidden=", "replay": "capacity="}[axis]
    text = next(setting for setting in work["settings"] if setting.startswith(name)).removeprefix(name)
    return f"{int(text.split(',')[0]):,}"


def table(found: dict[str, Any]) -> str:
    """All rows in one table, in Markdown."""
    rows = ["| grows | size | steps/s | block, ms | steps per block | peak, MB | of which planned |"]
    rows += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for row in found["rows"]:
        rows.append(
            f"| {row['axis']} | {row['size']} | {row['steps_per_second']:,.0f} | {row['block_ms']:.2f} | "
            f"{row['steps_per_block']:,} | {row['peak_mb']:,.0f} | {row['planned_mb']:,.1f} |"
        )
    return "\n".join(rows)


def run(axis: str, work: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One row, measured in a process of its own."""
    command = [sys.executable, str(HERE / "scaling.py"), "--row", json.dumps(work), "--seconds", str(seconds)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{axis} failed:\n{done.stderr[-2000:]}")
    row = {"axis": axis, "size": size_of(axis, work)} | json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {axis:12} {row['size']:>9} {row['steps_per_second']:12,.0f} steps/s", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what training costs as it grows.")
    parser.add_argument("--quick", action="store_true", help="less time for each row: to see that it runs")
    parser.add_argument("--busy", action="store_true", help="measure on a busy machine all the same")
    parser.add_argument("--page", action="store_true", help="only write the page from the result that is there")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        print(json.dumps(measure(json.loads(asked.row), asked.seconds)))
        return
    if not asked.page:
        if not (asked.busy or asked.quick):
            refuse_a_busy_machine()
        seconds = QUICK if asked.quick else SECONDS
        rows = [run(axis, work, seconds) for axis, works in ROWS.items() for work in works]
        found = {"machine": machine(), "quick": asked.quick, "busy": asked.busy, "work": ROWS, "rows": rows}
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    between_marks(PAGE, table(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()

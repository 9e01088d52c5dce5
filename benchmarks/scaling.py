"""Cost of training as it grows on this machine: in environments, seeds, width and replay size.

``python benchmarks/scaling.py [--quick]``: every row runs the compiled loop in a separate process, so that its peak
memory is its own. Writes ``results/scaling.json`` and the table of ``docs/scaling.md``.
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

from bench import machine, refuse_busy_machine
from performance_page import replace_between_marks

HERE = Path(__file__).parent
RESULT, PAGE = HERE / "results" / "scaling.json", HERE.parent / "docs" / "scaling.md"

PPO = {"method": "ppo", "settings": ["num_steps=32", "num_epochs=4", "minibatch_size=512"], "envs": 64, "seeds": 1}
DQN = {
    "method": "dqn",
    "settings": ["buffer_size=10000", "batch_size=64", "update_interval=4", "learning_starts=1000"],
    "envs": 16,
    "seeds": 1,
}

ROWS = {
    "environments": [PPO | {"envs": n} for n in (16, 64, 256, 1024, 4096)],
    "seeds": [PPO | {"seeds": n} for n in (1, 4, 16)],
    "width": [PPO | {"settings": [*PPO["settings"], f"hidden_sizes={n},{n}"]} for n in (64, 256, 1024)],
    "replay": [DQN | {"settings": [f"buffer_size={n}", *DQN["settings"][1:]]} for n in (10_000, 100_000, 1_000_000)],
}
"""Quantities that grow, and the sizes at which they are measured."""

SECONDS, QUICK = 4.0, 0.5


def measure(work: dict[str, Any], seconds: float) -> dict[str, float]:
    """Steps per second (all seeds), milliseconds of one block, and peak and planned memory in MB; in this process."""
    from thespis.curricula.fixed import FixedCurriculum
    from thespis.envs import registry
    from thespis.feedback.environment import EnvironmentReward
    from thespis.runtime.memory_budget import tree_bytes
    from thespis.training.compiled_loop import CompiledLoop
    from thespis.training.components import Components
    from thespis.training.run_config import make_method

    parts = Components(make_method(work["method"], work["settings"]), EnvironmentReward(), FixedCurriculum())
    seeds = list(range(work["seeds"]))
    loop = CompiledLoop(parts, registry.make_compiled("CartPole-v1"), work["envs"], seeds, 2_000_000)
    carry = loop.advance(loop.init(), loop.warmup_blocks + 2)
    blocks, total, best = 1, 0.0, float("inf")
    while total < seconds:
        start = time.perf_counter()
        carry = loop.advance(carry, blocks)
        elapsed = time.perf_counter() - start
        total, best = total + elapsed, min(best, elapsed / blocks)
        blocks = max(1, int(seconds / 8 / best))
    steps = loop.steps_per_block * len(seeds)
    return {
        "steps_per_second": steps / best,
        "block_ms": best * 1e3,
        "steps_per_block": steps,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "planned_mb": tree_bytes(loop.shapes()) / 2**20,
    }


def size_of(axis: str, work: dict[str, Any]) -> str:
    """The growing size in this row."""
    if axis in ("environments", "seeds"):
        return f"{work[{'environments': 'envs', 'seeds': 'seeds'}[axis]]:,}"
    name = {"width": "hidden_sizes=", "replay": "buffer_size="}[axis]
    text = next(setting for setting in work["settings"] if setting.startswith(name)).removeprefix(name)
    return f"{int(text.split(',')[0]):,}"


def table(result: dict[str, Any]) -> str:
    """All rows in one table, in Markdown."""
    rows = ["| grows | size | steps/s | block, ms | steps per block | peak, MB | of which planned |"]
    rows += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        rows.append(
            f"| {row['axis']} | {row['size']} | {row['steps_per_second']:,.0f} | {row['block_ms']:.2f} | "
            f"{row['steps_per_block']:,} | {row['peak_mb']:,.0f} | {row['planned_mb']:,.1f} |"
        )
    return "\n".join(rows)


def run(axis: str, work: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One row, measured in a separate process."""
    command = [sys.executable, str(HERE / "scaling.py"), "--row", json.dumps(work), "--seconds", str(seconds)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parent)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        sys.exit(f"{axis} failed:\n{process.stderr[-2000:]}")
    row = {"axis": axis, "size": size_of(axis, work)} | json.loads(process.stdout.strip().splitlines()[-1])
    print(f"  {axis:12} {row['size']:>9} {row['steps_per_second']:12,.0f} steps/s", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of training as it grows.")
    parser.add_argument("--quick", action="store_true", help="less time per row, to check that it runs")
    parser.add_argument("--busy", action="store_true", help="measure even on a busy machine")
    parser.add_argument("--page", action="store_true", help="only write the page from the existing result")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        print(json.dumps(measure(json.loads(args.row), args.seconds)))
        return
    if not args.page:
        if not (args.busy or args.quick):
            refuse_busy_machine()
        seconds = QUICK if args.quick else SECONDS
        rows = [run(axis, work, seconds) for axis, works in ROWS.items() for work in works]
        result = {"machine": machine(), "quick": args.quick, "busy": args.busy, "work": ROWS, "rows": rows}
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    replace_between_marks(PAGE, table(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()

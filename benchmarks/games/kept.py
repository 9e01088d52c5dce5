"""Training as ``thespis train`` does it, with a copy of a checkpoint kept every so often, and when it was written."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import thespis
from thespis.core.contracts import Method


def train(method: Method, env: str, steps: int, seeds: list[int], out: Path, every: float) -> None:
    """Train, or go on training, and keep a checkpoint every ``every`` seconds of it.

    Time is that of training alone, once it is compiled: on the clock, and of all cores together.
    """
    kept = beside(out)
    kept.mkdir(parents=True, exist_ok=True)
    log = kept / "times.jsonl"
    before = times(out)[-1] if log.exists() else {"seconds": 0.0, "cpu_seconds": 0.0}
    clock: dict[str, float] = {}

    def keep(event: Any) -> None:
        if event.kind == "checkpoint":
            now = {"seconds": time.monotonic(), "cpu_seconds": time.process_time()}
            if not clock:
                clock.update(now)  # the first chunk compiles
            spent = {key: before[key] + now[key] - clock[key] for key in now}
            with log.open("a") as file:
                file.write(json.dumps({"step": event.step} | spent) + "\n")
            shutil.copy(event.data["path"], kept / f"{event.step}.ckpt")

    if (out / "run.json").exists():
        thespis.resume(out, callbacks=[keep])
    else:
        thespis.train(method, env, steps=steps, seeds=seeds, out=out, callbacks=[keep], checkpoint_seconds=every)


def beside(out: Path) -> Path:
    """Where the copies of a run's checkpoints are."""
    return out.with_name(out.name + "-kept")


def times(out: Path) -> list[dict[str, float]]:
    """Steps and seconds of each checkpoint that was kept."""
    return [json.loads(line) for line in (beside(out) / "times.jsonl").read_text().splitlines()]

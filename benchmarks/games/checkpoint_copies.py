"""Training as by ``thespis train``, with copies of checkpoints at fixed intervals and their training times."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import thespis
from thespis.core.contracts import Method


def train(method: Method, env: str, steps: int, seeds: list[int], out: Path, every: float) -> None:
    """Train or resume, and copy a checkpoint every ``every`` seconds.

    Time is that of training alone, after compilation: wall clock, and CPU time of all cores.
    """
    directory = copies_dir(out)
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "times.jsonl"
    before = times(out)[-1] if log.exists() else {"seconds": 0.0, "cpu_seconds": 0.0}
    start: dict[str, float] = {}

    def copy_checkpoint(event: Any) -> None:
        if event.kind == "checkpoint":
            current = {"seconds": time.monotonic(), "cpu_seconds": time.process_time()}
            if not start:
                start.update(current)  # the first chunk includes compilation
            elapsed = {key: before[key] + current[key] - start[key] for key in current}
            with log.open("a") as file:
                file.write(json.dumps({"step": event.step} | elapsed) + "\n")
            shutil.copy(event.data["path"], directory / f"{event.step}.ckpt")

    if (out / "run.json").exists():
        thespis.resume(out, callbacks=[copy_checkpoint])
    else:
        thespis.train(
            method,
            env,
            steps=steps,
            seeds=seeds,
            out=out,
            callbacks=[copy_checkpoint],
            checkpoint_seconds=every,
            evaluate_every=0,
        )


def copies_dir(out: Path) -> Path:
    """Directory of the copies of a run's checkpoints."""
    return out.with_name(out.name + "-kept")


def times(out: Path) -> list[dict[str, float]]:
    """Steps and seconds of each copied checkpoint."""
    return [json.loads(line) for line in (copies_dir(out) / "times.jsonl").read_text().splitlines()]

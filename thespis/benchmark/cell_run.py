"""Training of one cell of a suite: an ordinary run with its seeds, resumed if it was stopped, and its result.

The run is kept in ``runs`` below the directory of results until the result is written, and then removed. A result of
other settings than the cell has now, of a changed preset for instance, is outdated, and the cell is trained again.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thespis import api
from thespis.benchmark.suite import Cell, PublishedResult, Suite
from thespis.core.errors import UserError
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.run import Run
from thespis.evaluation.statistics import bootstrap_interval, iqm
from thespis.runs.config import from_config, to_config, upgrade_config
from thespis.runs.events import Callback
from thespis.runs.serialization import read_json, to_jsonable
from thespis.runs.system_info import package_versions
from thespis.runtime import disk
from thespis.runtime.vmap_exact import num_cores

NUM_POINTS = 10
"""Evaluations during training, evenly spaced."""


class CellInterrupted(Exception):
    """Raised when a cell's run was interrupted; it is saved."""


def result_path(results: Path, suite: Suite, cell: Cell) -> Path:
    """Where a cell's result is kept."""
    return results / suite.name / f"{cell.file_name}.json"


def read_result(results: Path, suite: Suite, cell: Cell) -> dict[str, Any] | None:
    """A cell's result; ``None`` if there is none. Raises :class:`UserError` for a damaged file."""
    path = result_path(results, suite, cell)
    return read_json(path) if path.is_file() else None


def is_current(cell: Cell, result: dict[str, Any]) -> bool:
    """Whether a result is of the settings, the length, the seeds and the evaluation that the cell has now."""
    config = cell_config(cell)
    try:
        earlier = to_config(from_config(upgrade_config(result["config"]["method"])))
    except UserError:
        return False
    same = all(result["config"][name] == config[name] for name in ("env", "steps", "envs", "seeds"))
    return same and earlier == config["method"] and result["episodes"] == cell.episodes and result["play"] == cell.play


def cell_config(cell: Cell) -> dict[str, Any]:
    """The content of run.json of a cell's run, without the run's metadata."""
    return api.build_config(cell.method, cell.env, **_train_args(cell))


def train_cell(suite: Suite, cell: Cell, results: Path, callbacks: Iterable[Callback] = ()) -> dict[str, Any]:
    """Train a cell, or continue it; write its result and return it.

    Raises :class:`CellInterrupted` if the run was stopped; the same call continues it.
    """
    path = results / "runs" / suite.name / cell.file_name
    with _stopwatch(path.with_suffix(".time.json")) as spent:
        run = _train_or_resume(cell, path, list(callbacks))
    if run.final_scores is None:
        raise CellInterrupted(str(path))
    result = make_result(suite, cell, run, spent)
    target = result_path(results, suite, cell)
    with disk.as_user_error("a result", target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(target) as file:
            file.write((json.dumps(to_jsonable(result), indent=1, allow_nan=False) + "\n").encode())
    shutil.rmtree(path)
    path.with_suffix(".time.json").unlink()
    return result


def make_result(suite: Suite, cell: Cell, run: Run, spent: dict[str, float]) -> dict[str, Any]:
    """The content of a cell's result file. Scores are means over the episodes of each seed."""
    final, config = run.final_scores or {}, run.config
    scores = {play: _seed_means(final[play]["scores"]) for play in ("greedy", "sampled")}
    chosen = np.array(scores[cell.play])
    points = [*run.directory.evaluations(), {"step": final["step"]} | {p: final[p]["scores"] for p in scores}]
    curve = {point["step"]: _seed_means(point[cell.play]) for point in points}
    return {
        "suite": suite.name,
        "method": cell.method,
        "env": cell.env,
        "play": cell.play,
        "episodes": cell.episodes,
        "iqm": iqm(chosen),
        "interval": bootstrap_interval(chosen, bounds=return_bounds(config["env"])),
        "scores": scores,
        "curve": {"steps": list(curve), "scores": list(curve.values())},
        "seconds": spent["wall"],
        "cpu_seconds": spent["cpu"],
        "machine": {"processor": platform.machine(), "cores": num_cores(), "device": config["device"]},
        "versions": package_versions(),
        "date": datetime.date.today().isoformat(),
        "preset": config.get("preset"),
        "config": {name: config[name] for name in ("method", "env", "steps", "envs", "seeds", "loop")},
    }


def reaches(result: dict[str, Any], published: PublishedResult) -> bool:
    """Whether the result's interval, or its IQM alone where there is no interval, reaches the published mean."""
    interval = result["interval"]
    return max(result["iqm"], interval[1] if interval else -np.inf) >= published.mean


def _train_args(cell: Cell) -> dict[str, Any]:
    return {"steps": cell.steps, "seeds": cell.seeds, "preset": cell.preset, "episodes": cell.episodes}


def _train_or_resume(cell: Cell, path: Path, callbacks: list[Callback]) -> Run:
    if (path / "run.json").is_file():
        run = api.load(path)
        earlier = {name: run.config[name] for name in ("method", "steps", "seeds")}
        config = cell_config(cell)
        if earlier == {name: config[name] for name in earlier}:
            return run if run.final_scores is not None else api.resume(path, callbacks=callbacks)
    shutil.rmtree(path, ignore_errors=True)  # of other settings, or not begun
    path.parent.mkdir(parents=True, exist_ok=True)
    every = -(-cell_config(cell)["steps"] // NUM_POINTS)
    return api.train(cell.method, cell.env, **_train_args(cell), evaluate_every=every, out=path, callbacks=callbacks)


def _seed_means(scores: list[list[float]]) -> list[float]:
    return [float(np.mean(episodes)) for episodes in scores]


@contextlib.contextmanager
def _stopwatch(path: Path) -> Iterator[dict[str, float]]:
    """Adds up the wall-clock and the CPU seconds of all attempts at one run, in a file."""
    spent = read_json(path) if path.is_file() else {"wall": 0.0, "cpu": 0.0}
    before, wall, cpu = dict(spent), time.perf_counter(), time.process_time()
    try:
        yield spent
    finally:
        spent["wall"] = before["wall"] + time.perf_counter() - wall
        spent["cpu"] = before["cpu"] + time.process_time() - cpu
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spent))

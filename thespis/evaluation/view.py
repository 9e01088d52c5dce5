"""A run directory as reports and comparisons want to see it: curves per seed, settings, results."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.curve import Curve
from thespis.runs.config import locate, to_config
from thespis.runs.store import COLUMNS, RunDirectory


@dataclasses.dataclass(frozen=True)
class RunView:
    """What is known of a run; ``final`` and ``timing`` are ``None`` where they are not there yet."""

    path: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]
    evaluations: list[dict[str, Any]]
    conversations: list[dict[str, Any]]
    timing: dict[str, float] | None
    final: dict[str, Any] | None

    @property
    def label(self) -> str:
        """The name of the run for legends: its directory's."""
        return self.path.name or self.path.resolve().name

    @property
    def method(self) -> str:
        """The method's short name, or that of its class."""
        return str(self.config.get("method_name") or class_of(self.config.get("method")))

    @property
    def seeds(self) -> list[int]:
        """The training seeds."""
        return list(self.config.get("seeds", [0]))

    @property
    def step(self) -> int:
        """Environment steps per seed so far."""
        return int(self.metrics["step"].max()) if len(self.metrics["step"]) else 0

    def curve(self, column: str, label: str = "") -> Curve:
        """One column of the metrics, a row per training seed."""
        return joint_curve([self], column, label or column)

    def measured(self) -> list[str]:
        """The method's own metrics of which anything was measured."""
        own = [name for name in self.metrics if name not in COLUMNS]
        return [name for name in own if np.isfinite(self.metrics[name]).any()]

    def evaluation_curve(self, label: str = "greedy evaluation") -> Curve | None:
        """Mean greedy episode return of each seed at each evaluation."""
        if not self.evaluations:
            return None
        steps = np.array([float(line["step"]) for line in self.evaluations])
        means = [[_mean(returns) for returns in line["greedy"]] for line in self.evaluations]
        return Curve(label, steps, np.array(means, np.float64).T)


def read(path: str | Path) -> RunView:
    """The run in ``path``, finished or not. Raises :class:`UserError` if there is none."""
    run = RunDirectory.open(path)
    return RunView(
        path=Path(path),
        config=run.config,
        metrics=run.metrics(),
        evaluations=run.evaluations() if (run.path / "evaluations.jsonl").exists() else [],
        conversations=run.conversations(),
        timing=run.read_json("timing.json"),
        final=run.read_json("final.json"),
    )


def joint_curve(runs: Sequence[RunView], column: str, label: str) -> Curve:
    """One column of the metrics of several runs, a row per training seed of each."""
    steps = np.unique(np.concatenate([run.metrics["step"] for run in runs]))
    rows = []
    for run in runs:
        for seed in np.unique(run.metrics["seed"]):
            own = run.metrics["seed"] == seed
            row = np.full(len(steps), np.nan)
            row[np.searchsorted(steps, run.metrics["step"][own])] = run.metrics[column][own]
            rows.append(row)
    return Curve(label, steps, np.array(rows).reshape(len(rows), len(steps)))


def class_of(config: Any) -> str:
    """The bare class name of a configured object; empty if it is none."""
    name = config.get("class", "") if isinstance(config, dict) else ""
    return name.rpartition(":")[2]


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of a configured object; an object inside is its class name, then its fields."""
    for name, value in config.items():
        if name == "class":
            continue
        path = prefix + name
        match value:
            case {"class": _}:
                yield path, class_of(value)
                yield from flatten(value, path + ".")
            case {"enum": _, "name": member}:
                yield path, member
            case {"float": text}:
                yield path, text
            case {"function": target}:
                yield path, target
            case {"dict": items}:
                yield from flatten(items, path + ".")
            case _:
                yield path, value


def changed(config: Any) -> set[str]:
    """The paths at which a configured object differs from its class's defaults.

    Empty if the class cannot be asked. Only Thespis's own classes and those that were already imported
    are: looking at a run must not run a stranger's module.
    """
    name = config.get("class", "") if isinstance(config, dict) else ""
    module = name.partition(":")[0]
    if not (module.startswith("thespis.") or module in sys.modules):
        return set()
    try:
        defaults = dict(flatten(to_config(locate(name)())))
    except (UserError, TypeError, ValueError):
        return set()
    return {path for path, value in flatten(config) if path not in defaults or defaults[path] != value}


_FLAGS = ("evaluate_every", "episodes", "lag", "data")  # options on which results depend, and --loop


def command(config: dict[str, Any]) -> str:
    """The shell command that repeats a run, with every setting that is not the default.

    What the command line cannot say, such as a feedback's own settings, is left to Python.
    """
    parts = ["thespis", "train", str(config.get("method_name", "METHOD"))]
    given = {name: config.get(name) for name in ("env", "steps", "envs")}
    given["seeds"] = _seeds(config.get("seeds", [0]))
    options = config.get("options") or {}
    given |= {name: options.get(name) or None for name in _FLAGS} | {"loop": options.get("loop")}
    bonus = {"RandomNetworkDistillation": "rnd", "Counts": "counts"}.get(class_of(config.get("feedback")))
    given |= {"feedback": bonus} if bonus else {}
    for name, value in given.items():
        parts += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    for field, low, high in (config.get("curriculum") or {}).get("ranges", []):
        parts += ["--vary", f"{field}={low}..{high}"]
    method = config.get("method") or {}
    altered = changed(method)
    for path, value in flatten(method):
        parts += ["--set", f"{path}={_setting(value)}"] if path in altered else []
    return shlex.join(parts)


def _seeds(seeds: list[int]) -> str:
    if seeds == list(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def _setting(value: Any) -> str:
    match value:
        case list():
            return ",".join(_setting(item) for item in value)
        case None | bool():
            return str(value).lower()
    return str(value)


def _mean(returns: list[float | None]) -> float:
    known = [r for r in returns if r is not None]
    return float(np.mean(known)) if known else float("nan")

"""Read-only view of a run directory for reports and comparisons: curves per seed, settings, results."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.learning_curve import STEPS_LABEL, UPDATES_LABEL, LearningCurve
from thespis.evaluation.policy_film import Film, read_film
from thespis.feedback.registry import FEEDBACKS
from thespis.methods.registry import METHODS
from thespis.runs.config import import_object, qualified_name, to_config
from thespis.runs.store import BASE_COLUMNS, RunDirectory
from thespis.runs.trust import reading, trust_in
from thespis.training.cast_file import TURNS, seat_classes

_EMPTY = np.zeros(0)


@dataclasses.dataclass(frozen=True)
class RunView:
    """Content of a run directory; ``final`` and ``timing`` are ``None`` until they exist."""

    path: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]
    evaluations: list[dict[str, Any]]
    conversations: list[dict[str, Any]]
    timing: dict[str, float] | None
    final: dict[str, Any] | None
    progress: dict[str, np.ndarray]
    film: Film | None
    held_out: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def label(self) -> str:
        """The name of the run's directory, for legends."""
        return self.path.name or self.path.resolve().name

    @property
    def method_name(self) -> str:
        """The method's short name, or the name of its class."""
        return str(self.config.get("method_name") or class_name(self.config.get("method")))

    @property
    def seeds(self) -> list[int]:
        """Training seeds of the run, in order."""
        return list(self.config.get("seeds", [0]))

    @property
    def step(self) -> int:
        """Environment steps per seed so far."""
        return int(self.metrics["step"].max()) if len(self.metrics["step"]) else 0

    def curve(self, column: str, label: str = "") -> LearningCurve:
        """One column of the metrics, a row per training seed."""
        return curve_over_runs([self], column, label or column)

    @property
    def x_label(self) -> str:
        """What a step of the run is, as a label."""
        return UPDATES_LABEL if self.config.get("loop") == "logged" else STEPS_LABEL

    def seconds(self, steps: np.ndarray) -> np.ndarray:
        """Seconds of training after which ``steps`` were reached, without compilation; ``NaN`` without a record.

        A run that was resumed counts anew each time; its parts are added.
        """
        step, elapsed = self.progress["step"], self.progress["elapsed"]
        if not len(step):
            return np.full(len(steps), np.nan)
        parts = np.diff(elapsed, prepend=0.0)
        total = np.cumsum(np.where(parts < 0, elapsed, parts))
        return np.interp(steps, np.concatenate([[0.0], step]), np.concatenate([[0.0], total]))

    def over_time(self, curve: LearningCurve) -> LearningCurve:
        """A curve of this run over seconds of training."""
        return dataclasses.replace(curve, steps=self.seconds(curve.steps))

    def measured_metrics(self) -> list[str]:
        """The method's own metrics with at least one finite value."""
        method_metrics = [name for name in self.metrics if name not in BASE_COLUMNS]
        return [name for name in method_metrics if np.isfinite(self.metrics[name]).any()]

    def evaluation_curve(self, label: str = "greedy evaluation") -> LearningCurve | None:
        """Mean greedy episode return of each seed at each evaluation."""
        if not self.evaluations:
            return None
        steps = np.array([float(line["step"]) for line in self.evaluations])
        means = [[_mean_return(returns) for returns in line["greedy"]] for line in self.evaluations]
        return LearningCurve(label, steps, np.array(means, np.float64).T, self.x_label)

    def held_out_curve(self, name: str) -> LearningCurve:
        """One metric of the evaluations on held-out data, a row per training seed."""
        steps = np.array([float(line["step"]) for line in self.held_out])
        values = [[np.nan if x is None else x for x in line["metrics"][name]] for line in self.held_out]
        return LearningCurve(name, steps, np.array(values, np.float64).T, self.x_label)


def read_run(path: str | Path) -> RunView:
    """Read the run in ``path``, finished or not. Raises :class:`UserError` if there is none."""
    run = RunDirectory.open(path)
    return RunView(
        path=Path(path),
        config=run.config,
        metrics=run.metrics(),
        evaluations=run.evaluations() if (run.path / "evaluations.jsonl").exists() else [],
        conversations=run.conversations(),
        timing=run.read_json("timing.json"),
        final=run.read_json("final.json"),
        progress=run.progress() if (run.path / "progress.csv").exists() else {"step": _EMPTY, "elapsed": _EMPTY},
        film=read_film(run.path),
        held_out=run.held_out(),
    )


def curve_over_runs(runs: Sequence[RunView], column: str, label: str, *, over_time: bool = False) -> LearningCurve:
    """One column of the metrics of several runs, a row per training seed of each.

    ``over_time``: over seconds of training in place of steps.
    """
    places = [run.seconds(run.metrics["step"]) if over_time else run.metrics["step"] for run in runs]
    steps = np.unique(np.concatenate([place[np.isfinite(place)] for place in places]))
    rows = []
    for run, place in zip(runs, places, strict=True):
        for seed in np.unique(run.metrics["seed"]):
            is_seed = (run.metrics["seed"] == seed) & np.isfinite(place)
            row = np.full(len(steps), np.nan)
            row[np.searchsorted(steps, place[is_seed])] = run.metrics[column][is_seed]
            rows.append(row)
    return LearningCurve(label, steps, np.array(rows).reshape(len(rows), len(steps)), runs[0].x_label)


def class_name(config: Any) -> str:
    """The class name of a configured object without its module; empty for other values."""
    return _class_path(config).rpartition(":")[2]


def _class_path(config: Any) -> str:
    """``module:Class`` of a configured object; empty for other values."""
    return config.get("class", "") if isinstance(config, dict) else ""


def _is_foreign(config: Any) -> bool:
    """Whether a configured object is of a class outside of Thespis."""
    path = _class_path(config)
    return bool(path) and not path.startswith("thespis.")


def flatten_config(config: Any, prefix: str = "", *, with_modules: bool = False) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of a configured object; a nested object gives its class name, then its fields.

    ``with_modules``: the name of a class outside of Thespis is ``module:Class``.
    """
    for name, value in config.items():
        if name == "class":
            continue
        path = prefix + name
        match value:
            case {"class": _}:
                yield path, _class_path(value) if with_modules and _is_foreign(value) else class_name(value)
                yield from flatten_config(value, path + ".", with_modules=with_modules)
            case {"enum": _, "name": member}:
                yield path, member
            case {"float": text}:
                yield path, text
            case {"function": target}:
                yield path, target
            case {"dict": items}:
                yield from flatten_config(items, path + ".", with_modules=with_modules)
            case _:
                yield path, value


def changed_settings(config: Any) -> set[str]:
    """The paths at which a configured object differs from its class's defaults.

    Empty if the defaults are not available. Only classes of Thespis and of modules that are already imported are
    instantiated: reading a run must not import unknown code.
    """
    name = _class_path(config)
    module = name.partition(":")[0]
    if not (module.startswith("thespis.") or module in sys.modules):
        return set()
    try:
        with reading(trust_in(())):
            cls = import_object(name)
        defaults = dict(flatten_config(to_config(cls()))) if isinstance(cls, type) else {}
    except (UserError, TypeError, ValueError):
        return set()
    return {path for path, value in flatten_config(config) if path not in defaults or defaults[path] != value}


FROZEN = "frozen"
"""The name of the feedback that another run has trained."""

_OPTION_FLAGS = ("episodes", "policy_lag", "data", "eval_data")
"""Options on which results depend, besides those that may be 0."""


def train_command(config: dict[str, Any]) -> str:
    """The shell command that repeats a run, with every setting that is not the default.

    Curricula of Thespis other than ranges of parameters are left out.
    """
    method, feedback, curriculum = (config.get(part) or {} for part in ("method", "feedback", "curriculum"))
    named = _class_path(method) if _is_foreign(method) else str(config.get("method_name", "METHOD"))
    parts = ["thespis", "train", CAST_FILE if method.get("seats") else named]
    flags = {name: config.get(name) for name in ("env", "steps", "envs")}
    flags["seeds"] = _format_seeds(config.get("seeds", [0]))
    options = config.get("options") or {}
    flags |= {name: options.get(name) for name in ("evaluate_every", "loop")}
    flags |= {name: options.get(name) or None for name in _OPTION_FLAGS}
    flags["init_from"] = (config.get("init_from") or {}).get("run")
    names = {path: name for name, path in FEEDBACKS.items() if name != "environment"}
    flags["feedback"] = _class_path(feedback) if _is_foreign(feedback) else names.get(_class_path(feedback))
    frozen_run = feedback.get("run") if flags["feedback"] == FROZEN else None
    flags["feedback"] = f"{FROZEN}:{frozen_run}" if frozen_run else flags["feedback"]
    flags["curriculum"] = _class_path(curriculum) if _is_foreign(curriculum) else None
    for name, value in flags.items():
        parts += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    for part in config.get("init_parts", []):
        if not (frozen_run and part["to"] == "feedback"):  # a frozen feedback starts with its state by itself
            parts += ["--init-part", f"{part['to']}={part['run']}:{part['from']}"]
    for field, low, high in curriculum.get("ranges", []):
        parts += ["--randomize", f"{field}={low}..{high}"]
    for prefix, part in (("", method), ("feedback.", feedback), ("curriculum.", curriculum)):
        changed = changed_settings(part) if part is not curriculum or _is_foreign(part) else set()
        changed = set() if part is feedback and frozen_run else changed
        for path, value in flatten_config(part, with_modules=True):
            parts += ["--set", f"{prefix}{path}={_format_setting(value)}"] if path in changed else []
    return shlex.join(parts)


CAST_FILE = "cast.toml"


def repeat_commands(config: dict[str, Any]) -> str:
    """Shell commands that repeat a run: :func:`train_command`, after the file of a cast is written."""
    cast = config.get("method") or {}
    if not cast.get("seats"):
        return train_command(config)
    return f"cat > {CAST_FILE} <<'END'\n{cast_toml(cast)}END\n{train_command(config)}"


def cast_toml(cast: dict[str, Any]) -> str:
    """The file of a cast, with every setting of its seats that is not the default."""
    names = {path: name for name, path in METHODS.items()}
    tables = [f"{TURNS} = {cast[TURNS]}\n"] if cast.get(TURNS) else []
    for seat in cast["seats"]:
        method, own = seat["method"], changed_settings(seat["method"])
        name = names.get(_class_path(method)) or _seat_names().get(_class_path(method)) or _class_path(method)
        lines = [f"[seats.{seat['name']}]", f"method = {json.dumps(name)}"]
        lines += [
            f"{json.dumps(path) if '.' in path else path} = {_toml_value(value)}"  # a dotted key would be a table
            for path, value in flatten_config(method, with_modules=True)
            if path in own
        ]
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _seat_names() -> dict[str, str]:
    """Names of methods that only play a seat, by their classes."""
    return {qualified_name(seat): seat.name for seat in seat_classes()}


def _toml_value(value: Any) -> str:
    is_plain = isinstance(value, int | float | bool | str)
    return json.dumps(value if is_plain else _format_setting(value))


def _format_seeds(seeds: list[int]) -> str:
    if seeds == list(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def _format_setting(value: Any) -> str:
    match value:
        case list():
            return ",".join(_format_setting(item) for item in value)
        case None | bool():
            return str(value).lower()
    return str(value)


def _mean_return(returns: list[float | None]) -> float:
    finite = [r for r in returns if r is not None]
    return float(np.mean(finite)) if finite else float("nan")

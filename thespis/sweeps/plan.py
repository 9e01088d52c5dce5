"""Planning of a sweep, with all checks before it starts: grid points, jobs and directories."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thespis import api
from thespis.core.errors import UserError
from thespis.evaluation.comparison import settings_key
from thespis.runs.config import from_config, setting_texts, to_config
from thespis.runs.serialization import read_json, to_jsonable
from thespis.runs.store import RunDirectory, new_run_path
from thespis.runtime import disk
from thespis.training.options import check_options, options_from

Grid = Mapping[str, Any] | Sequence[str]
"""``{"learning_rate": [1e-3, 3e-4]}``, or texts such as ``learning_rate=1e-3,3e-4``."""

OPENING_BRACKETS, CLOSING_BRACKETS = "([", ")]"


def grid_points(grid: Grid) -> list[tuple[str, ...]]:
    """All combinations, each as texts ``name=value``; the last name changes fastest. An empty grid has one point.

    Raises :class:`UserError` for a name without values, or a name that occurs twice.
    """
    axes: dict[str, list[str]] = {}
    for name, values in _grid_items(grid):
        if name in axes:
            raise UserError(f"--grid has {name} twice: write all its values in one --grid, as {name}=1,2")
        axes[name] = _axis_values(name, values)
    return [tuple(point) for point in itertools.product(*([f"{n}={v}" for v in axes[n]] for n in axes))]


def _grid_items(grid: Grid) -> Iterable[tuple[str, Any]]:
    if isinstance(grid, Mapping):
        return grid.items()
    parsed = [text.partition("=") for text in grid]
    for name, equals, _ in parsed:
        if not equals or not name.strip():
            raise UserError(f"--grid {name} is not of the form name=value,value (like learning_rate=1e-3,3e-4)")
    return [(name.strip(), values) for name, _, values in parsed]


def _axis_values(name: str, values: Any) -> list[str]:
    if not isinstance(values, str | Iterable):
        raise UserError(f"--grid {name}: {values!r} is a single value: write a list of values")
    texts = split_values(values) if isinstance(values, str) else [str(value) for value in values]
    if not texts or not all(texts):
        raise UserError(f"--grid {name} lacks a value: write {name}=1,2 (a tuple in brackets: hidden_sizes=[64,64],32)")
    return texts


def split_values(text: str) -> list[str]:
    """Split at commas; commas in round or square brackets belong to a value. Raises ``UserError`` for open brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in OPENING_BRACKETS) - (letter in CLOSING_BRACKETS)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise UserError(f"--grid: a bracket in {text} has no match")
    return [part.strip() for part in parts]


SUMMARY_FILE = "sweep.json"
UNSUPPORTED_OPTIONS = ("devices", "workers")
"""Training options that would use more than the single CPU of a job."""


@dataclasses.dataclass(frozen=True)
class SweepJob:
    """One ordinary run: ``train_args`` are the arguments of :func:`thespis.train`, ``name`` that of its directory."""

    name: str
    train_args: dict[str, Any]

    def serialize(self) -> SweepJob:
        """The job with configured objects converted to JSON as in run.json.

        Functions in them would lose their names when they are pickled for another process.
        """
        objects = {name: to_config(part) for name, part in self.train_args.items() if _is_component(name, part)}
        return SweepJob(self.name, self.train_args | objects)

    def deserialize(self) -> SweepJob:
        """The inverse of :meth:`serialize`."""
        objects = {name: from_config(part) for name, part in self.train_args.items() if isinstance(part, dict)}
        return SweepJob(self.name, self.train_args | objects)


def _is_component(name: str, value: Any) -> bool:
    return name in ("method", "feedback", "curriculum") and dataclasses.is_dataclass(value)


@dataclasses.dataclass(frozen=True)
class GridPoint:
    """One point of the grid and the jobs that train its seeds."""

    name: str
    settings: tuple[str, ...]
    jobs: tuple[SweepJob, ...]


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """A planned sweep. ``config`` is the content of run.json, equal for all its runs except for settings and seeds."""

    path: Path
    id: str
    config: dict[str, Any]
    grid_points: tuple[GridPoint, ...]

    @property
    def jobs(self) -> list[SweepJob]:
        """All jobs, the first seeds of every grid point first, so that a stopped sweep can be compared."""
        max_jobs = max(len(point.jobs) for point in self.grid_points)
        return [point.jobs[i] for i in range(max_jobs) for point in self.grid_points if i < len(point.jobs)]

    def create(self) -> None:
        """Create the sweep's directory and write its id."""
        if not (self.path / SUMMARY_FILE).exists():
            with disk.as_user_error("the sweep", self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write_summary(self.path, {"format": 1, "id": self.id})

    def finished_run(self, job: SweepJob) -> RunDirectory | None:
        """The finished run of a job; ``None`` if there is none."""
        path = self.path / job.name
        if not (path / "run.json").is_file():
            return None
        run = RunDirectory.open(path)
        return run if is_finished(run) else None


def is_finished(run: RunDirectory) -> bool:
    """Whether a run is finished: it has a final evaluation or, without an environment, a report."""
    last = "report.html" if run.config["env"] is None else "final.json"
    return (run.path / last).is_file()


def plan_sweep(
    method: Any,
    env: Any,
    *,
    seeds: int | list[int],
    grid: Grid,
    seeds_per_job: int | None,
    settings: list[str] | Mapping[str, Any] | None,
    out: str | Path | None,
    train_args: dict[str, Any],
) -> SweepPlan:
    """Jobs of a sweep and their directories. ``train_args``: further arguments of :func:`thespis.train`.

    Raises :class:`UserError` for errors that can be detected before a run starts.
    """
    if unsupported := [name for name in UNSUPPORTED_OPTIONS if train_args.get(name)]:
        raise UserError(f"a job of a sweep has one CPU: leave out {unsupported[0]}")
    fixed = setting_texts(settings)
    unique_points: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
    config: dict[str, Any] = {}
    for texts in grid_points(grid):
        point_args: dict[str, Any] = {"method": method, "env": env, **train_args, "settings": [*fixed, *texts]}
        config = api.build_config(**point_args, seeds=seeds)
        check_options(options_from(config), config["loop"])
        earlier_texts, _ = unique_points.setdefault(settings_key(config), (texts, point_args))
        if earlier_texts is not texts:
            same = f"{' '.join(earlier_texts)} and {' '.join(texts)}"
            raise UserError(f"--grid: {same} are the same setting: leave one of them out")
    root = Path(out) if out else new_run_path(f"sweep-{config['method_name']}", config["env"] or "dataset")
    summary_id, names, parts = _sweep_id(root), _RunNames(root), _split_seeds(config["seeds"], seeds_per_job)
    planned = []
    for same, (texts, point_args) in unique_points.items():
        first = ",".join(map(_path_safe, texts)) or config["method_name"]
        jobs = [
            SweepJob(names.name_for(first, same, job_seeds), point_args | {"seeds": job_seeds}) for job_seeds in parts
        ]
        planned.append(GridPoint(" ".join(texts) or config["method_name"], texts, tuple(jobs)))
    return SweepPlan(root, summary_id, config, tuple(planned))


def _split_seeds(seeds: list[int], each: int | None) -> list[list[int]]:
    each = len(seeds) if each is None else each
    if each < 1:
        raise UserError(f"--seeds-per-job {each}: a job needs at least one seed")
    return [seeds[i : i + each] for i in range(0, len(seeds), each)]


def _path_safe(text: str) -> str:
    """A setting without characters that are special to file systems and shells: ``hidden_sizes=64-64``."""
    name, _, value = text.partition("=")
    return name + "=" + re.sub(r"[^\w.+-]+", "-", value.strip("()[], "))


class _RunNames:
    """Names of run directories in ``root``."""

    def __init__(self, root: Path):
        runs = [RunDirectory.open(path.parent) for path in sorted(root.glob("[!.]*/run.json"))]
        self._taken = {run.path.name: (settings_key(run.config), run.config["seeds"]) for run in runs}

    def name_for(self, first: str, same: str, seeds: list[int]) -> str:
        """Directory name of the run with settings key ``same`` and these seeds, else ``first`` with the seeds."""
        for name, settings_and_seeds in self._taken.items():
            if settings_and_seeds == (same, seeds):
                return name
        is_range = seeds == list(range(seeds[0], seeds[-1] + 1))
        seed_text = f"{seeds[0]}-{seeds[-1]}" if is_range and len(seeds) > 1 else "+".join(map(str, seeds))
        name = f"{first},seed{'s' if len(seeds) > 1 else ''}={seed_text}"
        if name in self._taken:
            raise UserError(f"{name} is already a run with other settings: choose another --out, or remove it")
        self._taken[name] = same, seeds
        return name


def _sweep_id(root: Path) -> str:
    """Id of the sweep in ``root``, by which jobs recognize the directory; a new one if there is no sweep yet."""
    with disk.as_user_error("the sweep", root):
        if (root / "run.json").exists():
            raise UserError(f"{root} is a run: choose another --out for the sweep")
        if (root / SUMMARY_FILE).exists():
            return read_json(root / SUMMARY_FILE)["id"]
        if root.is_dir() and any(root.iterdir()):
            raise UserError(f"{root} is not empty and is not a sweep: choose another --out")
    return uuid.uuid4().hex


def write_summary(root: Path, content: dict[str, Any]) -> None:
    """Write ``sweep.json``: the jobs and their results."""
    text = json.dumps(to_jsonable(content), indent=1, allow_nan=False) + "\n"
    with disk.as_user_error(SUMMARY_FILE, root), disk.atomic_write(root / SUMMARY_FILE) as file:
        file.write(text.encode())

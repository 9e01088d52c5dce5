"""What a sweep will do, found out and checked before anything starts: settings, jobs, and the directories of both."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thespis import api
from thespis.core import disk
from thespis.core.errors import UserError
from thespis.evaluation.comparison import kind
from thespis.options import options_of, require_room_for
from thespis.runs.config import from_config, to_config
from thespis.runs.store import RunDirectory, new_run_path
from thespis.runs.text import parse_json, plain
from thespis.sweeps.grid import Grid, points

SUMMARY = "sweep.json"
NOT_IN_A_JOB = ("devices", "workers")
"""Options of training that would take more than the one CPU of a job."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One ordinary run: ``asked`` are the arguments of :func:`thespis.train`, ``name`` is that of its directory."""

    name: str
    asked: dict[str, Any]

    def written(self) -> Job:
        """The same with configured objects written down, as run.json does it: functions in them lose their names when
        they are sent to another process."""
        objects = {name: to_config(part) for name, part in self.asked.items() if _is_part(name, part)}
        return Job(self.name, self.asked | objects)

    def read(self) -> Job:
        """What was :meth:`written`, as objects again."""
        written = {name: from_config(part) for name, part in self.asked.items() if isinstance(part, dict)}
        return Job(self.name, self.asked | written)


def _is_part(name: str, value: Any) -> bool:
    return name in ("method", "feedback", "curriculum") and dataclasses.is_dataclass(value)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One point of the grid, and the jobs that train its seeds."""

    name: str
    texts: tuple[str, ...]
    jobs: tuple[Job, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep. ``config`` is the content of run.json that all its runs share, but for settings and seeds."""

    path: Path
    id: str
    config: dict[str, Any]
    settings: tuple[Setting, ...]

    @property
    def jobs(self) -> list[Job]:
        """All jobs, the first seeds of every setting first, so that an early end leaves something to compare."""
        ranks = max(len(setting.jobs) for setting in self.settings)
        return [setting.jobs[i] for i in range(ranks) for setting in self.settings if i < len(setting.jobs)]

    def begin(self) -> None:
        """Make the directory, with the mark in it."""
        if not (self.path / SUMMARY).exists():
            with disk.one_line("the sweep", self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write(self.path, {"format": 1, "id": self.id})

    def run(self, job: Job) -> RunDirectory | None:
        """The finished run of a job, if there is one."""
        path = self.path / job.name
        if not (path / "run.json").is_file():
            return None
        run = RunDirectory.open(path)
        return run if finished(run) else None


def finished(run: RunDirectory) -> bool:
    """Whether a run has come to its end: without an environment nothing is played, and the report is the last word."""
    last = "report.html" if run.config["env"] is None else "final.json"
    return (run.path / last).is_file()


def plan(
    method: Any, env: Any, *, seeds: int | list[int], grid: Grid, seeds_per_job: int | None,
    settings: list[str] | Mapping[str, Any] | None, out: str | Path | None, asked: dict[str, Any],
) -> Plan:  # fmt: skip
    """The jobs of a sweep, and where they belong. ``asked``: further arguments of :func:`thespis.train`.

    Raises :class:`UserError` for whatever can be seen to be wrong before a run begins.
    """
    if unfit := [name for name in NOT_IN_A_JOB if asked.get(name)]:
        raise UserError(f"a job of a sweep has one CPU: leave out {unfit[0]}")
    fixed = [f"{k}={v}" for k, v in settings.items()] if isinstance(settings, Mapping) else list(settings or [])
    tried: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
    config: dict[str, Any] = {}
    for texts in points(grid):
        own: dict[str, Any] = {"method": method, "env": env, **asked, "settings": [*fixed, *texts]}
        config = api.declared(**own, seeds=seeds)
        require_room_for(options_of(config), config["loop"])
        before, _ = tried.setdefault(kind(config), (texts, own))
        if before is not texts:
            same = f"{' '.join(before)} and {' '.join(texts)}"
            raise UserError(f"--grid: {same} are the same setting: leave one of them out")
    root = Path(out) if out else new_run_path(f"sweep-{config['method_name']}", config["env"] or "dataset")
    mark, names, parts = _mark(root), _Names(root), _parts(config["seeds"], seeds_per_job)
    planned = []
    for same, (texts, own) in tried.items():
        first = ",".join(map(_plain, texts)) or config["method_name"]
        jobs = [Job(names.of(first, same, some), own | {"seeds": some}) for some in parts]
        planned.append(Setting(" ".join(texts) or config["method_name"], texts, tuple(jobs)))
    return Plan(root, mark, config, tuple(planned))


def _parts(seeds: list[int], each: int | None) -> list[list[int]]:
    each = len(seeds) if each is None else each
    if each < 1:
        raise UserError(f"--seeds-per-job {each}: a job needs at least one seed")
    return [seeds[i : i + each] for i in range(0, len(seeds), each)]


def _plain(text: str) -> str:
    """A setting without what file systems and shells take for something else: ``hidden=64-64``."""
    name, _, value = text.partition("=")
    return name + "=" + re.sub(r"[^\w.+-]+", "-", value.strip("()[], "))


class _Names:
    """Names of the directories in ``root``."""

    def __init__(self, root: Path):
        there = [RunDirectory.open(path.parent) for path in sorted(root.glob("[!.]*/run.json"))]
        self._taken = {run.path.name: (kind(run.config), run.config["seeds"]) for run in there}

    def of(self, first: str, same: str, seeds: list[int]) -> str:
        """The name of the run of this kind and seeds, if it is there, else ``first`` and the seeds."""
        for name, what in self._taken.items():
            if what == (same, seeds):
                return name
        whole = seeds == list(range(seeds[0], seeds[-1] + 1))
        told = f"{seeds[0]}-{seeds[-1]}" if whole and len(seeds) > 1 else "+".join(map(str, seeds))
        name = f"{first},seed{'s' if len(seeds) > 1 else ''}={told}"
        if name in self._taken:
            raise UserError(f"{name} is a run of other settings already: choose another --out, or remove it")
        self._taken[name] = same, seeds
        return name


def _mark(root: Path) -> str:
    """The mark of the sweep in ``root``, by which jobs know the directory; a new one if there is no sweep yet."""
    with disk.one_line("the sweep", root):
        if (root / "run.json").exists():
            raise UserError(f"{root} holds a run: choose another --out for the sweep")
        if (root / SUMMARY).exists():
            return parse_json(root / SUMMARY)["id"]
        if root.is_dir() and any(root.iterdir()):
            raise UserError(f"{root} is not empty and holds no sweep: choose another --out")
    return uuid.uuid4().hex


def write(root: Path, content: dict[str, Any]) -> None:
    """Write sweep.json."""
    text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
    with disk.one_line(SUMMARY, root), disk.replacing(root / SUMMARY) as file:
        file.write(text.encode())

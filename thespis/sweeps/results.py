"""What a sweep has come to: a row for each setting, the best one first, for readers and for ``sweep.json``."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from thespis.evaluation.comparison import Summary, group_runs
from thespis.evaluation.statistics import interval, iqm
from thespis.runs.store import RunDirectory
from thespis.sweeps.plan import Plan, Setting, write


@dataclasses.dataclass(frozen=True)
class Row:
    """One setting: its finished runs, and the greedy scores of their seeds; no scores where nothing was played."""

    name: str
    settings: tuple[str, ...]
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    summary: Summary | None
    wanted: int
    """Seeds that it will have when all its runs are finished."""

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        played = self.summary or Summary(self.name, (), float("nan"), None)
        told = {"name": self.name, "settings": self.settings, "runs": self.runs, "seeds": self.seeds}
        return told | {"scores": played.scores, "iqm": played.iqm, "interval": played.interval}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job without a finished run: why, as in :class:`thespis.sweeps.job.Ended`."""

    run: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep as it stands. ``rows`` begin with the best setting; ``reason`` is ``finished``, ``stopped`` or
    ``interrupted``."""

    path: Path
    env: str | None
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    reason: str

    @property
    def best(self) -> Row:
        """The setting whose greedy return is highest."""
        return self.rows[0]

    def compare_command(self) -> str | None:
        """The command that compares the two best settings; ``None`` if there are not two."""
        first, second = ([row for row in self.rows if row.summary] + [None, None])[:2]
        return f"thespis compare {self._runs(first)} {self._runs(second)}" if first and second else None

    def _runs(self, row: Row) -> str:
        """The runs of a setting as a shell takes them."""
        first = Path(row.runs[0]).name.rpartition(",seed")[0]
        if len(row.runs) > 2 and {str(path) for path in self.path.glob(f"{first},seed*")} == set(row.runs):
            return f"{shlex.quote(str(self.path / first))},seed*"
        return shlex.join(row.runs)

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        rows, failures = [row.to_json() for row in self.rows], [dataclasses.asdict(one) for one in self.failures]
        told = {"path": str(self.path), "env": self.env, "reason": self.reason}
        return told | {"settings": rows, "failed": failures, "compare": self.compare_command()}


def gathered(plan: Plan, failures: list[Failure], reason: str) -> Sweep:
    """The sweep by what lies in its directory, where it is also written down as ``sweep.json``."""
    rows = sorted((_row(plan, setting) for setting in plan.settings), key=_place)
    sweep = Sweep(plan.path, plan.config["env"], tuple(rows), tuple(failures), reason)
    write(plan.path, {"format": 1, "id": plan.id} | sweep.to_json())
    return sweep


def _row(plan: Plan, setting: Setting) -> Row:
    runs = [run for job in setting.jobs if (run := plan.run(job))]
    seeds = tuple(seed for run in runs for seed in run.config["seeds"])
    wanted = sum(len(job.asked["seeds"]) for job in setting.jobs)
    paths = tuple(str(run.path) for run in runs)
    return Row(setting.name, setting.texts, paths, seeds, _summary(setting, runs), wanted)


def _summary(setting: Setting, runs: list[RunDirectory]) -> Summary | None:
    if not runs or runs[0].config["env"] is None:
        return None
    (group,) = group_runs([run.path for run in runs])
    scores = np.array(group.scores)
    return Summary(setting.name, group.scores, iqm(scores), interval(scores))


def _place(row: Row) -> float:
    return -row.summary.iqm if row.summary else float("inf")

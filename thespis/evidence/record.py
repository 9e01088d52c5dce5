"""What a trial found, as a file: every seed's number, the findings, the verdict, and where it ran."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core import disk
from thespis.core.errors import UserError
from thespis.evaluation.statistics import interval, iqm
from thespis.evidence.claims import overall
from thespis.evidence.measures import Measure
from thespis.evidence.paper import Paper, Trial
from thespis.evidence.trial import Outcome, TrialRuns
from thespis.runs.environment_info import device_line, versions
from thespis.runs.text import plain


def recorded(paper: Paper, full: bool, outcome: Outcome, declared_in: str | None) -> dict[str, Any]:
    """The content of ``evidence/<id>.json``. Nothing in it is ever edited by hand."""
    trial = paper.trial(full)
    return {
        "id": paper.id,
        "claim": paper.claim,
        "trial": "full" if full else "miniature",
        "verdict": overall(outcome.findings),
        "findings": [
            {"claim": f.sentence, "verdict": f.verdict, "estimate": f.estimate, "interval": f.interval}
            for f in outcome.findings
        ],
        "level": trial.level,
        "looks": outcome.looks,
        "seeds": outcome.runs.seeds(),
        "measures": [_table(trial, outcome.runs, measure) for measure in measures(trial)],
        "declaration": trial.declaration(),
        "digest": trial.digest,
        "declared_in": declared_in,
        "minutes": outcome.seconds / 60,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "device": device_line()},
        "versions": versions(),
    }


def measures(trial: Trial) -> list[Measure]:
    """Every measure that a claim of the trial speaks of, once."""
    return list({measure.name: measure for claim in trial.claims for measure in claim.measures}.values())


def _table(trial: Trial, runs: TrialRuns, measure: Measure) -> dict[str, Any]:
    """One measure: per arm that it can be taken of, and environment, every seed's number, their IQM, its interval."""
    arms: dict[str, dict[str, Any]] = {}
    for arm in trial.arms:
        if measure.world and any(runs.runs[arm.name, env][0].config["env"] != measure.world for env in trial.envs):
            continue
        scores = runs.scores(arm.name, measure)
        arms[arm.name] = {env: _summary(scores[:, i]) for i, env in enumerate(trial.envs)}
    return {"name": measure.name, "larger_is_better": measure.larger_is_better, "arms": arms}


def _summary(scores: np.ndarray) -> dict[str, Any]:
    return {"scores": scores.tolist(), "iqm": iqm(scores), "interval": interval(scores)}


def committed(paper: Paper) -> str | None:
    """The commit that holds the paper's declaration as it is now; ``None`` if it is not committed."""
    from thespis.papers.registry import module_of

    file = Path(str(module_of(paper.id).__file__))

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments, "--", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return None if git("status", "--porcelain") else git("log", "-1", "--format=%H") or None
    except (OSError, subprocess.SubprocessError):
        return None


def write(directory: Path, record: dict[str, Any], picture: bytes) -> Path:
    """Write the record and its figure; returns the record's path."""
    path = directory / f"{record['id']}{'' if record['trial'] == 'miniature' else '-full'}.json"
    with disk.one_line("evidence", directory):
        directory.mkdir(parents=True, exist_ok=True)
        with disk.replacing(path.with_suffix(".svg")) as file:
            file.write(picture)
        with disk.replacing(path) as file:
            file.write((json.dumps(plain(record), indent=1, allow_nan=False) + "\n").encode())
    return path


def read(directory: Path, id: str) -> dict[str, Any] | None:
    """The record of a paper's miniature; ``None`` if there is none. Raises :class:`UserError` for a damaged one."""
    path = directory / f"{id}.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): write it anew with `thespis reproduce {id}`") from error

"""Evidence records of trials: scores of every seed, findings, verdict, machine and versions, as JSON files."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.evaluation.statistics import bootstrap_interval, iqm
from thespis.evidence.claims import overall_verdict
from thespis.evidence.measures import Measure
from thespis.evidence.paper import PairedTrial, Paper, Trial
from thespis.evidence.runner import PairedOutcome, TrialOutcome, TrialRuns
from thespis.runs.serialization import to_jsonable
from thespis.runs.system_info import describe_device, package_versions
from thespis.runtime import disk


def make_record(paper: Paper, full: bool, outcome: TrialOutcome, declared_in: str | None) -> dict[str, Any]:
    """The content of ``evidence/<id>.json``, which is never edited by hand."""
    trial = paper.trial(full)
    assert isinstance(trial, Trial)
    return {
        "id": paper.id,
        "claim": paper.claim,
        "trial": "full" if full else "miniature",
        "verdict": overall_verdict(outcome.findings),
        "findings": [
            {
                "claim": finding.sentence,
                "verdict": finding.verdict,
                "estimate": finding.estimate,
                "interval": finding.interval,
            }
            for finding in outcome.findings
        ],
        "level": trial.confidence_level,
        "looks": outcome.num_looks,
    } | trial_content(trial, outcome, declared_in)


def make_paired_record(paper: Paper, full: bool, outcome: PairedOutcome, declared_in: str | None) -> dict[str, Any]:
    """The content of ``evidence/<id>.json`` for a paired trial, which is never edited by hand."""
    trial = paper.trial(full)
    assert isinstance(trial, PairedTrial)
    return {
        "id": paper.id,
        "claim": paper.claim,
        "trial": "full" if full else "miniature",
        "protocol": 2,
        "bench": trial.bench,
        "verdict": outcome.verdict,
        "findings": finding_rows(trial, outcome),
        "looks": outcome.num_looks,
    } | trial_content(trial, outcome, declared_in)


def finding_rows(trial: PairedTrial, outcome: PairedOutcome) -> list[dict[str, Any]]:
    """The findings on all claims of a paired trial, as JSON-able data."""
    rows = []
    for (kind, _), finding in zip(trial.named_claims, outcome.findings, strict=True):
        row = {
            "kind": kind,
            "claim": finding.sentence,
            "verdict": finding.verdict,
            "pairs": finding.num_pairs,
            "p_value": finding.p_value,
            "pairs_to_decide": finding.pairs_to_decide,
            "estimate": finding.value,
            "interval": finding.interval,
        }
        envs = [
            {"env": estimate.env, "differences": estimate.differences} | dataclasses.asdict(estimate.paired)
            for estimate in finding.estimates
        ]
        rows.append(row | {"envs": envs})
    return rows


def trial_content(
    trial: Trial | PairedTrial, outcome: TrialOutcome | PairedOutcome, declared_in: str | None
) -> dict[str, Any]:
    """What every record of a trial has: seeds, scores, declaration, time, machine and versions."""
    return {
        "seeds": outcome.runs.seeds(),
        "measures": [_measure_table(trial, outcome.runs, measure) for measure in trial_measures(trial)],
        "declaration": trial.declaration(),
        "digest": trial.digest,
        "declared_in": declared_in,
        "minutes": outcome.seconds / 60,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "device": describe_device()},
        "versions": package_versions(),
    }


def trial_measures(trial: Trial | PairedTrial) -> list[Measure]:
    """All measures of the trial's claims, without duplicates."""
    return list({measure.name: measure for _, claim in trial.named_claims for measure in claim.measures}.values())


def _measure_table(trial: Trial | PairedTrial, runs: TrialRuns, measure: Measure) -> dict[str, Any]:
    """One measure: scores of every seed, their IQM and its interval, per arm (where defined) and environment."""
    arms: dict[str, dict[str, Any]] = {}
    for arm in trial.arms:
        if measure.env and any(runs.runs[arm.name, env][0].config["env"] != measure.env for env in trial.envs):
            continue
        try:
            scores = runs.scores(arm.name, measure)
        except UserError:
            if _is_compared(trial, arm.name, measure):
                raise
            continue
        arms[arm.name] = {env: _score_summary(scores[:, i], measure.bounds) for i, env in enumerate(trial.envs)}
    return {"name": measure.name, "larger_is_better": measure.larger_is_better, "arms": arms}


def _is_compared(trial: Trial | PairedTrial, arm: str, measure: Measure) -> bool:
    """Whether a claim needs this measure of this arm: others may lack it, as imitators have no learning curve."""
    claims = [claim for _, claim in trial.named_claims if arm in claim.arms]
    return any(measure.name == other.name for claim in claims for other in claim.measures)


def _score_summary(scores: np.ndarray, bounds: tuple[float, float] | None) -> dict[str, Any]:
    interval = bootstrap_interval(scores, bounds=bounds)
    return {"scores": scores.tolist(), "iqm": iqm(scores), "interval": interval}


def declaration_commit(module: ModuleType) -> str | None:
    """The commit with the current text of a module that declares a paper or a bench; ``None`` if not committed."""
    file = Path(str(module.__file__))

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments, "--", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return None if git("status", "--porcelain") else git("log", "-1", "--format=%H") or None
    except (OSError, subprocess.SubprocessError):
        return None


def write_record(directory: Path, record: dict[str, Any], figure: bytes) -> Path:
    """Write the record and its figure, and return the record's path."""
    path = directory / f"{record['id']}{'' if record['trial'] == 'miniature' else '-full'}.json"
    with disk.as_user_error("evidence", directory):
        directory.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(path.with_suffix(".svg")) as file:
            file.write(figure)
    write_json(path, record)
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a record as JSON; a crash leaves the old one."""
    with disk.as_user_error("evidence", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.atomic_write(path) as file:
            file.write((json.dumps(to_jsonable(content), indent=1, allow_nan=False) + "\n").encode())


def read_record(directory: Path, paper_id: str) -> dict[str, Any] | None:
    """The record of a paper's miniature; ``None`` if there is none. Raises :class:`UserError` for a damaged one."""
    return read_json(directory / f"{paper_id}.json", f"thespis reproduce {paper_id}")


def read_full_record(directory: Path, paper_id: str) -> dict[str, Any] | None:
    """The record of a paper's full-size trial; otherwise as :func:`read_record`."""
    return read_json(directory / f"{paper_id}-full.json", f"thespis reproduce {paper_id} --full")


def read_json(path: Path, command: str) -> dict[str, Any] | None:
    """A record that ``command`` creates; ``None`` if there is none. Raises :class:`UserError` for a damaged one."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): create it again with `{command}`") from error

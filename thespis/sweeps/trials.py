"""Trials of a study: training with the settings that Optuna suggests, and what Optuna is told about it."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thespis import api
from thespis.core.errors import UserError, missing_extra
from thespis.evaluation.statistics import iqm
from thespis.runs.config import setting_texts
from thespis.runs.events import Event
from thespis.runtime import disk
from thespis.sweeps.search_space import Dimension

STUDY_FILE = "study.log"
NUM_EVALUATIONS = 10
"""Evaluations of a trial, after each of which it may be stopped."""
NUM_FULL_TRIALS = 5
"""Trials that are never stopped, before the median of others means something."""


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """A trial: its number, settings, score, and state (``complete``, ``pruned`` or ``failed``)."""

    number: int
    settings: dict[str, Any]
    score: float | None
    state: str


@dataclasses.dataclass(frozen=True)
class Study:
    """What every process of a study needs to know."""

    path: Path
    method: str
    env: str
    space: tuple[Dimension, ...]
    train_args: dict[str, Any]
    steps: int
    seed: int

    def trial_path(self, number: int) -> Path:
        """The directory of a trial's run."""
        return self.path / f"trial-{number:04d}"


def suggest_settings(study: Study, trial: Any) -> dict[str, Any]:
    """The settings that a new trial of Optuna tries."""
    values = {dimension.name: dimension.suggest(trial) for dimension in study.space}
    trial.set_user_attr("settings", values)
    return values


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """How a trial has ended: ``complete``, ``pruned``, ``failed`` (with its ``error``) or ``interrupted``."""

    state: str
    score: float | None = None
    error: str | None = None


def end_trial(opened: Any, trial: Any, outcome: TrialOutcome) -> TrialResult:
    """Tell Optuna's study how a trial has ended."""
    optuna = import_optuna()
    states = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    trial.set_user_attr("score", outcome.score)
    if outcome.error is not None:
        trial.set_user_attr("error", outcome.error)
    score = outcome.score if outcome.state == "complete" else None
    opened.tell(trial, score, state=optuna.trial.TrialState[states[outcome.state]])
    return to_result(opened.trials[trial.number])


def train_trial(study: Study, values: dict[str, Any], path: Path, report: Callable[[int, float], bool]) -> TrialOutcome:
    """Train with the settings of a trial in the directory ``path``.

    ``report`` gets the step and score of each evaluation, and says whether to stop the trial early.
    """
    from thespis.training.driver import DivergenceError

    shutil.rmtree(path, ignore_errors=True)
    listener = _TrialListener(report)
    settings = [*setting_texts(study.train_args.get("settings")), *(f"{name}={v!r}" for name, v in values.items())]
    arguments: dict[str, Any] = study.train_args | {"settings": settings, "steps": study.steps}
    if arguments.get("evaluate_every") is None:
        arguments["evaluate_every"] = max(study.steps // NUM_EVALUATIONS, 1)
    try:
        run = api.train(study.method, study.env, **arguments, out=path, callbacks=[listener])
    except (DivergenceError, UserError) as error:
        return TrialOutcome("failed", error=str(error))
    if listener.reason == "interrupted" or run.final_scores is None:
        return TrialOutcome("interrupted")
    return TrialOutcome("pruned" if listener.pruned else "complete", float(run.final_scores["greedy"]["iqm"]))


class _TrialListener:
    """Callback that reports the evaluations of a run to its trial, and stops the run if the trial is to be pruned."""

    def __init__(self, report: Callable[[int, float], bool]):
        self._report = report
        self.pruned, self.reason = False, ""

    def __call__(self, event: Event) -> bool:
        """Whether to stop the run."""
        if event.kind == "done":
            self.reason = event.data["reason"]
        if event.kind != "evaluation" or self.pruned:
            return False
        self.pruned = self._report(event.step, float(iqm([np.mean(episodes) for episodes in event.data["greedy"]])))
        return self.pruned


def open_study(study: Study) -> Any:
    """The study of Optuna, new or with its earlier trials."""
    optuna = import_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with disk.as_user_error("the study", study.path):
        study.path.mkdir(parents=True, exist_ok=True)
    # a study that continues draws other numbers than it has drawn
    seed = study.seed * 10_000 + len(list(study.path.glob("trial-*")))
    return optuna.create_study(
        study_name="thespis",
        storage=JournalStorage(JournalFileBackend(str(study.path / STUDY_FILE))),
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=NUM_FULL_TRIALS),
        direction="maximize",
        load_if_exists=True,
    )


def to_result(trial: Any) -> TrialResult:
    """A trial of Optuna as ours."""
    names = {
        "COMPLETE": "complete",
        "PRUNED": "pruned",
        "FAIL": "failed" if "error" in trial.user_attrs else "requeued",
    }
    return TrialResult(
        trial.number, trial.user_attrs.get("settings", {}), trial.user_attrs.get("score"), names[trial.state.name]
    )


def import_optuna() -> Any:
    """Optuna, quiet. Raises ``UserError`` if it is not installed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise missing_extra("optuna", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with contextlib.suppress(AttributeError):
        optuna.logging.disable_propagation()
    return optuna

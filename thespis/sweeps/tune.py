"""Tuning of settings: trials chosen by Optuna, each an ordinary run, with bad ones stopped early.

The study is a directory: ``study.log`` (Optuna's journal), a run per trial, and ``best.toml``, a preset file with the
best settings. A study continues where it stopped: finished trials are kept, and the settings of unfinished ones are
tried again.

Source: Bergstra et al., 2011 (tree-structured Parzen estimator); Akiba et al., 2019 (Optuna).
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis import api
from thespis.core.errors import UserError, missing_extra
from thespis.evaluation.statistics import iqm
from thespis.presets.preset import AUTO, Preset, write_preset
from thespis.runs.config import from_config, setting_texts
from thespis.runs.events import Callback, Event, EventBus
from thespis.runs.store import new_run_path
from thespis.runtime import disk
from thespis.sweeps.search_space import Dimension, search_space

STUDY_FILE, PRESET_FILE = "study.log", "best.toml"
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
class TuneResult:
    """A study so far. ``best`` is the complete trial with the highest score; ``preset`` the file with its settings."""

    path: Path
    env: str
    space: tuple[Dimension, ...]
    trials: tuple[TrialResult, ...]
    best: TrialResult | None
    preset: Path | None
    reason: str
    """``finished`` or ``interrupted``."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain dictionaries and lists."""
        return {
            "path": str(self.path),
            "env": self.env,
            "space": [str(dimension) for dimension in self.space],
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
            "best": dataclasses.asdict(self.best) if self.best else None,
            "preset": str(self.preset) if self.preset else None,
            "reason": self.reason,
        }


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


def tune(
    method: str,
    env: str,
    *,
    trials: int,
    names: Sequence[str] = (),
    seeds: int | list[int] = 3,
    jobs: int | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    **train_args: Any,
) -> TuneResult:
    """Try settings of a method until ``trials`` of them are done; the score is the IQM of the seeds' greedy returns.

    ``names``: the settings to tune, with ``=LOW..HIGH`` for an interval of your own; by default the usual ones
    (:mod:`thespis.sweeps.search_space`). ``jobs``: trials at the same time, in processes of this machine (1), or in
    those of a Ray ``cluster``, as in :func:`thespis.runtime.ray_cluster.connect` (as many as it has CPUs).
    ``train_args``: as in :func:`thespis.train`; its ``preset`` and ``settings`` hold what is not tuned. ``callbacks``:
    functions of the events ``start`` (``run``: the study's directory, ``trials``, ``finished``) and ``done``
    (``trial``: a :class:`TrialResult`); with several local jobs the latter come at the end.

    Raises:
        UserError: for whatever the user can mend, in one line. A trial whose training fails is listed as ``failed``.
    """
    _import_optuna()
    if trials < 1 or (jobs is not None and jobs < 1):
        raise UserError(f"--trials {trials} and --jobs {jobs}: both must be at least 1")
    if not isinstance(method, str) or not isinstance(env, str):
        raise UserError("a study needs the names of a method and an environment: module:Class for your own")
    config = api.build_config(method, env, **({"steps": None} | train_args), seeds=seeds)
    space = search_space(from_config(config["method"]), names)
    path = Path(out) if out else new_run_path(f"tune-{method}", config["env"])
    _check_directory(path)
    study = Study(path, method, env, tuple(space), train_args | {"seeds": seeds}, config["steps"], 0)
    bus = EventBus(callbacks)
    done = _requeue_unfinished(study)
    bus.emit("start", 0, run=str(path), trials=trials, finished=done)
    missing = max(trials - done, 0)
    if cluster is None:
        reason = _work_in_processes(study, missing, jobs or 1, bus)
    else:
        from thespis.sweeps.ray_trials import work_in_cluster

        reason = work_in_cluster(study, open_study(study), missing, jobs, cluster, bus)
    return _collect(study, config, reason)


def _work_in_processes(study: Study, num_trials: int, jobs: int, bus: EventBus) -> str:
    """Do the missing trials in this process or in several; the reason of the end."""
    jobs = min(jobs, num_trials)
    if jobs < 2:
        for result in _work(study, num_trials):
            if result is None:
                return "interrupted"
            bus.emit("done", study.steps, trial=result)
        return "finished"
    context = multiprocessing.get_context("spawn")
    shares = [num_trials // jobs + (i < num_trials % jobs) for i in range(jobs)]
    studies = [dataclasses.replace(study, seed=i) for i in range(jobs)]
    processes = [context.Process(target=_work_share, args=args) for args in zip(studies, shares, strict=True)]
    before = {trial.number for trial in _results(study)}
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join()
    except KeyboardInterrupt:  # the processes have been interrupted too, and save
        for process in processes:
            process.join()
    for trial in _results(study):
        if trial.number not in before:
            bus.emit("done", study.steps, trial=trial)
    if any(process.exitcode not in (0, _EXIT_INTERRUPTED) for process in processes):
        raise UserError("a process of the study has died: run the same command with this --out to continue")
    return "interrupted" if any(process.exitcode for process in processes) else "finished"


_EXIT_INTERRUPTED = 130


def _work_share(study: Study, num_trials: int) -> None:
    """Do ``num_trials`` trials in a process of its own."""
    if any(result is None for result in _work(study, num_trials)):
        os._exit(_EXIT_INTERRUPTED)


def _work(study: Study, num_trials: int) -> Iterator[TrialResult | None]:
    """Do ``num_trials`` trials, and yield their results; ``None`` if interrupted, and no more."""
    opened = open_study(study)
    for _ in range(num_trials):
        trial = opened.ask()
        values = suggest_settings(study, trial)

        def report(step: int, score: float, trial: Any = trial) -> bool:
            trial.report(score, step)
            return trial.should_prune()

        outcome = train_trial(study, values, study.trial_path(trial.number), report)
        if outcome.state == "interrupted":
            yield None
            return
        yield end_trial(opened, trial, outcome)


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
    optuna = _import_optuna()
    states = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    trial.set_user_attr("score", outcome.score)
    if outcome.error is not None:
        trial.set_user_attr("error", outcome.error)
    score = outcome.score if outcome.state == "complete" else None
    opened.tell(trial, score, state=optuna.trial.TrialState[states[outcome.state]])
    return _to_result(opened.trials[trial.number])


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
    optuna = _import_optuna()
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


def _requeue_unfinished(study: Study) -> int:
    """Put the settings of unfinished trials at the front of the study; returns the number of trials that are done."""
    optuna = _import_optuna()
    opened, state = open_study(study), optuna.trial.TrialState
    for trial in opened.get_trials(states=(state.RUNNING,)):
        opened.enqueue_trial(trial.params)
        opened.tell(trial.number, state=state.FAIL)
        shutil.rmtree(study.trial_path(trial.number), ignore_errors=True)
    return sum(trial.state != "requeued" for trial in _results(study))


def _results(study: Study) -> list[TrialResult]:
    return [_to_result(trial) for trial in open_study(study).trials if trial.state.is_finished()]


def _to_result(trial: Any) -> TrialResult:
    names = {
        "COMPLETE": "complete",
        "PRUNED": "pruned",
        "FAIL": "failed" if "error" in trial.user_attrs else "requeued",
    }
    return TrialResult(
        trial.number, trial.user_attrs.get("settings", {}), trial.user_attrs.get("score"), names[trial.state.name]
    )


def _collect(study: Study, config: dict[str, Any], reason: str) -> TuneResult:
    trials = [trial for trial in _results(study) if trial.state != "requeued"]
    complete = [trial for trial in trials if trial.state == "complete"]
    best = max(complete, key=lambda trial: -np.inf if trial.score is None else trial.score, default=None)
    file = None
    if best is not None:
        file = study.path / PRESET_FILE
        write_preset(file, _best_preset(study, config, best, len(trials)))
    return TuneResult(study.path, config["env"], study.space, tuple(trials), best, file, reason)


def _best_preset(study: Study, config: dict[str, Any], best: TrialResult, num_trials: int) -> Preset:
    """The preset of the study's runs, with the user's settings and the best values in it."""
    from thespis.presets.preset import find_preset

    base = find_preset(study.train_args.get("preset", AUTO), study.method, study.env)
    settings = dict(base.settings) if base else {}
    fixed = [text.partition("=") for text in setting_texts(study.train_args.get("settings"))]
    for name, value in [*((name, value) for name, _, value in fixed), *best.settings.items()]:
        parent = name.removesuffix(".init_value")
        if isinstance(settings.get(parent), dict) and parent != name:
            settings[parent] = {"linear_from": value}
        else:
            settings[name] = value
    seeds = len(config["seeds"])
    source = f"thespis tune: the best of {num_trials} trials with {seeds} seeds each, greedy return {best.score:.6g}"
    source += f"; not tuned: {base.name}" if base else ""
    return Preset(
        name=f"{study.method}/{study.env.rpartition(':')[2]}",
        method=study.method,
        envs=(study.env.rpartition(":")[2],),
        settings=settings,
        source=source,
        num_envs=config["envs"],
        steps=study.steps,
    )


def _check_directory(path: Path) -> None:
    if path.is_dir() and any(path.iterdir()) and not (path / STUDY_FILE).is_file():
        raise UserError(f"{path} is not empty and is not a study: choose another --out")


def _import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise missing_extra("optuna", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with contextlib.suppress(AttributeError):
        optuna.logging.disable_propagation()
    return optuna

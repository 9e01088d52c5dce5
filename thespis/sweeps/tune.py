"""Tuning of settings: trials chosen by Optuna, each an ordinary run, with bad ones stopped early.

The study is a directory: ``study.log`` (Optuna's journal), a run per trial, and ``best.toml``, a preset file with the
best settings. A study continues where it stopped: finished trials are kept, and the settings of unfinished ones are
tried again.

Source: Bergstra et al., 2011 (tree-structured Parzen estimator); Akiba et al., 2019 (Optuna).
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thespis import api
from thespis.core.errors import UserError
from thespis.presets.preset import AUTO, Preset, write_preset
from thespis.runs.config import from_config, setting_texts
from thespis.runs.events import Callback, EventBus
from thespis.runs.store import new_run_path
from thespis.sweeps.search_space import Dimension, search_space
from thespis.sweeps.trials import (
    STUDY_FILE,
    Study,
    TrialResult,
    end_trial,
    import_optuna,
    open_study,
    suggest_settings,
    to_result,
    train_trial,
)

PRESET_FILE = "best.toml"


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
    import_optuna()
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


def _requeue_unfinished(study: Study) -> int:
    """Put the settings of unfinished trials at the front of the study; returns the number of trials that are done."""
    optuna = import_optuna()
    opened, state = open_study(study), optuna.trial.TrialState
    for trial in opened.get_trials(states=(state.RUNNING,)):
        opened.enqueue_trial(trial.params)
        opened.tell(trial.number, state=state.FAIL)
        shutil.rmtree(study.trial_path(trial.number), ignore_errors=True)
    return sum(trial.state != "requeued" for trial in _results(study))


def _results(study: Study) -> list[TrialResult]:
    return [to_result(trial) for trial in open_study(study).trials if trial.state.is_finished()]


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

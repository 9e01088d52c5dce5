"""Trials of a study in a Ray cluster: the study stays in this process, and workers ask it whether to go on.

Each trial is a Ray task with one CPU that trains in a temporary directory of its machine and sends its run back. Its
evaluations go through a board, a Ray actor that workers and this process read and write.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from thespis.runs.events import EventBus
from thespis.runs.trust import named_modules, trusting
from thespis.runtime.interrupts import catch_interrupts
from thespis.runtime.ray_cluster import connect, worker_lost_errors
from thespis.sweeps.jobs import RunArchive, pack_run, unpack_run
from thespis.sweeps.trials import Study, TrialOutcome, end_trial, suggest_settings, train_trial

POLL_INTERVAL = 0.2
"""Seconds between two looks at the board."""


class Board:
    """Scores of evaluations, from workers to the study, and the study's answers: whether to stop the trial early."""

    def __init__(self) -> None:
        self._scores: list[tuple[int, int, float]] = []
        self._answers: dict[int, bool] = {}

    def report(self, number: int, step: int, score: float) -> None:
        """A worker reports an evaluation of a trial."""
        self._answers.pop(number, None)
        self._scores.append((number, step, score))

    def answer(self, number: int) -> bool | None:
        """Whether to stop a trial; ``None`` as long as the study has not seen its report."""
        return self._answers.get(number)

    def take_scores(self) -> list[tuple[int, int, float]]:
        """The reports since the last call: trial, step, score."""
        scores, self._scores = self._scores, []
        return scores

    def decide(self, number: int, stop: bool) -> None:
        """The study answers a report."""
        self._answers[number] = stop


def run_trial(
    study: Study, number: int, values: dict[str, Any], board: Any, cwd: str, trust: tuple[str, ...]
) -> tuple[TrialOutcome, RunArchive]:
    """Train a trial in this process: how it ended, and its run."""
    import ray

    def report(step: int, score: float) -> bool:
        ray.get(board.report.remote(number, step, score))
        stop: Any = None
        while stop is None:
            time.sleep(POLL_INTERVAL)
            stop = ray.get(board.answer.remote(number))
        return stop

    with contextlib.suppress(OSError):  # for relative paths, where the disk is shared
        os.chdir(cwd)
    with tempfile.TemporaryDirectory(prefix="thespis-") as folder, trusting(trust):
        path = Path(folder) / "run"
        outcome = train_trial(study, values, path, report)
        has_run = outcome.state != "interrupted" and path.is_dir()
        return outcome, pack_run(path) if has_run else {}


def work_in_cluster(study: Study, opened: Any, num_trials: int, jobs: int | None, cluster: str, bus: EventBus) -> str:
    """Do ``num_trials`` trials of Optuna's study ``opened`` in a cluster; ``finished`` or ``interrupted``."""
    import ray

    connection = connect(cluster, jobs or 1, "jobs")
    running: dict[Any, Any] = {}
    try:
        board = ray.remote(num_cpus=0)(Board).remote()
        options = {"num_cpus": 1, "max_retries": 0, "max_calls": 1, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options, runtime_env={"env_vars": connection.env_vars})(run_trial)
        location = os.getcwd(), named_modules()
        jobs = jobs or int(ray.cluster_resources().get("CPU", 1))
        with catch_interrupts() as stop:
            while (running or num_trials) and not stop.is_set():
                while num_trials and len(running) < jobs:
                    num_trials -= 1
                    trial = opened.ask()
                    values = suggest_settings(study, trial)
                    running[task.remote(study, trial.number, values, board, *location)] = trial
                done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_INTERVAL)
                _answer(board, {trial.number: trial for trial in running.values()})
                for reference in done:
                    trial = running.pop(reference)
                    outcome, archive = _outcome(reference)
                    if archive:
                        unpack_run(archive, study.trial_path(trial.number))
                    bus.emit("done", study.steps, trial=end_trial(opened, trial, outcome))
            return "interrupted" if stop.is_set() else "finished"
    finally:
        for reference in running:
            with contextlib.suppress(Exception):
                ray.cancel(reference, force=True)
        connection.disconnect()


def _answer(board: Any, trials: dict[int, Any]) -> None:
    """Tell Optuna the new scores, and the workers whether to go on."""
    import ray

    for number, step, score in ray.get(board.take_scores.remote()):
        if number in trials:
            trials[number].report(score, step)
            board.decide.remote(number, trials[number].should_prune())


def _outcome(reference: Any) -> tuple[TrialOutcome, RunArchive]:
    """The result of a trial, also of one whose process failed."""
    import ray
    from ray import exceptions

    try:
        return ray.get(reference)
    except worker_lost_errors():
        return TrialOutcome("failed", error="its process was lost"), {}
    except exceptions.RayTaskError as error:
        return TrialOutcome("failed", error=" ".join(str(error.cause or error).split())[:300]), {}

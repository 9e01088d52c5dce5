"""Sweeps and studies of this process whose jobs run in Ray's processes. Starting Ray is most of the time: once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from line_env import Line

from thespis import A2C, sweep
from thespis.runs.events import Event
from thespis.sweeps.tune import tune

STUDY = {"steps": 80, "episodes": 1, "evaluate_every": 40, "settings": ["hidden_sizes=4", "num_steps=4"]}


@pytest.fixture(scope="module", autouse=True)
def ray_of_this_process():
    """A connected Ray with two CPUs, which stands for a cluster."""
    from thespis.runtime.ray_cluster import connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # for jobs, as a user would do
        connection = connect(None, 2)
    yield
    connection.disconnect()


@pytest.mark.slow
def test_method_and_environment_objects(tmp_path):
    """A callback stops the sweep after its first job; the same call then continues it."""
    options = {"steps": 64, "seeds": [3, 5], "envs": 2, "episodes": 2, "settings": ["num_steps=8"]}
    events: list[Event] = []

    def stop_after_first_job(event: Event) -> bool:
        events.append(event)
        return event.kind == "done"

    method, grid = A2C(hidden_sizes=(8,)), {"hidden_sizes": [(8,), (4, 4)]}
    result = sweep(method, Line, grid=grid, jobs=1, callbacks=[stop_after_first_job], out=tmp_path / "s", **options)
    assert result.reason == "stopped" and [event.kind for event in events].count("done") == 1 and not result.failures
    assert sum(len(row.runs) for row in result.rows) == 1
    result = sweep(method, Line, grid=grid, out=tmp_path / "s", **options)
    assert result.reason == "finished" and [row.seeds for row in result.rows] == [(3, 5), (3, 5)]
    assert {Path(run).name for row in result.rows for run in row.runs} == {
        f"hidden_sizes={hidden},seeds=3+5" for hidden in ("8", "4-4")
    }
    assert result.best.summary.iqm == max(row.summary.iqm for row in result.rows)


@pytest.mark.slow
def test_a_study_in_a_cluster_gets_its_runs_back(tmp_path):
    from thespis import api

    seen = []
    options = STUDY | {"names": ["learning_rate", "discount=0.5..0.9"], "out": tmp_path / "study", "cluster": "auto"}
    result = tune("a2c", "probe:constant", trials=1, seeds=3, callbacks=[seen.append], **options)
    assert (result.reason, len(result.trials)) == ("finished", 1)
    assert [event.kind for event in seen] == ["start", "done"]
    best = result.best
    assert best is not None and best.score == 10.0
    run = api.load(tmp_path / "study" / f"trial-{best.number:04d}")
    assert run.step >= 80 and run.config["method"]["discount"] == best.settings["discount"]
    assert tune("a2c", "probe:constant", trials=1, seeds=3, **options).trials == result.trials


@pytest.mark.slow
def test_workers_of_a_cluster_stop_bad_trials_early(tmp_path, monkeypatch):
    """A trial with a high discount is stopped at its first evaluation."""
    import optuna

    below = lambda self, study, trial: trial.user_attrs["settings"]["discount"] > 0.5  # noqa: E731
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", below)
    options = STUDY | {"names": ["discount=0.0..0.9"], "seeds": 1, "cluster": "auto"}
    result = tune("a2c", "probe:constant", trials=5, out=tmp_path / "study", **options)
    states = {trial.settings["discount"] > 0.5: trial.state for trial in result.trials}
    assert states == {True: "pruned", False: "complete"}

"""Sweep plans, single jobs and packed runs, without Ray: grids, names, errors, and runs equal to ``thespis train``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.runs import checkpoint
from thespis.runs.store import RunDirectory
from thespis.sweeps.jobs import SweepLocation, pack_run, run_job, sees_directory, unpack_run
from thespis.sweeps.plan import SweepPlan, grid_points, plan_sweep, split_values
from thespis.sweeps.sweep import collect_results

TINY = {"steps": 256, "envs": 2, "episodes": 2, "checkpoint_seconds": 0.0}
SETTINGS = ["num_steps=32", "hidden_sizes=8", "num_epochs=1"]


def make_plan(out: Path, grid: Any = ("learning_rate=1e-3,1e-2",), **options: Any) -> SweepPlan:
    arguments = {"seeds": 2, "seeds_per_job": None, "settings": SETTINGS, "train_args": TINY} | options
    return plan_sweep("ppo", "probe:maze", grid=grid, out=out, **arguments)


def test_grid_points_are_all_combinations():
    assert grid_points([]) == [()]
    assert grid_points(["a=1,2", "b=x"]) == [("a=1", "b=x"), ("a=2", "b=x")]
    assert grid_points(["a=1,2", "b=3,4"]) == grid_points({"a": [1, 2], "b": "3,4"})
    assert grid_points({"hidden_sizes": [(8, 8), 16]}) == [("hidden_sizes=(8, 8)",), ("hidden_sizes=16",)]


def test_brackets_hold_one_value_together():
    assert split_values("[64,64],(32, 32),16") == ["[64,64]", "(32, 32)", "16"]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["learning_rate"], "--grid learning_rate is not of the form name=value,value"),
        (["=1,2"], "is not of the form name=value,value"),
        (["learning_rate="], "--grid learning_rate lacks a value"),
        (["learning_rate=1,,2"], "--grid learning_rate lacks a value"),
        ({"learning_rate": []}, "--grid learning_rate lacks a value"),
        ({"learning_rate": 1e-3}, "0.001 is a single value: write a list of values"),
        (["hidden_sizes=[64,64"], "a bracket in [64,64 has no match"),
        (["num_epochs=1,2", "num_epochs=3"], "--grid has num_epochs twice"),
        (["learning_rat=1,2"], "PPO has no setting 'learning_rat': did you mean learning_rate"),
        (["num_epochs=1,2.5"], "setting num_epochs=2.5 does not fit: a whole number is wanted"),
        (["learning_rate=1e-3,0.001"], "learning_rate=1e-3 and learning_rate=0.001 are the same setting"),
    ],
)
def test_a_bad_grid_is_one_line_and_writes_nothing(grid, message, tmp_path):
    with pytest.raises(UserError) as raised:
        make_plan(tmp_path / "s", grid)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds_per_job": 0}, "--seeds-per-job 0: a job needs at least one seed"),
        ({"seeds": [1, 1]}, "all different"),
        ({"train_args": TINY | {"workers": 2}}, "a job of a sweep has one CPU: leave out workers"),
        ({"train_args": TINY | {"devices": 2}}, "a job of a sweep has one CPU: leave out devices"),
        ({"train_args": TINY | {"color": 2}}, "unknown option 'color'"),
        ({"train_args": TINY | {"threads": 0}}, "at least 1"),
    ],
)
def test_invalid_options_are_refused(options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        make_plan(tmp_path / "s", **options)


def test_jobs_are_named_by_their_settings_and_seeds(tmp_path):
    grid = {"learning_rate": ["1e-3", "3e-4"], "hidden_sizes": [(8, 8)]}
    names = [job.name for job in make_plan(tmp_path / "a", grid, seeds=3, seeds_per_job=2).jobs]
    assert names == [
        "learning_rate=1e-3,hidden_sizes=8-8,seeds=0-1",
        "learning_rate=3e-4,hidden_sizes=8-8,seeds=0-1",
        "learning_rate=1e-3,hidden_sizes=8-8,seed=2",
        "learning_rate=3e-4,hidden_sizes=8-8,seed=2",
    ]
    (job,) = make_plan(tmp_path / "b", (), seeds=[0, 3, 5]).jobs
    assert job.name == "ppo,seeds=0+3+5" and job.train_args["settings"] == SETTINGS


def test_a_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and is not a sweep"):
        make_plan(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="is a run: choose another --out for the sweep"):
        make_plan(tmp_path)


@pytest.fixture(scope="module")
def remote_job(tmp_path_factory) -> tuple[SweepPlan, Any]:
    """A plan, and the result of its first job on a machine that cannot see the sweep's directory."""
    folder = tmp_path_factory.mktemp("away")
    sweep = make_plan(folder / "s")
    sweep.create()
    location = SweepLocation(str(folder / "s"), "of another machine", os.getcwd())
    with pytest.MonkeyPatch.context() as monkeypatch:
        (folder / "tmp").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
        result = run_job(sweep.jobs[0], location)
    assert not list((folder / "tmp").iterdir()), "no temporary files are left"
    return sweep, result


def test_the_sweep_directory_is_recognized_by_its_id(tmp_path):
    sweep = make_plan(tmp_path / "s")
    assert not (tmp_path / "s").exists() and not sees_directory(SweepLocation(str(tmp_path / "s"), sweep.id, ""))
    sweep.create()
    assert sees_directory(SweepLocation(str(tmp_path / "s"), sweep.id, ""))
    assert not sees_directory(SweepLocation(str(tmp_path / "s"), "other", "")) and not sees_directory(
        SweepLocation(str(tmp_path), sweep.id, "")
    )
    assert make_plan(tmp_path / "s").id == sweep.id


@pytest.mark.slow
def test_a_returned_run_is_complete(remote_job):
    """It can be evaluated, resumed and compared, and equals the run of ``thespis train``."""
    sweep, result = remote_job
    assert result.reason == "finished" and not (sweep.path / sweep.jobs[0].name).exists()
    unpack_run(result.archive, sweep.path / sweep.jobs[0].name)
    job, path = sweep.jobs[0], sweep.path / sweep.jobs[0].name
    expected = thespis.train(**job.train_args, out=sweep.path.parent / "straight")
    assert (path / "metrics.csv").read_bytes() == (expected.path / "metrics.csv").read_bytes()
    run = thespis.load(path)
    assert run.final_scores == expected.final_scores and run.evaluate(2)["greedy"]["scores"]
    missing = {file.relative_to(expected.path).as_posix() for file in expected.path.rglob("*") if file.is_file()}
    missing -= {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    older = checkpoint.list_checkpoints(expected.directory.checkpoint_dir)[0]
    assert missing == {".lock", f"checkpoints/{older.name}"}
    assert thespis.resume(path).final_scores == expected.final_scores
    (row, other) = collect_results(sweep, [], "interrupted").rows
    assert row.runs == (str(path),) and row.seeds == (0, 1) and other.runs == () and other.summary is None
    assert json.loads((sweep.path / "sweep.json").read_text())["settings"][0]["scores"] == list(row.summary.scores)
    assert make_plan(sweep.path).finished_run(job) is not None
    plan = make_plan(sweep.path, {"learning_rate": [0.001]})
    assert plan.id == sweep.id and plan.finished_run(plan.jobs[0]).path == path, "the text of the value does not matter"
    with pytest.raises(UserError, match="is already a run with other settings: choose another --out"):
        make_plan(sweep.path, train_args=TINY | {"steps": 512})


def test_rows_of_results_merge_the_runs_of_a_setting_and_begin_with_the_best(tmp_path):
    sweep = make_plan(tmp_path / "s", {"learning_rate": [1e-3, 1e-2, 1e-1]}, seeds_per_job=1)
    for job, score in zip(sweep.jobs, (1.0, 5.0, 0.0, 2.0), strict=False):  # seed 0 of all settings, then seed 1
        seeds = {"seeds": job.train_args["seeds"]}
        run = RunDirectory.create(sweep.path / job.name, sweep.config | seeds, ())
        run.write_json("final.json", {"step": 256, "greedy": {"scores": [[score]]}})
    best, second, last = collect_results(sweep, [], "stopped").rows
    assert (best.settings, best.seeds, best.summary.iqm) == (("learning_rate=0.01",), (0,), 5.0)
    assert (second.settings, second.seeds, second.num_planned_seeds) == (("learning_rate=0.001",), (0, 1), 2)
    assert second.summary.scores == (1.0, 2.0) and len(second.runs) == 2 and last.summary.iqm == 0.0


def test_unpacking_replaces_a_directory_completely_or_not_at_all(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "deep" / "old.txt").write_text("old")
    unpack_run({"new.txt": np.frombuffer(b"new", "uint8"), "empty": np.zeros(0, "uint8")}, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == {"new.txt": b"new", "empty": b""}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    packed = pack_run(tmp_path / "run")
    (tmp_path / "run" / "new.txt").unlink()
    assert bytes(packed["new.txt"]) == b"new", "files are mapped, and may be deleted"
    with pytest.raises(UserError, match="cannot write a finished run"):
        unpack_run({"a": np.zeros(1, "uint8"), "a/b": np.zeros(1, "uint8")}, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["empty"], "nothing was replaced"


def test_an_error_inside_a_job_is_its_result_and_not_raised(tmp_path):
    sweep = make_plan(tmp_path / "s", (), train_args=TINY | {"envs": 3, "learners": 2})
    result = run_job(sweep.jobs[0], SweepLocation(str(tmp_path / "s"), sweep.id, os.getcwd()))
    assert result.reason == "failed" and "3 environments per seed cannot be shared out to 2 learners" in result.message

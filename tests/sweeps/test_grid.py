"""What a sweep will do is known, and its mistakes refused, before anything starts; no Ray here."""

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
from thespis.sweeps.grid import points, split
from thespis.sweeps.job import Home, is_home, work
from thespis.sweeps.parcel import pack, unpack
from thespis.sweeps.plan import Plan, plan
from thespis.sweeps.results import gathered

TINY = {"steps": 256, "envs": 2, "episodes": 2, "checkpoint_seconds": 0.0}
SETTINGS = ["length=32", "hidden=8", "epochs=1"]


def planned(out: Path, grid: Any = ("learning_rate=1e-3,1e-2",), **more: Any) -> Plan:
    given = {"seeds": 2, "seeds_per_job": None, "settings": SETTINGS, "asked": TINY} | more
    return plan("ppo", "probe:maze", grid=grid, out=out, **given)


def test_every_combination_of_the_values():
    assert points([]) == [()]
    assert points(["a=1,2", "b=x"]) == [("a=1", "b=x"), ("a=2", "b=x")]
    assert points(["a=1,2", "b=3,4"]) == points({"a": [1, 2], "b": "3,4"})
    assert points({"hidden": [(8, 8), 16]}) == [("hidden=(8, 8)",), ("hidden=16",)]


def test_a_tuple_is_one_value():
    assert split("[64,64],(32, 32),16") == ["[64,64]", "(32, 32)", "16"]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (["learning_rate"], "--grid learning_rate is not of the form name=value,value"),
        (["=1,2"], "is not of the form name=value,value"),
        (["learning_rate="], "--grid learning_rate lacks a value"),
        (["learning_rate=1,,2"], "--grid learning_rate lacks a value"),
        ({"learning_rate": []}, "--grid learning_rate lacks a value"),
        ({"learning_rate": 1e-3}, "0.001 is one value where a list of them is wanted"),
        (["hidden=[64,64"], "a bracket in [64,64 has no partner"),
        (["epochs=1,2", "epochs=3"], "--grid has epochs twice"),
        (["learning_rat=1,2"], "PPO has no setting 'learning_rat': did you mean learning_rate"),
        (["epochs=1,2.5"], "setting epochs=2.5 does not fit: a whole number is wanted"),
        (["learning_rate=1e-3,0.001"], "learning_rate=1e-3 and learning_rate=0.001 are the same setting"),
    ],
)
def test_a_bad_grid_is_one_line_and_leaves_nothing(grid, said, tmp_path):
    with pytest.raises(UserError) as raised:
        planned(tmp_path / "s", grid)
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"seeds_per_job": 0}, "--seeds-per-job 0: a job needs at least one seed"),
        ({"seeds": [1, 1]}, "all different"),
        ({"asked": TINY | {"workers": 2}}, "a job of a sweep has one CPU: leave out workers"),
        ({"asked": TINY | {"devices": 2}}, "a job of a sweep has one CPU: leave out devices"),
        ({"asked": TINY | {"color": 2}}, "unknown option 'color'"),
        ({"asked": TINY | {"threads": 0}}, "at least 1"),
    ],
)
def test_what_else_is_refused(more, said, tmp_path):
    with pytest.raises(UserError, match=said):
        planned(tmp_path / "s", **more)


def test_jobs_are_runs_named_after_what_they_try(tmp_path):
    grid = {"learning_rate": ["1e-3", "3e-4"], "hidden": [(8, 8)]}
    names = [job.name for job in planned(tmp_path / "a", grid, seeds=3, seeds_per_job=2).jobs]
    assert names == [
        "learning_rate=1e-3,hidden=8-8,seeds=0-1",
        "learning_rate=3e-4,hidden=8-8,seeds=0-1",
        "learning_rate=1e-3,hidden=8-8,seed=2",
        "learning_rate=3e-4,hidden=8-8,seed=2",
    ]
    (one,) = planned(tmp_path / "b", (), seeds=[0, 3, 5]).jobs
    assert one.name == "ppo,seeds=0+3+5" and one.asked["settings"] == SETTINGS


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no sweep"):
        planned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run: choose another --out for the sweep"):
        planned(tmp_path)


@pytest.fixture(scope="module")
def away(tmp_path_factory) -> tuple[Plan, Any]:
    """A job as it ends on a machine from which the sweep's directory is not to be seen."""
    folder = tmp_path_factory.mktemp("away")
    sweep = planned(folder / "s")
    sweep.begin()
    home = Home(str(folder / "s"), "of another machine", os.getcwd())
    with pytest.MonkeyPatch.context() as patched:
        (folder / "tmp").mkdir()
        patched.setattr("tempfile.tempdir", str(folder / "tmp"))
        ended = work(sweep.jobs[0], home)
    assert not list((folder / "tmp").iterdir()), "nothing stays there"
    return sweep, ended


def test_home_is_known_by_its_mark(tmp_path):
    sweep = planned(tmp_path / "s")
    assert not (tmp_path / "s").exists() and not is_home(Home(str(tmp_path / "s"), sweep.id, ""))
    sweep.begin()
    assert is_home(Home(str(tmp_path / "s"), sweep.id, ""))
    assert not is_home(Home(str(tmp_path / "s"), "other", "")) and not is_home(Home(str(tmp_path), sweep.id, ""))
    assert planned(tmp_path / "s").id == sweep.id


def test_a_run_comes_home_whole(away):
    """It can be evaluated, resumed and compared there, and is that of ``thespis train``."""
    sweep, ended = away
    assert ended.reason == "finished" and not (sweep.path / sweep.jobs[0].name).exists()
    unpack(ended.parcel, sweep.path / sweep.jobs[0].name)
    job, path = sweep.jobs[0], sweep.path / sweep.jobs[0].name
    straight = thespis.train(**job.asked, out=sweep.path.parent / "straight")
    assert (path / "metrics.csv").read_bytes() == (straight.path / "metrics.csv").read_bytes()
    run = thespis.load(path)
    assert run.final == straight.final and run.evaluate(2)["greedy"]["scores"]
    left_out = {file.relative_to(straight.path).as_posix() for file in straight.path.rglob("*") if file.is_file()}
    left_out -= {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    older = checkpoint.listing(straight.directory.checkpoints)[0]
    assert left_out == {".lock", f"checkpoints/{older.name}"}
    assert thespis.resume(path).final == straight.final
    (row, other) = gathered(sweep, [], "interrupted").rows
    assert row.runs == (str(path),) and row.seeds == (0, 1) and other.runs == () and other.summary is None
    assert json.loads((sweep.path / "sweep.json").read_text())["settings"][0]["scores"] == list(row.summary.scores)
    assert planned(sweep.path).run(job) is not None
    again = planned(sweep.path, {"learning_rate": [0.001]})
    assert again.id == sweep.id and again.run(again.jobs[0]).path == path, "however its value is written"
    with pytest.raises(UserError, match="is a run of other settings already: choose another --out"):
        planned(sweep.path, asked=TINY | {"steps": 512})


def test_a_parcel_replaces_what_was_there_whole_or_not_at_all(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "deep" / "old.txt").write_text("old")
    unpack({"new.txt": np.frombuffer(b"new", "uint8"), "empty": np.zeros(0, "uint8")}, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == {"new.txt": b"new", "empty": b""}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    again = pack(tmp_path / "run")
    (tmp_path / "run" / "new.txt").unlink()
    assert bytes(again["new.txt"]) == b"new", "files are mapped, and may be deleted"
    with pytest.raises(UserError, match="cannot write a finished run"):
        unpack({"a": np.zeros(1, "uint8"), "a/b": np.zeros(1, "uint8")}, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["empty"], "nothing was replaced"


def test_a_mistake_that_only_a_job_can_see_is_its_end_and_not_raised(tmp_path):
    sweep = planned(tmp_path / "s", (), asked=TINY | {"envs": 3, "learners": 2})
    ended = work(sweep.jobs[0], Home(str(tmp_path / "s"), sweep.id, os.getcwd()))
    assert ended.reason == "failed" and "3 environments per seed cannot be shared out to 2 learners" in ended.message

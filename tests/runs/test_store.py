"""Run directories: metrics, evaluations, checkpoints and locks are read back, also after crashes and full disks."""

import json
import os
import resource

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.runs.checkpoint import CheckpointError
from thespis.runs.store import BASE_COLUMNS, RunDirectory, new_run_path

CONFIG = {"format": 1, "method_name": "sac", "seeds": [0, 1]}


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", CONFIG, ["loss", "actor/entropy"])


def rows(step, loss=0.5):
    return [{"step": step, "seed": seed, "episodes": 1, "episode_return": 2.0, "loss": loss} for seed in (0, 1)]


def fill(run, steps):
    for step in steps:
        run.append_metrics(rows(step))
        run.append_progress(step, step / 10, 100.0)
        run.append_evaluation(step, [[1.0, 2.0], [3.0, 4.0]], None)


def content(run):
    return {name: (run.path / name).read_bytes() for name in ("metrics.csv", "progress.csv", "evaluations.jsonl")}


def test_appended_metrics_are_read_back(run):
    run.append_metrics(
        [{"step": 10, "seed": 0, "loss": np.float32(0.1), "episodes": jnp.int32(2)}, {"step": 10, "seed": 1}]
    )
    run.append_metrics([{"step": 20, "seed": 0, "episode_return": None, "actor/entropy": -1e-30}])
    table = RunDirectory.open(run.path).metrics()
    assert list(table) == [*BASE_COLUMNS, "loss", "actor/entropy"]
    np.testing.assert_array_equal(table["step"], [10, 10, 20])
    np.testing.assert_array_equal(table["loss"], [np.float32(0.1), np.nan, np.nan])
    np.testing.assert_array_equal(table["episodes"], [2, np.nan, np.nan])
    np.testing.assert_array_equal(table["actor/entropy"], [np.nan, np.nan, -1e-30])
    lines = (run.path / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,seed,episodes,episode_return,episode_length,loss,actor/entropy"
    assert lines[1] == "10,0,2,,,0.10000000149011612,"


def test_a_run_without_rows_has_empty_columns(run):
    assert all(len(column) == 0 for column in run.metrics().values())
    assert run.evaluations() == [] and len(run.progress()["step"]) == 0


def test_unknown_columns_are_refused_before_anything_is_written(run):
    before = content(run)
    with pytest.raises(ValueError, match="no column 'lost'"):
        run.append_metrics([*rows(1), {"step": 1, "seed": 0, "lost": 1.0}])
    assert content(run) == before


def test_evaluations_and_progress(run):
    run.append_evaluation(5, [[1.0], [2.0]], [[0.5], [float("nan")]])
    run.append_progress(5, 1.5, 1000.0)
    reopened = RunDirectory.open(run.path)
    assert reopened.evaluations() == [{"step": 5, "greedy": [[1.0], [2.0]], "sampled": [[0.5], [None]]}]
    assert {k: v.tolist() for k, v in reopened.progress().items()} == {
        "step": [5],
        "elapsed": [1.5],
        "steps_per_second": [1000],
    }


def test_json_is_strict(run):
    assert run.read_json("final.json") is None
    run.write_json("final.json", {"a": np.arange(2), "b": (float("inf"), jnp.float32(0.5)), "c": {3: None}, "d": True})
    text = (run.path / "final.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [0, 1], "b": [None, 0.5], "c": {"3": None}, "d": True}
    assert run.read_json("final.json")["a"] == [0, 1]
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        run.write_json("final.json", {"a": object()})
    assert run.read_json("final.json")["a"] == [0, 1], "a failed write keeps the old content"


def test_config_is_read_back(run):
    assert RunDirectory.open(run.path).config == CONFIG


# -- resuming


def test_rewind_then_continue_equals_an_uninterrupted_run(tmp_path):
    uninterrupted = RunDirectory.create(tmp_path / "one", CONFIG, ["loss"])
    fill(uninterrupted, [10, 20, 30])
    interrupted = RunDirectory.create(tmp_path / "two", CONFIG, ["loss"])
    fill(interrupted, [10, 20])
    interrupted.append_metrics(rows(30, loss=99.0)[:1])
    with open(interrupted.path / "metrics.csv", "ab") as file:
        file.write(b"30,1,")  # the process died in the middle of a line
    with open(interrupted.path / "evaluations.jsonl", "ab") as file:
        file.write(b'{"step": 30, "gre')
    reopened = RunDirectory.open(interrupted.path)
    reopened.rewind(20)
    fill(reopened, [30])
    assert content(reopened) == content(uninterrupted)


def test_conversations_are_rewound(run):
    assert run.conversations() == []
    samples = [{"return": 1.0, "turns": [{"observation": "grüß\n> Gott", "response": "", "reward": 1.0}]}]
    for step in (0, 10, 20):
        run.append_conversations(step, samples)
    assert run.conversations()[1] == {"step": 10, "conversations": samples}
    run.rewind(10)
    assert [line["step"] for line in run.conversations()] == [0, 10]


def test_an_incomplete_line_is_ignored(run):
    fill(run, [10])
    with open(run.path / "metrics.csv", "ab") as file:
        file.write(b"20,0,1")
    assert run.metrics()["step"].tolist() == [10, 10]


def test_rewind_to_the_beginning(run):
    fresh = content(run)
    fill(run, [0, 10])
    run.rewind(0)
    assert run.metrics()["step"].tolist() == [0, 0] and len(run.evaluations()) == 1
    run.rewind(-1)
    assert content(run) == fresh


def test_the_latest_two_checkpoints_are_kept(run):
    assert run.load_checkpoint({"x": 0}) is None
    paths = [run.save_checkpoint(step, {"x": step}, {"step": step}) for step in (5, 10, 15)]
    assert sorted(run.checkpoint_dir.iterdir()) == paths[1:]
    loaded = RunDirectory.open(run.path).load_checkpoint({"x": 0})
    assert loaded.tree == {"x": 15} and loaded.meta == {"step": 15} and loaded.path == paths[2]


def test_damaged_checkpoints_are_renamed_and_do_not_replace_good_ones(run):
    for step in (10, 20):
        run.save_checkpoint(step, {"x": step}, {"step": step})
    (run.checkpoint_dir / "step_000000000020.ckpt").write_bytes(b"broken")
    loaded = run.load_checkpoint({"x": 0})
    assert loaded.tree == {"x": 10} and len(loaded.warnings) == 1
    run.rewind(10)
    run.save_checkpoint(12, {"x": 12}, {})
    names = sorted(path.name for path in run.checkpoint_dir.iterdir())
    assert names == ["step_000000000010.ckpt", "step_000000000012.ckpt", "step_000000000020.damaged"]


def test_partial_files_of_a_killed_process_are_deleted(run):
    (run.checkpoint_dir / ".step_000000000007.ckpt.part").write_bytes(b"half")
    run.save_checkpoint(10, {"x": 1}, {})
    assert [path.name for path in run.checkpoint_dir.iterdir()] == ["step_000000000010.ckpt"]


def test_all_checkpoints_damaged_is_an_error_not_a_fresh_start(run):
    run.save_checkpoint(10, {"x": 1}, {})
    (run.checkpoint_dir / "step_000000000010.ckpt").write_bytes(b"broken")
    with pytest.raises(CheckpointError, match="no undamaged checkpoint is left"):
        run.load_checkpoint({"x": 0})


def test_two_processes_cannot_train_the_same_run(run):
    run.lock()
    other = RunDirectory.open(run.path)
    with pytest.raises(UserError, match="another process"):
        other.lock()
    run.unlock()
    other.lock()
    other.unlock()


# -- mistakes of the user


def test_create_refuses_an_existing_directory(run, tmp_path):
    with pytest.raises(UserError, match=r"already holds a run: continue with `thespis resume .*run`"):
        RunDirectory.create(run.path, CONFIG, [])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="full is not empty"):
        RunDirectory.create(tmp_path / "full", CONFIG, [])
    (tmp_path / "empty").mkdir()
    RunDirectory.create(tmp_path / "empty", CONFIG, [])
    with pytest.raises(UserError, match=r"cannot write the run in .*Not a directory"):
        RunDirectory.create(tmp_path / "full" / "thesis.tex" / "run", CONFIG, [])


def test_open_names_the_nearest_run(run, tmp_path):
    with pytest.raises(UserError, match=r"runn does not exist: the latest run there is .*run$"):
        RunDirectory.open(tmp_path / "runn")
    with pytest.raises(UserError, match=r"is not a run but holds 1: name one, for instance .*run$"):
        RunDirectory.open(tmp_path)
    with pytest.raises(UserError, match=r"lies in one: name .*run$"):
        RunDirectory.open(run.checkpoint_dir)
    (tmp_path / "other" / "deep").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has no run\.json"):
        RunDirectory.open(tmp_path / "other")
    with pytest.raises(UserError, match="start one with `thespis train`"):
        RunDirectory.open(tmp_path / "other" / "deep" / "deeper")


def test_a_damaged_or_newer_run_json_is_reported(run):
    run.write_json("run.json", CONFIG | {"format": 2})
    with pytest.raises(UserError, match="run format 2"):
        RunDirectory.open(run.path)
    (run.path / "run.json").write_text('{"format"')
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        RunDirectory.open(run.path)


def test_full_disk_is_one_line_and_leaves_whole_rows(run):
    fill(run, [10])
    before = content(run)
    size = (run.path / "metrics.csv").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # room for a part of a row
    try:
        with pytest.raises(UserError, match=r"disk full: cannot write metrics\.csv in") as caught:
            run.append_metrics(rows(20))
        with pytest.raises(UserError, match=r"disk full: cannot write final\.json in"):
            run.write_json("final.json", list(range(1000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert content(run) == before
    assert not (run.path / "final.json").exists()
    run.append_metrics(rows(20))
    assert run.metrics()["step"].tolist() == [10, 10, 20, 20]


def test_a_missing_file_is_one_line(run):
    (run.path / "metrics.csv").unlink()
    with pytest.raises(UserError, match=r"metrics\.csv"):
        RunDirectory.open(run.path)


# -- paths


def test_new_run_path_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda pattern: "20260101-120000")
    first = new_run_path("sac", "gymnax:Pendulum-v1", tmp_path)
    assert first == tmp_path / "sac-gymnax-Pendulum-v1-20260101-120000"
    first.mkdir()
    second = new_run_path("sac", "gymnax:Pendulum-v1", tmp_path)
    assert second.name == first.name + "-2"
    second.mkdir()
    assert new_run_path("sac", "gymnax:Pendulum-v1", tmp_path).name == first.name + "-3"
    assert os.sep not in new_run_path("a/b", "mine.env:Class", tmp_path).name

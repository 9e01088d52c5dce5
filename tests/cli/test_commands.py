"""The commands train, resume, evaluate, compare, report, record, collect and list, end to end, on one small run."""

from __future__ import annotations

import json
import operator
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import TRAIN_WORDS
from PIL import Image

from thespis.data.datasets import read_dataset
from thespis.evaluation.episode_recording import read_episode


def test_train_prints_the_evaluation_and_the_next_commands(training):
    run, result = training
    assert result.out.startswith("device: cpu")
    for words in (
        "planned memory",
        "working memory",
        "evaluation at 512",
        "greedy",
        "sampled",
        "run/report.html",
        "Schulman et al. 2017",
    ):
        assert words in result.out
    assert "thespis evaluate run" in result.out and result.err == ""
    assert list((run.parent / "board").rglob("events*"))


@pytest.mark.slow
def test_evaluating_and_tracking_do_not_change_training(training, thespis):
    trained, tracked = training
    plain = thespis(*TRAIN_WORDS, "--evaluate-every", 0)
    assert tracked.out.count("evaluation at") > plain.out.count("evaluation at") and not Path("board").exists()
    assert (trained / "metrics.csv").read_bytes() == Path("run/metrics.csv").read_bytes()


@pytest.mark.long
def test_json_is_one_document_on_stdout_and_the_rest_on_stderr(trained, thespis):
    result = thespis("resume", trained, "--json")
    document, final = result.document, json.loads((trained / "final.json").read_text())
    assert document["reason"] == "finished" and document["step"] == 512
    assert document["greedy"] == final["greedy"] and document["state_hash"] == final["state_hash"]
    assert "device: cpu" in result.err


@pytest.mark.long
def test_evaluate_changes_nothing(trained, thespis):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    document = thespis("evaluate", trained, "--episodes", 3, "--json").document
    assert {"run", "step", "env", "greedy", "sampled", "state_hash", "warnings"} == set(document)
    for mode in ("greedy", "sampled"):
        assert {"iqm", "interval", "seeds", "scores"} <= set(document[mode])
        assert np.shape(document[mode]["scores"]) == (3, 3)
        assert document[mode]["interval"][0] <= document[mode]["iqm"] <= document[mode]["interval"][1]
    assert document["state_hash"] == json.loads((trained / "final.json").read_text())["state_hash"]
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_run_can_be_evaluated_and_recorded_in_another_environment(trained, thespis):
    own = thespis("evaluate", trained, "--episodes", 2, "--json").document
    other = thespis("evaluate", trained, "--env", "gymnasium:CartPole-v1", "--episodes", 2, "--json").document
    assert own["env"] != other["env"] == "gymnasium:CartPole-v1" and own["state_hash"] == other["state_hash"]
    assert own["greedy"]["scores"] != other["greedy"]["scores"]
    error = thespis("evaluate", trained, "--env", "Acrobot-v1", "--episodes", 2, code=2).err
    assert "expected float32" in error and len(error.splitlines()) == 1
    recorded = thespis("record", trained, "--env", "gymnasium:CartPole-v1", "--json").document
    assert recorded["episode"].endswith("_greedy_gymnasium_CartPole_v1.npz")


@pytest.mark.long
def test_the_best_checkpoint_can_be_evaluated(trained, thespis):
    best = thespis("resume", trained, "--json").document["best"]
    document = thespis("evaluate", trained, "--checkpoint", "best", "--episodes", 2, "--json").document
    assert document["step"] == best["step"] and np.mean(document["greedy"]["scores"]) == best["score"]
    assert "has no checkpoint 3: it has latest, best" in thespis("record", trained, "--checkpoint", 3, code=2).err


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--episodes", 1),
        pytest.param(("report",), marks=pytest.mark.slow),
        pytest.param(("resume", "--quiet"), marks=pytest.mark.slow),
        ("record",),
        ("collect", "--episodes", 3, "--out", "data"),
    ],
    ids=lambda command: command[0],
)
def test_a_damaged_checkpoint_is_named_by_every_command_that_would_read_it(command, trained, thespis, tmp_path):
    run = shutil.copytree(trained, tmp_path / "damaged")
    older, newest = sorted((run / "checkpoints").glob("step_*"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    name, *options = command
    result = thespis(name, run, *options, "--json")
    (warning,) = [line for line in result.err.splitlines() if line.startswith("thespis: warning: ")]
    assert newest.name in warning and "damaged" in warning
    assert [newest.name in line for line in result.document["warnings"]] == [True]
    if name in ("evaluate", "record"):
        assert result.document["step"] == int(older.stem.removeprefix("step_"))
    if name == "resume":  # it has written a new one
        assert thespis("report", run, "--json").document["warnings"] == []


def test_compare_prints_a_sentence_and_writes_a_plot(trained, thespis):
    """Compares a run with a copy of it whose method name is changed."""
    shutil.copytree(trained, "a2c")
    config = json.loads(Path("a2c/run.json").read_text())
    Path("a2c/run.json").write_text(json.dumps(config | {"method_name": "a2c"}))
    result = thespis("compare", trained, "a2c", "--plot", "plot.svg", "--json")
    document = result.document
    assert [group["name"] for group in document["groups"]] == ["ppo", "a2c"]
    (pair,) = document["pairs"]
    assert pair["verdict"] in ("better", "worse", "not distinguishable") and pair["sentence"] in result.err
    assert Path("plot.svg").read_text().startswith("<?xml")
    plain = thespis("compare", trained, "a2c").out
    assert f"for a plot: thespis compare {trained} a2c --plot comparison.svg" in plain


def test_report(trained, thespis):
    assert thespis("report", trained, "--out", "page.html", "--json").document["report"] == "page.html"
    assert "<h1>ppo on gymnax:CartPole-v1" in Path("page.html").read_text()


@pytest.mark.long
def test_record_writes_a_video_and_the_critique_of_each_step(trained, thespis):
    document = thespis("record", trained, "--seed", 1, "--sampled", "--out", "film.gif", "--json").document
    header, columns = read_episode(document["episode"])
    assert header["format"] == 1 and header["seed"] == 1 and header["mode"] == "sampled"
    length = document["length"]
    assert columns["observation"].shape == (length, 4)
    assert {len(column) for column in columns.values()} == {length}
    assert {"action", "reward", "terminated", "truncated", "value", "advantage"} <= set(columns)
    assert columns["reward"].sum() == document["return"]
    assert columns["terminated"][-1] or columns["truncated"][-1]
    assert document["drawn"].startswith(("rendered by Gymnasium's CartPole-v1", "plotted, because "))
    with Image.open("film.gif") as film:
        assert film.n_frames > 1


@pytest.mark.slow
def test_dialogues_of_a_demonstrator_can_be_collected_and_trained_on(thespis):
    document = thespis("collect", "text:echo", "--episodes", 20, "--out", "data", "--json").document
    assert (document["episodes"], document["steps"]) == (20, 60)
    small = ["--set", "num_layers=1", "hidden_size=32", "feed.batch_size=4", "--episodes", 2, "--quiet"]
    thespis("train", "sft", "--data", "data", "--env", "text:echo", "--steps", 2, "--out", "run", *small)
    thespis("collect", "run", "--episodes", 3, "--out", "own")
    thespis("train", "dpo", "--model", "blank", "--data", "data", "--steps", 2, "--out", "alone", *small)
    for wrong in (["--steps", 5], ["--episodes", 5, "--greedy"]):
        assert "--episodes N alone" in thespis("collect", "text:echo", *wrong, "--out", "x", code=2).err
    error = thespis("train", "dpo", "--data", "data", "--steps", 2, "--out", "tiny", code=2).err
    assert "pretrained on its environment" in error


@pytest.mark.long
def test_collected_data_can_be_trained_on(trained, thespis):
    document = thespis("collect", trained, "--steps", 100, "--out", "data", "--json").document
    dataset = read_dataset("data")
    assert document["steps"] == len(dataset.steps.reward) >= 100
    assert dataset.num_episodes == document["episodes"] and dataset.metadata["mode"] == "sampled"
    thespis("collect", trained, "--episodes", 4, "--out", "more", "--greedy", "--format", "parquet")
    assert read_dataset("more").num_episodes == 4
    thespis("collect", trained, "--episodes", 2, "--out", "one", "--greedy", "--seed", 1)
    one, both = read_dataset("one"), read_dataset("more")
    assert one.metadata["seeds"] == [1] and both.metadata["seeds"] == [0, 1, 2]
    ends = np.flatnonzero(both.steps.done)  # the seeds take turns
    second = slice(ends[0] + 1, ends[1] + 1)
    np.testing.assert_array_equal(one.steps.reward[: np.argmax(one.steps.done) + 1], both.steps.reward[second])
    error = thespis("collect", trained, "--steps", 5, "--out", "x", "--seed", 7, code=2).err
    assert "no seed 7: it has 0, 1, 2" in error
    options = ("--steps", 20, "--set", "hidden_sizes=8", "--episodes", 2, "--out", "clone", "--json")
    clone = thespis("train", "bc", "--data", "data", "--env", "CartPole-v1", *options).document
    assert clone["greedy"]["seeds"] == 1


@pytest.mark.slow
def test_list_methods(thespis):
    methods = thespis("list", "methods", "--json").document["methods"]
    assert methods["ppo"]["actions"] == ["box", "discrete", "multi-discrete", "trees"]
    assert methods["dqn"]["actions"] == ["discrete"] and methods["td3"]["actions"] == ["box"]
    assert methods["ippo"]["actions"] == methods["ppo"]["actions"] and methods["cfr"]["actions"] == ["moves of a game"]
    assert methods["bc"]["loops"] == ["logged"] and methods["sac"]["loops"] == ["compiled", "host", "logged"]


def test_list_one_method(thespis):
    document = thespis("list", "methods", "sac", "--json").document
    settings = {setting["name"]: setting for setting in document["settings"]}
    assert settings["learning_rate"]["type"].startswith("float | ") and settings["learning_rate"]["default"] == 3e-4
    assert settings["feed.batch_size"]["default"] == 256 and settings["num_critics"]["doc"]


def test_list_environments(thespis):
    names = [env["name"] for env in thespis("list", "envs", "--json").document["envs"]]
    assert "gymnax:Pendulum-v1" in names and "gymnasium:CartPole-v1" in names
    document = thespis("list", "envs", "CartPole-v1", "--json").document
    assert document["loop"] == "compiled" and document["action"]["n"] == 2 and document["params"]["length"] == 0.5


@pytest.mark.long
@pytest.mark.parametrize("command", [("list", "envs"), ("train", "--help")], ids=" ".join)
def test_a_closed_stdout_prints_no_error(command):
    words = [sys.executable, "-u", "-m", "thespis", *command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_an_unexpected_error_keeps_its_traceback_and_names_the_run(trained, thespis, monkeypatch):
    monkeypatch.setattr("thespis.train_run.run_loop", operator.truediv)  # no user's function: those are named alone
    result = thespis("resume", trained, "--quiet", code=1)
    assert "Traceback" in result.err and "TypeError: truediv expected 2 arguments" in result.err
    assert result.err.splitlines()[-1].startswith("thespis: unexpected error")
    assert f"thespis resume {trained}" in result.err


@pytest.mark.slow
def test_an_environment_that_renders_itself_is_recorded(thespis):
    pytest.importorskip("pygame")
    options = ("--steps", 256, "--set", "num_steps=32", "hidden_sizes=8", "--episodes", 2, "--out", "run", "--quiet")
    thespis("train", "ppo", "--env", "gymnasium:CartPole-v1", *options)
    document = thespis("record", "run", "--json").document
    assert document["drawn"] == "rendered by the environment"

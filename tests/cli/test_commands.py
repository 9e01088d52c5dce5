"""Every command, from end to end, on one small run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import TRAINED
from PIL import Image

from thespis.data.datasets import read_dataset
from thespis.evaluation.recording import read_record


def test_train_prints_the_verdict_and_what_to_do_next(training):
    run, said = training
    assert said.out.startswith("device: cpu")
    for words in (
        "planned memory",
        "evaluation at 512",
        "greedy",
        "sampled",
        "run/report.html",
        "Schulman et al. 2017",
    ):
        assert words in said.out
    assert "thespis evaluate run" in said.out and said.err == ""
    assert list((run.parent / "board").rglob("events*"))


@pytest.mark.slow
def test_evaluating_and_tracking_change_nothing(training, thespis):
    trained, tracked = training
    plain = thespis(*TRAINED, "--evaluate-every", 0)
    assert tracked.out.count("evaluation at") > plain.out.count("evaluation at") and not Path("board").exists()
    assert (trained / "metrics.csv").read_bytes() == Path("run/metrics.csv").read_bytes()


def test_json_is_one_document_and_all_else_is_elsewhere(trained, thespis):
    said = thespis("resume", trained, "--json")
    found, final = said.document, json.loads((trained / "final.json").read_text())
    assert found["reason"] == "finished" and found["step"] == 512
    assert found["greedy"] == final["greedy"] and found["state_hash"] == final["state_hash"]
    assert "device: cpu" in said.err


def test_evaluate_changes_nothing(trained, thespis):
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    found = thespis("evaluate", trained, "--episodes", 3, "--json").document
    assert {"run", "step", "greedy", "sampled", "state_hash"} == set(found)
    for way in ("greedy", "sampled"):
        assert {"iqm", "interval", "seeds", "scores"} <= set(found[way])
        assert np.shape(found[way]["scores"]) == (3, 3)
        assert found[way]["interval"][0] <= found[way]["iqm"] <= found[way]["interval"][1]
    assert found["state_hash"] == json.loads((trained / "final.json").read_text())["state_hash"]
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_compare_says_it_in_a_sentence(trained, thespis):
    """With a copy of the same run that is said to be of another method."""
    shutil.copytree(trained, "a2c")
    config = json.loads(Path("a2c/run.json").read_text())
    Path("a2c/run.json").write_text(json.dumps(config | {"method_name": "a2c"}))
    said = thespis("compare", trained, "a2c", "--plot", "plot.svg", "--json")
    found = said.document
    assert [group["name"] for group in found["groups"]] == ["ppo", "a2c"]
    (pair,) = found["pairs"]
    assert pair["verdict"] in ("better", "worse", "not distinguishable") and pair["sentence"] in said.err
    assert Path("plot.svg").read_text().startswith("<?xml")


def test_report(trained, thespis):
    assert thespis("report", trained, "--out", "page.html", "--json").document["report"] == "page.html"
    assert "<h1>ppo on gymnax:CartPole-v1" in Path("page.html").read_text()


def test_record_writes_a_film_and_the_critics_opinion(trained, thespis):
    found = thespis("record", trained, "--seed", 1, "--sampled", "--out", "film.gif", "--json").document
    about, columns = read_record(found["episode"])
    assert about["format"] == 1 and about["seed"] == 1 and about["mode"] == "sampled"
    length = found["length"]
    assert columns["observation"].shape == (length, 4)
    assert {len(column) for column in columns.values()} == {length}
    assert {"action", "reward", "terminated", "truncated", "value", "advantage"} <= set(columns)
    assert columns["reward"].sum() == found["return"]
    assert columns["terminated"][-1] or columns["truncated"][-1]
    assert found["drawn"].startswith(("drawn by Gymnasium's CartPole-v1", "plotted, as "))
    with Image.open("film.gif") as film:
        assert film.n_frames > 1


@pytest.mark.slow
def test_a_demonstrator_s_talk_can_be_collected_and_learnt(thespis):
    found = thespis("collect", "text:echo", "--episodes", 20, "--out", "data", "--json").document
    assert (found["episodes"], found["steps"]) == (20, 60)
    small = ["--set", "layers=1", "width=32", "feed.batch=4", "--episodes", 2, "--quiet"]
    thespis("train", "sft", "--data", "data", "--env", "text:echo", "--steps", 2, "--out", "run", *small)
    thespis("collect", "run", "--episodes", 3, "--out", "own")
    thespis("train", "dpo", "--model", "blank", "--data", "data", "--steps", 2, "--out", "alone", *small)
    for wrong in (["--steps", 5], ["--episodes", 5, "--greedy"]):
        assert "--episodes N alone" in thespis("collect", "text:echo", *wrong, "--out", "x", code=2).err
    told = thespis("train", "dpo", "--data", "data", "--steps", 2, "--out", "tiny", code=2).err
    assert "taught by its world" in told


def test_collect_can_be_learnt_from(trained, thespis):
    found = thespis("collect", trained, "--steps", 100, "--out", "data", "--json").document
    dataset = read_dataset("data")
    assert found["steps"] == len(dataset.steps.reward) >= 100
    assert dataset.episodes == found["episodes"] and dataset.about["mode"] == "sampled"
    thespis("collect", trained, "--episodes", 4, "--out", "more", "--greedy", "--format", "parquet")
    assert read_dataset("more").episodes == 4
    told = ("--steps", 20, "--set", "hidden=8", "--episodes", 2, "--out", "clone", "--json")
    clone = thespis("train", "bc", "--data", "data", "--env", "CartPole-v1", *told).document
    assert clone["greedy"]["seeds"] == 1


@pytest.mark.slow
def test_list_methods(thespis):
    found = thespis("list", "methods", "--json").document["methods"]
    assert found["ppo"]["actions"] == ["box", "discrete", "multi-discrete", "trees"]
    assert found["dqn"]["actions"] == ["discrete"] and found["td3"]["actions"] == ["box"]
    assert found["ippo"]["actions"] == found["ppo"]["actions"] and found["cfr"]["actions"] == ["moves of a game"]
    assert found["bc"]["loops"] == ["logged"] and found["sac"]["loops"] == ["compiled", "host", "logged"]


def test_list_one_method(thespis):
    found = thespis("list", "methods", "sac", "--json").document
    settings = {setting["name"]: setting for setting in found["settings"]}
    assert settings["learning_rate"]["type"] == "float" and settings["learning_rate"]["default"] == 3e-4
    assert settings["feed.batch"]["default"] == 256 and settings["critics"]["doc"]


def test_list_environments(thespis):
    names = [world["name"] for world in thespis("list", "envs", "--json").document["envs"]]
    assert "gymnax:Pendulum-v1" in names and "gymnasium:CartPole-v1" in names
    found = thespis("list", "envs", "CartPole-v1", "--json").document
    assert found["loop"] == "compiled" and found["action"]["n"] == 2 and found["params"]["length"] == 0.5


@pytest.mark.parametrize("asked", [("list", "envs"), ("train", "--help")], ids=" ".join)
def test_a_reader_who_leaves_early_is_no_accident(asked):
    words = [sys.executable, "-u", "-m", "thespis", *asked]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listing:
        listing.stdout.close()
        assert listing.stderr.read() == ""
    assert listing.returncode == 1


def test_an_unforeseen_error_keeps_its_traceback_and_says_where_the_run_is(trained, thespis, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("thespis.api.drive", broken)
    said = thespis("resume", trained, "--quiet", code=1)
    assert "ZeroDivisionError: a bug" in said.err
    assert said.err.splitlines()[-1].startswith("thespis: this was not foreseen")
    assert f"thespis resume {trained}" in said.err


@pytest.mark.slow
def test_a_world_that_draws_itself_is_filmed(thespis):
    pytest.importorskip("pygame")
    rest = ("--steps", 256, "--set", "length=32", "hidden=8", "--episodes", 2, "--out", "run", "--quiet")
    thespis("train", "ppo", "--env", "gymnasium:CartPole-v1", *rest)
    found = thespis("record", "run", "--json").document
    assert found["drawn"] == "drawn by the environment"

"""Parts of other packages: listed, trained by their names, resumed to the same bits, evaluated; nothing in Thespis
knows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed_parts import install_project, write_distribution

from thespis.cli.main import run as command_line

ROOT = Path(__file__).parents[2]
GARDEN = {
    "thespis.parts": {
        "ReplaySampler.newest-first": "garden_parts:NewestFirst",
        "Temperature.falling": "garden_parts:FallingTemperature",
        "CriticArchitecture.narrow": "garden_parts:NarrowCritic",
        "WindowFeed.small": "garden_parts:SmallReplay",
        "Temperature.gone": "garden_parts:Gone",
        "feedback.garden-words": "garden_parts:FirstTokenReward",
        "TurnAdvantageCritic.short": "garden_parts:ShortIsGood",
    }
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder in which five distributions are installed: four that ``thespis new`` wrote, and one of slots' parts."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in ("method", "feedback", "curriculum", "env"):
        assert command_line(["new", kind, f"garden-{kind}", "--package", "--out", str(folder)]) == 0
        install_project(folder / f"garden-{kind}", folder / "site")
    shutil.copy(Path(__file__).with_name("garden_parts.py"), folder / "site")
    write_distribution(folder / "site", "garden-parts", GARDEN)
    return folder / "site"


@pytest.fixture
def thespis_with(installed, tmp_path):
    """Run a command in a process that finds the installed distributions."""

    def call(*words: object, code: int = 0) -> subprocess.CompletedProcess:
        process = subprocess.run(
            [sys.executable, "-m", "thespis", *map(str, words)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{installed}{os.pathsep}{ROOT}", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert process.returncode == code, (process.stdout, process.stderr)
        return process

    return call


def rows_by_name(process: subprocess.CompletedProcess, kind: str) -> dict[str, dict]:
    """The rows of a list by name."""
    rows = json.loads(process.stdout)[kind]
    return rows if isinstance(rows, dict) else {row["name"]: row for row in rows}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("feedback", "garden-feedback", "garden_feedback:GardenFeedback"),
        ("curricula", "garden-curriculum", "garden_curriculum:GardenCurriculum"),
        ("feedback", "garden-words", "garden_parts:FirstTokenReward"),
        ("parts", "newest-first", "garden_parts:NewestFirst"),
        ("parts", "short", "garden_parts:ShortIsGood"),
    ],
)
def test_parts_of_other_packages_are_listed_without_importing_them(kind, name, path, thespis_with):
    row = rows_by_name(thespis_with("list", kind, "--json"), kind)[name]
    assert row["class"] == path and row["summary"] and "broken" not in row
    assert row["package"] == ("garden-parts" if path.startswith("garden_parts") else name)
    if kind == "feedback":
        assert row["environments"] == ("text" if name == "garden-words" else "any")


@pytest.mark.slow
def test_methods_and_environments_of_other_packages_are_listed(thespis_with):
    methods = rows_by_name(thespis_with("list", "methods", "--json"), "methods")
    assert methods["garden-method"]["package"] == "garden-method" and methods["ppo"]["package"] == "thespis-rl"
    assert "garden-env" in rows_by_name(thespis_with("list", "envs", "--json"), "envs")
    help_text = thespis_with("train", "garden-method", "--help").stdout
    assert "learning_rate=0.003" in help_text
    settings = thespis_with("list", "methods", "sac").stdout
    assert "FixedTemperature | TunedTemperature | falling" in " ".join(settings.split())


@pytest.mark.long
def test_a_broken_part_is_listed_as_broken_and_refused_in_one_line(thespis_with):
    row = rows_by_name(thespis_with("list", "parts", "--json"), "parts")["gone"]
    assert row["broken"] == "garden_parts has no 'Gone'"
    error = thespis_with("train", "sac", "--env", "probe:constant-continuous", "--set", "temperature=gone", code=2)
    assert error.stderr.count("\n") == 1 and "Temperature 'gone' of garden-parts is broken" in error.stderr


RUNS = {
    "parts of all kinds": (
        "garden-method",
        "--env garden-env --feedback garden-feedback --curriculum garden-curriculum --seeds 2 "
        "--set num_steps=16 hidden_sizes=8 feedback.baseline_coef=0.2 curriculum.num_episodes=20",
    ),
    "parts of slots": (
        "sac",
        "--env probe:constant-continuous --seeds 2 --set hidden_sizes=8 feed=small feed.sampler=newest-first "
        "temperature=falling temperature.timescale=30 critic=narrow critic.width=4",
    ),
    "a feedback and a critic for text": (
        "grpo",
        "--env text:maze --model blank --seeds 2 --envs 8 --feedback garden-words --set num_layers=1 hidden_size=32 "
        "feed.group_size=4 feedback.coef=0.5 critic=short critic.ema_rate=0.3",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_parts_of_other_packages_train_resume_and_evaluate(name, thespis_with, tmp_path):
    method, options = RUNS[name]
    words = ("train", method, *options.split(), "--episodes", 2, "--quiet")
    thespis_with(*words, "--steps", 384, "--out", "whole")
    first = thespis_with(*words, "--steps", 192, "--out", "parts")
    assert "--trust" not in first.stdout  # what is registered may be named by a run
    thespis_with("resume", "parts", "--steps", 384, "--quiet")
    whole, resumed = (json.loads((tmp_path / run / "final.json").read_text()) for run in ("whole", "parts"))
    assert whole["state_hash"] == resumed["state_hash"] and whole["step"] == 384
    assert whole["greedy"]["scores"] == resumed["greedy"]["scores"]
    evaluated = json.loads(thespis_with("evaluate", "parts", "--episodes", 2, "--json").stdout)
    assert evaluated["state_hash"] == whole["state_hash"]
    assert evaluated["greedy"]["scores"] == whole["greedy"]["scores"]
    text = (tmp_path / "whole" / "run.json").read_text()
    assert "garden_" in text and "garden-env" not in json.loads(text)["env"]


def test_new_parts_are_files_that_keep_the_names_that_are_asked_for(tmp_path, thespis):
    thespis("new", "feedback", "round-trip", "--out", tmp_path)
    text = (tmp_path / "round_trip.py").read_text()
    assert "class RoundTrip(" in text and 'name: ClassVar[str] = "round-trip"' in text and "emplate" not in text
    for words, message in (
        (("feedback", "round-trip"), "exists already"),
        (("feedback", "RoundTrip"), "small letters"),
        (("method", "json"), "a module json already"),
    ):
        error = thespis("new", *words, "--out", tmp_path, code=2).err
        assert message in error and error.count("\n") == 1

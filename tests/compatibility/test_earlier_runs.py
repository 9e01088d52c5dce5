"""Runs written by earlier code are read, resumed and trained again, to the same bits; ``record.py`` wrote them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from bits import digest, fingerprint, learnt, summary

import thespis
from thespis.runs.store import RunDirectory

HERE = Path(__file__).parent
RUNS = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "runs").glob("*.json"))}
FAST = ("bc",)


@pytest.fixture(scope="module")
def same_machine() -> bool:
    """Whether bits can be compared: another processor or XLA may round otherwise."""
    return fingerprint() == (HERE / "fingerprint.txt").read_text().strip()


def started(name: str, place: Path) -> Path:
    """A run directory that holds what was asked for, and nothing that was done."""
    config = json.loads(json.dumps(RUNS[name]["config"]).replace("HERE", str(HERE)))
    return RunDirectory.create(place, config, RUNS[name]["columns"]).path


def check(run: Path, kept: dict, same_machine: bool) -> None:
    arrays = learnt(run)
    np.testing.assert_allclose(np.array(summary(arrays)), np.array(kept["summary"]), rtol=0.02, atol=2e-3)
    if same_machine:
        assert digest(arrays) == kept["digest"]


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.laws) for n in RUNS])
def test_a_run_that_earlier_code_asked_for_comes_to_the_same_bits(name, tmp_path, same_machine):
    run = thespis.resume(started(name, tmp_path / "run"))
    check(run.path, RUNS[name], same_machine)


def test_a_run_that_earlier_code_stopped_is_evaluated_and_resumed_to_the_bits_of_a_straight_one(tmp_path, same_machine):
    place = tmp_path / "run"
    shutil.copytree(HERE / "stopped", place)
    before = thespis.load(place)
    assert before.step == 48 and np.isfinite(before.evaluate(2)["greedy"]["scores"]).all()
    columns = before.metrics()
    thespis.resume(place)
    check(place, RUNS["sac"], same_machine)
    after = thespis.load(place).metrics()
    for name, values in columns.items():  # names and numbers of what was written before
        np.testing.assert_array_equal(after[name][: len(values)], values)

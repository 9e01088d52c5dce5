"""Runs of earlier versions: read, resumed and trained again to the recorded bits (recorded by ``record.py``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from state_hash import columns_by_size, digest, fingerprint, learner_arrays, summary

import thespis
from thespis.runs.store import RunDirectory

HERE = Path(__file__).parent
RUNS = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "runs").glob("*.json"))}
FAST = ("bc",)


@pytest.fixture(scope="module")
def machine() -> str:
    """Hash of this machine: bits are compared where they were recorded, as others may round differently."""
    return fingerprint()


def create_run(name: str, directory: Path) -> Path:
    """A run directory with a recorded configuration and no steps done."""
    config = json.loads(json.dumps(RUNS[name]["config"]).replace("HERE", str(HERE)))
    return RunDirectory.create(directory, config, RUNS[name]["columns"]).path


def check(run: Path, record: dict, machine: str) -> None:
    """Compare the learner state of a run with a record: nearly, and bit for bit on a machine where it was recorded."""
    arrays = learner_arrays(run)
    result, expected = columns_by_size(summary(arrays)), columns_by_size(record["summary"])
    np.testing.assert_allclose(result, expected, rtol=0.02, atol=2e-3)
    if machine in record["digests"]:
        assert digest(arrays) == record["digests"][machine]


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.laws) for n in RUNS])
def test_a_recorded_configuration_trains_to_the_same_bits(name, tmp_path, machine):
    run = thespis.resume(create_run(name, tmp_path / "run"))
    check(run.path, RUNS[name], machine)


@pytest.mark.laws
def test_a_recorded_stopped_run_resumes_to_the_bits_of_an_uninterrupted_one(tmp_path, machine):
    directory = tmp_path / "run"
    shutil.copytree(HERE / "stopped", directory)
    before = thespis.load(directory)
    assert before.step == 48 and np.isfinite(before.evaluate(2)["greedy"]["scores"]).all()
    columns = before.metrics()
    thespis.resume(directory)
    check(directory, json.loads((HERE / "stopped" / "finished.json").read_text()), machine)
    after = thespis.load(directory).metrics()
    for name, values in columns.items():  # metrics that were written before the stop
        np.testing.assert_array_equal(after[name][: len(values)], values)

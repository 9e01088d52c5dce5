"""The command ``export`` for control policies, end to end on the small trained run; the files run without JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import thespis as package

OBSERVATIONS = np.random.default_rng(0).normal(scale=2.0, size=(64, 4)).astype("float32")

WITHOUT_JAX = """
import sys
for name in ("jax", "jaxlib", "equinox", "thespis"):
    sys.modules[name] = None
import json, numpy as np
{load}
print(json.dumps([act(x) for x in np.random.default_rng(0).normal(scale=2.0, size=(64, 4)).astype("float32")]))
"""
LOAD = {
    "numpy": 'sys.path.insert(0, "numpy")\nfrom policy import Policy\npolicy = Policy()\n'
    "act = lambda x: int(policy(x))",
    "safetensors": 'sys.path.insert(0, "safetensors")\nfrom policy import Policy\npolicy = Policy()\n'
    "act = lambda x: int(policy(x))",
    "onnx": 'import onnxruntime\nsession = onnxruntime.InferenceSession("onnx/policy.onnx")\n'
    'act = lambda x: int(session.run(["action"], {"observation": x[None]})[0][0])',
}


@pytest.mark.long
@pytest.mark.parametrize("file_format", ["numpy", "onnx", pytest.param("safetensors", marks=pytest.mark.slow)])
def test_an_exported_policy_runs_where_jax_and_thespis_cannot_be_imported(file_format, trained, thespis):
    words = ("export", trained, "--format", file_format, "--out", file_format, "--observations", 50, "--json")
    certificate = thespis(*words).document["certificate"]
    assert certificate["passed"] and certificate["observations"] == 50
    assert certificate["outputs"]["action"]["equal_share"] == 1.0
    assert certificate["outputs"]["action_probs"]["max_abs_difference"] < 1e-5
    assert 0 < certificate["latency_ms"]["median"] <= certificate["latency_ms"]["p99"]
    assert "greedy play of seed 0" in certificate["source"] and "numpy" in certificate["versions"]
    script = WITHOUT_JAX.format(load=LOAD[file_format])
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    actor = package.load(trained).actor()
    expected = [int(actor(x)) for x in OBSERVATIONS]
    assert json.loads(result.stdout) == expected and len(set(expected)) == 2


@pytest.mark.long
def test_a_policy_for_a_batch_is_compared_row_by_row(trained, thespis):
    words = ("export", trained, "--format", "numpy", "--out", "batch", "--batch-size", 8, "--observations", 50)
    result = thespis(*words, "--json")
    certificate = result.document["certificate"]
    assert certificate["passed"] and certificate["observations"] == 56  # whole batches
    assert certificate["latency_ms"]["what"].startswith("8 observations in one call")
    script = (
        'import json, sys; sys.path.insert(0, "batch")\nimport numpy as np\nfrom policy import Policy\n'
        "policy = Policy()\n"
        'x = np.random.default_rng(0).normal(scale=2.0, size=(64, 4)).astype("float32")\n'
        "print(json.dumps([int(a) for rows in x.reshape(8, 8, 4) for a in policy(rows)]))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    actor = package.load(trained).actor()
    assert json.loads(output) == [int(actor(x)) for x in OBSERVATIONS]
    assert "control policies" in thespis("export", trained, "--out", "c", "--batch-size", 8, code=2).err


def test_a_difference_beyond_the_tolerance_is_a_failure(trained, thespis, monkeypatch):
    from thespis.deployment import export

    written = export.write_files

    def damage(out, file_format, policy, description):
        written(out, file_format, policy, description)
        with np.load(out / "policy.npz") as file:
            arrays = dict(file)
        largest = max((name for name in arrays if arrays[name].dtype == "float32"), key=lambda name: arrays[name].size)
        np.savez(out / "policy.npz", **arrays | {largest: arrays[largest] + np.float32(0.1)})

    monkeypatch.setattr(export, "write_files", damage)
    words = ("export", trained, "--format", "numpy", "--out", "damaged", "--observations", 50, "--json")
    result = thespis(*words, code=1)
    assert "differs from the original by more than --tolerance 0.0001" in result.err
    assert not result.document["certificate"]["outputs"]["action_probs"]["passed"]
    assert not json.loads(Path("damaged/certificate.json").read_text())["passed"]


def test_what_cannot_be_exported_is_said_in_one_line(trained, thespis, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert "full is not empty" in thespis("export", trained, "--format", "numpy", "--out", "full", code=2).err
    assert "give --format onnx, numpy or safetensors" in thespis("export", trained, "--out", "model", code=2).err
    words = ("export", trained, "--format", "numpy", "--out", "other", "--seed", 9)
    assert "this run has no seed 9" in thespis(*words, code=2).err
    assert "leave --format out" in thespis(*words, "--adapters", code=2).err

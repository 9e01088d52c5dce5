"""On a mesh a decoder computes what it computes on one device, each device holding its share."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_mesh_of_data_and_tensors():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    paths = os.pathsep.join(map(str, (HERE, HERE.parents[1])))
    done = subprocess.run(
        [sys.executable, str(HERE / "on_mesh.py")],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    even, one_key = (json.loads(line) for line in done.stdout.splitlines())
    for found in (even, one_key):
        assert found["loss"] < 1e-5 and found["gradient"] < 1e-4 < found["size"]
        assert found["said"] and found["share of q"] == 0.5 and found["gradient lies as its parameter"]
    assert even["share of k"] == even["share of embedding"] == 0.5
    assert one_key["share of k"] == one_key["share of embedding"] == 1.0  # one key and 11 tokens do not divide by two

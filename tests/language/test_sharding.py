"""Decoder sharded over a mesh of devices, against one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow
def test_data_and_tensor_parallel_mesh():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    paths = os.pathsep.join(map(str, (FOLDER, FOLDER.parents[1])))
    process = subprocess.run(
        [sys.executable, str(FOLDER / "mesh_process.py")],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    even, one_kv_head = (json.loads(line) for line in process.stdout.splitlines())
    for result in (even, one_kv_head):
        assert result["loss"] < 1e-5 and result["gradient"] < 2e-5 * result["size"] and result["size"] > 1
        assert (
            result["equal tokens"] and result["shard of q"] == 0.5 and result["gradient is sharded like its parameter"]
        )
    assert even["shard of k"] == even["shard of embedding"] == 0.5
    assert (
        one_kv_head["shard of k"] == one_kv_head["shard of embedding"] == 1.0
    )  # one kv head and 11 tokens are not divisible by two

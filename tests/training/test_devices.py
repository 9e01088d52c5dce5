"""Training on several devices against one device: seeds bit by bit, environments up to the order of sums."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thespis.core.errors import UserError
from thespis.training.placement import LoopPrograms, choose_placement

FOLDER = Path(__file__).parent
REORDERED = 1e-4
"""Tolerance for another order of summation over eight blocks, relative to 1 or to the number."""


def on_devices(*words: str) -> list[dict]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    process = subprocess.run(
        [sys.executable, str(FOLDER / "devices_process.py"), *words],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": f"{FOLDER.parent}{os.pathsep}{FOLDER.parents[1]}"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return [json.loads(line) for line in process.stdout.splitlines()]


def check_seeds(result: dict) -> None:
    assert result["placement"] == "SeedSharding" and result["env_shard"] == [[1, 3]]
    assert result["independent"], "a sharded seed differs from a run with this seed alone"
    assert (
        result["resumed"] == result["from_single"] == result["resumed_on_single"] == 0.0
    )  # one CPU computes seeds separately, too
    assert result["moved"] > 10 * REORDERED


def check_environments(result: dict) -> None:
    assert result["placement"] == "EnvSharding" and result["env_shard"] == [[2, 2]]
    assert result["resumed"] == 0.0
    assert result["from_single"] < REORDERED and result["resumed_on_single"] < REORDERED
    assert result["moved"] > 10 * REORDERED
    columns = [shape for shape in result["gathered"] for rows in result["rows"] if f"[2,{rows}," in shape]
    assert not columns, "whole columns of replay are gathered"


@pytest.mark.long
def test_sharded_indexing_equals_plain_indexing():
    (equal,) = on_devices("indexing")
    assert len(equal) == 9 and all(equal.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a2c",
        "ppo",
        "ppo with memory",
        "impala",
        "dqn",
        "dqn on frames",
        "sac",
        "sac with hindsight",
        "r2d2",
        "td3",
        "dsac",
    ],
)
def test_methods_on_several_devices(name):
    seeds, environments = on_devices(f"{name}:seeds", f"{name}:environments")
    check_seeds(seeds)
    check_environments(environments)


@pytest.mark.parametrize(
    "count, message",
    [
        (
            9,
            "--devices 9 asks for another number of devices than there are, 1 cpu device; "
            "XLA_FLAGS=--xla_force_host_platform_device_count=9 cuts the CPU into that many",
        ),
        (0, "--devices 0 asks for another number of devices than there are, 1 cpu device"),
    ],
)
def test_missing_devices_are_refused(count, message):
    with pytest.raises(UserError) as error:
        choose_placement(LoopPrograms(lambda: None, lambda: None, (), [0]), 8, count)
    assert str(error.value) == message

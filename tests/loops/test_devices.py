"""Several devices compute what one does: seeds bit by bit, environments but for the order in which sums are made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thespis.core.errors import UserError
from thespis.loops.devices import Programs, placement

HERE = Path(__file__).parent
REORDERED = 1e-4
"""How far eight blocks may drift apart because sums are made in another order, relative to 1 or to the number."""


def on_devices(*words: str) -> list[dict]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, str(HERE / "on_devices.py"), *words],
        env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE.parents[1]}"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_seeds(found: dict) -> None:
    assert found["placement"] == "SeedsApart" and found["world"] == [[1, 3]]
    assert found["alone"], "each device's seeds are those of a run of their own, bit by bit"
    assert found["resumed"] == found["from_one"] == found["resumed_on_one"] == 0.0  # seeds on one CPU are apart, too
    assert found["moved"] > 10 * REORDERED


def check_environments(found: dict) -> None:
    assert found["placement"] == "EnvironmentsApart" and found["world"] == [[2, 2]]
    assert found["resumed"] == 0.0
    assert found["from_one"] < REORDERED and found["resumed_on_one"] < REORDERED
    assert found["moved"] > 10 * REORDERED
    columns = [shape for shape in found["gathered"] for rows in found["rows"] if f"[2,{rows}," in shape]
    assert not columns, "whole columns of replay travel"


def test_rows_are_picked_where_they_lie():
    (picked,) = on_devices("pick")
    assert len(picked) == 9 and all(picked.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a2c", "ppo", "ppo with memory", "impala", "dqn", "dqn on frames", "sac", "td3", "dsac"]
)
def test_every_kind_of_method(name):
    seeds, environments = on_devices(f"{name}:seeds", f"{name}:environments")
    check_seeds(seeds)
    check_environments(environments)


@pytest.mark.parametrize(
    "count, says",
    [
        (9, "--devices 9 asks for another number of devices than there are, 1 cpu device; "
            "XLA_FLAGS=--xla_force_host_platform_device_count=9 cuts the CPU into that many"),
        (0, "--devices 0 asks for another number of devices than there are, 1 cpu device"),
    ],
)  # fmt: skip
def test_devices_that_are_not_there(count, says):
    with pytest.raises(UserError) as error:
        placement(Programs(lambda: None, lambda: None, (), [0]), 8, count)
    assert str(error.value) == says

"""Runs with workers as a user sees them: killed, interrupted, failing, on two machines; no process stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest
from processes import COMMAND, PATIENCE, Ended, one_line, outcome, run_to_end, started_in
from rooms import inside

pytestmark = pytest.mark.slow

TRAIN = [
    "train",
    "ppo",
    "--envs",
    "4",
    "--workers",
    "2",
    "--out",
    "run",
    "--episodes",
    "2",
    "--checkpoint-seconds",
    "0",
]
SMALL = ["--set", "length=32", "hidden=8", "epochs=1"]
SLOW = [*TRAIN, "--env", "accidents:Slow", "--steps", "4096", *SMALL]
"""32 blocks of 128 steps; one takes 0.3 seconds."""


def blocks(cwd: Path) -> int:
    """Blocks that have been reported."""
    progress = cwd / "run" / "progress.csv"
    return max(len(progress.read_text().splitlines()) - 1, 0) if progress.exists() else 0


def after(count: int, cwd: Path, process: subprocess.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while blocks(cwd) < count and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert process.poll() is None and blocks(cwd) >= count, process.communicate()


def before_verdict(said: Ended) -> str:
    return said.err.partition("\nFinal play")[0]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The slow run, not disturbed."""
    cwd = tmp_path_factory.mktemp("straight")
    said = run_to_end([*SLOW, "--json", "--quiet"], cwd)
    assert said.code == 0 and json.loads(said.out)["step"] == 4096, said
    assert before_verdict(said) == "", "Ray is not heard"
    return cwd / "run"


def test_a_worker_killed_at_work_is_replaced(straight, tmp_path):
    """SIGKILL in the middle of a block: the run goes on to the same step, and says what it lost."""

    def kill(process: subprocess.Popen) -> None:
        after(5, tmp_path, process)
        time.sleep(0.1)
        os.kill(started_in(tmp_path, "ray::Worker.collect")[0], signal.SIGKILL)

    said = run_to_end([*SLOW, "--json", "--quiet"], tmp_path, kill)
    assert said.code == 0 and json.loads(said.out)["step"] == 4096, said
    lines = before_verdict(said).splitlines()
    assert len(lines) == 1 and "was lost and is replaced: its 2 environments begin new episodes" in lines[0], lines
    rows, others = ((run / "metrics.csv").read_text().splitlines() for run in (tmp_path / "run", straight))
    assert len(rows) == len(others) and rows[:5] == others[:5] and rows != others


def test_ctrl_c_ends_workers_too_and_resuming_is_exact(straight, tmp_path):
    def press(process: subprocess.Popen) -> None:
        after(5, tmp_path, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the group hears it

    said = run_to_end([*SLOW, "--quiet"], tmp_path, press)
    assert said.code == 130 and "thespis resume run" in one_line(said)
    said = run_to_end(["resume", "run", "--quiet"], tmp_path)
    assert said.code == 0 and outcome(tmp_path / "run") == outcome(straight), said.err


def test_ctrl_c_twice_leaves_nobody_behind(tmp_path):
    def press(process: subprocess.Popen) -> None:
        after(5, tmp_path, process)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)

    assert run_to_end([*SLOW, "--quiet"], tmp_path, press).code == 130


def test_a_run_that_is_killed_takes_its_workers_along(tmp_path):
    def kill(process: subprocess.Popen) -> None:
        after(5, tmp_path, process)
        process.kill()

    assert run_to_end([*SLOW, "--quiet"], tmp_path, kill).code == -signal.SIGKILL


def test_a_world_that_fails_in_a_worker_is_named_with_its_step(tmp_path):
    said = run_to_end([*TRAIN, "--env", "accidents:Raises", "--steps", "40000", *SMALL, "--quiet"], tmp_path)
    assert said.code == 2
    assert "worker 0: accidents:Raises, environment 0, step 1500, raised RuntimeError: the motor is on" in one_line(
        said
    )


# -- two machines ------------------------------------------------------------------------------------------


def test_two_machines_give_what_one_gives(straight, rooms, tmp_path):
    """One CPU each, so that both must work; the run is not to know the difference."""
    ray = str(Path(sys.executable).parent / "ray")
    notes, files = tmp_path / "notes", tempfile.mkdtemp(prefix="th-", dir="/tmp")
    notes.mkdir()
    node = ["start", "--num-cpus", "1", "--disable-usage-stats", "--node-ip-address"]
    guarded = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    head = ["--head", "--port", "6399", "--temp-dir", files, "--include-dashboard", "false"]
    try:
        inside(rooms[0], tmp_path, ray, *node, "10.213.7.1", *head, NOTES=str(notes), **guarded)
        inside(
            rooms[1], tmp_path, ray, *node, "10.213.7.2", "--address", "10.213.7.1:6399", NOTES=str(notes), **guarded
        )
        inside(rooms[0], tmp_path, *COMMAND, *SLOW, "--cluster", "10.213.7.1:6399", "--quiet", **guarded)
        assert len(list(notes.iterdir())) == 2, "both machines acted"
        assert outcome(tmp_path / "run") == outcome(straight)
    finally:
        for number in started_in(tmp_path):
            os.kill(number, signal.SIGKILL)
        shutil.rmtree(files, ignore_errors=True)

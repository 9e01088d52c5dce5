"""Runs with ``--workers``: killed, interrupted, failing or on two machines, against uninterrupted runs."""

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
from cli_process import COMMAND, TIMEOUT, FinishedProcess, one_line, outcome, processes_in, run_to_end
from network_namespaces import run_in_namespace

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
SMALL = ["--set", "num_steps=32", "hidden_sizes=8", "num_epochs=1"]
SLOW_RUN = [*TRAIN, "--env", "failing_envs:Slow", "--steps", "4096", *SMALL]
"""32 blocks of 128 steps; a block takes 0.3 seconds."""


def num_blocks(cwd: Path) -> int:
    """The number of blocks that the run has reported."""
    progress = cwd / "run" / "progress.csv"
    return max(len(progress.read_text().splitlines()) - 1, 0) if progress.exists() else 0


def wait_for_blocks(count: int, cwd: Path, process: subprocess.Popen) -> None:
    """Wait until a running process has reported this many blocks."""
    deadline = time.monotonic() + TIMEOUT
    while num_blocks(cwd) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None and num_blocks(cwd) >= count, process.communicate()


def messages_before_evaluation(result: FinishedProcess) -> str:
    """Lines on stderr while training, without the one that says that these few steps taught nothing."""
    lines = result.err.partition("\nFinal play")[0].splitlines(keepends=True)
    return "".join(line for line in lines if "the return did not move" not in line)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    """The slow run, uninterrupted."""
    cwd = tmp_path_factory.mktemp("straight")
    result = run_to_end([*SLOW_RUN, "--json", "--quiet"], cwd)
    assert result.code == 0 and json.loads(result.out)["step"] == 4096, result
    assert messages_before_evaluation(result) == "", "Ray prints nothing"
    return cwd / "run"


def test_a_killed_worker_is_replaced(uninterrupted, tmp_path):
    """SIGKILL in the middle of a block: the run continues to the same step and reports what it lost."""

    def kill(process: subprocess.Popen) -> None:
        wait_for_blocks(5, tmp_path, process)
        time.sleep(0.1)
        os.kill(processes_in(tmp_path, "ray::RolloutWorker.collect")[0], signal.SIGKILL)

    result = run_to_end([*SLOW_RUN, "--json", "--quiet"], tmp_path, kill)
    assert result.code == 0 and json.loads(result.out)["step"] == 4096, result
    lines = messages_before_evaluation(result).splitlines()
    assert len(lines) == 1 and "was lost and is replaced: its 2 environments begin new episodes" in lines[0], lines
    rows, others = ((run / "metrics.csv").read_text().splitlines() for run in (tmp_path / "run", uninterrupted))
    assert len(rows) == len(others) and rows[:5] == others[:5] and rows != others


def test_ctrl_c_ends_the_workers_and_resuming_is_exact(uninterrupted, tmp_path):
    def interrupt(process: subprocess.Popen) -> None:
        wait_for_blocks(5, tmp_path, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group gets it

    result = run_to_end([*SLOW_RUN, "--quiet"], tmp_path, interrupt)
    assert result.code == 130 and "thespis resume run" in one_line(result)
    result = run_to_end(["resume", "run", "--trust", "failing_envs", "--quiet"], tmp_path)
    assert result.code == 0 and outcome(tmp_path / "run") == outcome(uninterrupted), result.err


def test_ctrl_c_twice_leaves_no_process(tmp_path):
    def interrupt(process: subprocess.Popen) -> None:
        wait_for_blocks(5, tmp_path, process)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)

    assert run_to_end([*SLOW_RUN, "--quiet"], tmp_path, interrupt).code == 130


def test_killing_a_run_ends_its_workers(tmp_path):
    def kill(process: subprocess.Popen) -> None:
        wait_for_blocks(5, tmp_path, process)
        process.kill()

    assert run_to_end([*SLOW_RUN, "--quiet"], tmp_path, kill).code == -signal.SIGKILL


def test_an_environment_that_fails_in_a_worker_is_named_with_its_step(tmp_path):
    result = run_to_end([*TRAIN, "--env", "failing_envs:Raises", "--steps", "40000", *SMALL, "--quiet"], tmp_path)
    assert result.code == 2
    frame, message = result.err.strip().rsplit("\n", 1)
    assert "failing_envs.py" in frame and "the motor is on fire" in frame
    assert "worker 0: failing_envs:Raises, environment 0, step 1500, raised RuntimeError: the motor is on" in message


# -- two machines ------------------------------------------------------------------------------------------


def test_two_machines_give_the_result_of_one(uninterrupted, namespaces, tmp_path):
    """One CPU each, so that both must work; the result must equal that of one machine."""
    ray = str(Path(sys.executable).parent / "ray")
    notes, files = tmp_path / "notes", tempfile.mkdtemp(prefix="th-", dir="/tmp")
    notes.mkdir()
    node = ["start", "--num-cpus", "1", "--disable-usage-stats", "--node-ip-address"]
    auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    head = ["--head", "--port", "6399", "--temp-dir", files, "--include-dashboard", "false"]
    try:
        run_in_namespace(namespaces[0], tmp_path, ray, *node, "10.213.7.1", *head, NOTES=str(notes), **auth)
        run_in_namespace(
            namespaces[1], tmp_path, ray, *node, "10.213.7.2", "--address", "10.213.7.1:6399", NOTES=str(notes), **auth
        )
        run_in_namespace(
            namespaces[0], tmp_path, *COMMAND, *SLOW_RUN, "--cluster", "10.213.7.1:6399", "--quiet", **auth
        )
        assert len(list(notes.iterdir())) == 2, "both machines acted"
        assert outcome(tmp_path / "run") == outcome(uninterrupted)
    finally:
        for pid in processes_in(tmp_path):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(files, ignore_errors=True)

"""``thespis sweep``: killed, interrupted or on two machines, its runs equal those of ``thespis train``."""

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
from cli_process import COMMAND, TIMEOUT, one_line, outcome, processes_in, run_to_end
from conftest import SMALL
from network_namespaces import run_in_namespace

from thespis.runtime.ray_cluster import connect

SLOW_TRAINING = [
    "--env",
    "failing_envs:Slow",
    "--steps",
    "1024",
    "--envs",
    "4",
    "--episodes",
    "2",
    "--checkpoint-seconds",
    "0",
]
SLOW_TRAINING += ["--set", "num_steps=32", "hidden_sizes=8", "num_epochs=1"]
"""8 blocks of 128 steps; a block takes at least 0.2 seconds."""
SWEEP = ["sweep", "ppo", *SLOW_TRAINING, "--grid", "learning_rate=1e-3,1e-2", "--jobs", "2", "--out", "s", "--quiet"]
FIRST, SECOND = (f"s/learning_rate={rate},seed=0" for rate in ("1e-3", "1e-2"))


@pytest.fixture
def ray():
    """A Ray cluster that the command finds, as if the user had started it."""
    connection = connect(None, 2)
    yield
    connection.disconnect()


@pytest.mark.slow
def test_a_sweep_makes_the_runs_of_train_and_survives_a_diverging_run(thespis, ray):
    words = ("ppo", "--env", "CartPole-v1", "--seeds", "1,", *SMALL)
    grid = ("--grid", "learning_rate=1e-3,1e30", "--out", "s")
    result = thespis("sweep", *words, *grid, "--json", code=3)
    document, run = result.document, "s/learning_rate=1e-3,seed=1"
    assert [(row["name"], row["runs"], row["seeds"]) for row in document["settings"]] == [
        ("learning_rate=1e-3", [run], [1]),
        ("learning_rate=1e30", [], []),
    ]
    assert f": {run}: greedy return" in result.err and "0 of 1" in result.err and document["compare"] is None
    (failure,) = document["failed"]
    assert failure["reason"] == "diverged" and f"thespis: {failure['run']}: step " in result.err
    assert json.loads(Path("s/sweep.json").read_text())["settings"] == document["settings"]
    thespis("train", *words, "--set", "learning_rate=1e-3", "--out", "straight", "--quiet")
    assert outcome(Path(run)) == outcome(Path("straight"))
    config, expected = (json.loads(Path(path, "run.json").read_text()) for path in (run, "straight"))
    assert config.pop("device") and expected.pop("device") and config == expected
    before = Path(run, "final.json").stat().st_mtime_ns
    result = thespis("sweep", *words, "--grid", "learning_rate=1e-3", "--out", "s")
    assert "1 run in s, 1 of them already finished" in result.out and "1 of 1:" not in result.out
    assert Path(run, "final.json").stat().st_mtime_ns == before, "a finished run is not repeated"


@pytest.mark.slow
def test_wide_networks_have_the_bits_of_train(thespis, ray):
    """In wide networks a different number of XLA threads would change the bits."""
    words = ("sac", "--env", "Pendulum-v1", "--steps", "1200", "--seeds", "2", "--episodes", "2", "--quiet", "--out")
    thespis("sweep", *words, "s")
    thespis("train", *words, "straight")
    assert outcome(Path("s/sac,seeds=0-1")) == outcome(Path("straight"))


# -- killed and interrupted sweeps --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> list[tuple[str, bytes]]:
    """The outcomes of the slow runs, uninterrupted."""
    cwd = tmp_path_factory.mktemp("straight")
    processes = [
        run_to_end(["train", "ppo", *SLOW_TRAINING, "--set", f"learning_rate={rate}", "--out", rate, "--quiet"], cwd)
        for rate in ("1e-3", "1e-2")
    ]
    assert [process.code for process in processes] == [0, 0], processes
    return [outcome(cwd / rate) for rate in ("1e-3", "1e-2")]


def wait_for_checkpoints(cwd: Path, process: subprocess.Popen) -> None:
    """Wait until both runs have saved two checkpoints."""
    runs = [cwd / FIRST, cwd / SECOND]
    deadline = time.monotonic() + TIMEOUT
    while not all(len(list(run.glob("checkpoints/step_*.ckpt"))) == 2 for run in runs):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


@pytest.mark.slow
def test_a_killed_job_is_restarted_and_resumes_exactly(uninterrupted, tmp_path):
    def kill(process: subprocess.Popen) -> None:
        wait_for_checkpoints(tmp_path, process)
        os.kill(processes_in(tmp_path, "ray::run_job")[0], signal.SIGKILL)

    result = run_to_end(SWEEP, tmp_path, kill)
    assert result.code == 0 and "its process was lost and is restarted (1 of 3 times)" in one_line(result)
    assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == uninterrupted


@pytest.mark.slow
def test_a_job_killed_four_times_is_given_up(tmp_path):
    words = [
        "sweep",
        "ppo",
        *SLOW_TRAINING,
        "--env",
        "failing_envs:EndsItsProcess",
        "--jobs",
        "1",
        "--out",
        "s",
        "--quiet",
    ]
    result = run_to_end(words, tmp_path)
    assert result.code == 2 and result.err.count("is restarted") == 3, result
    assert result.err.splitlines()[-1].startswith("thespis: s/ppo,seed=0: its process was lost 4 times")


@pytest.mark.slow
def test_ctrl_c_saves_all_runs_and_the_same_command_continues(uninterrupted, tmp_path):
    def interrupt(process: subprocess.Popen) -> None:
        wait_for_checkpoints(tmp_path, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group gets it

    result = run_to_end(SWEEP, tmp_path, interrupt)
    assert result.code == 130 and "run the same command with this --out to continue" in one_line(result)
    assert not list(tmp_path.glob("s/*/final.json"))
    result = run_to_end(SWEEP, tmp_path)
    assert result.code == 0 and result.err == "", result
    assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == uninterrupted


@pytest.mark.slow
def test_runs_are_returned_from_a_machine_without_a_shared_disk(uninterrupted, namespaces, tmp_path):
    """One CPU each, so that both must work; the second machine mounts another disk at the sweep's directory."""
    ray = str(Path(sys.executable).parent / "ray")
    notes, files = tmp_path / "notes", tempfile.mkdtemp(prefix="th-", dir="/tmp")
    for folder in (notes, tmp_path / "s"):
        folder.mkdir()
    node = [ray, "start", "--num-cpus", "1", "--disable-usage-stats", "--node-ip-address"]
    head = ["--head", "--port", "6399", "--temp-dir", files, "--include-dashboard", "false"]
    separate_disk = ["sh", "-c", 'mount -t tmpfs none s && exec "$@"', "sh"]  # ip gives each command mounts of its own
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex, "NOTES": str(notes)}
    try:
        run_in_namespace(namespaces[0], tmp_path, *node, "10.213.7.1", *head, **variables)
        run_in_namespace(
            namespaces[1], tmp_path, *separate_disk, *node, "10.213.7.2", "--address", "10.213.7.1:6399", **variables
        )
        run_in_namespace(namespaces[0], tmp_path, *COMMAND, *SWEEP, "--cluster", "10.213.7.1:6399", **variables)
        assert len(list(notes.iterdir())) == 2, "both machines trained"
        assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == uninterrupted
        assert sum((tmp_path / run / ".lock").exists() for run in (FIRST, SECOND)) == 1, (
            "the other run was written on the second machine's disk"
        )
        sweep_id = json.loads((tmp_path / "s" / "sweep.json").read_text())["id"]
        assert not Path(tempfile.gettempdir(), f"thespis-{sweep_id}").exists()
    finally:
        for pid in processes_in(tmp_path):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(files, ignore_errors=True)

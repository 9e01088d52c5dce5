"""``--processes 2``: two processes train one run and end with the numbers of one process."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from cli_process import COMMAND, process_env, thespis

from thespis.cli.main import run as command_line

PPO = (
    "train",
    "ppo",
    "--env",
    "CartPole-v1",
    "--steps",
    1024,
    "--envs",
    4,
    "--episodes",
    2,
    "--devices",
    2,
    "--set",
    "num_steps=32",
    "hidden_sizes=8",
    "num_epochs=2",
    "minibatch_size=32",
)
DQN = (
    "train",
    "dqn",
    "--env",
    "CartPole-v1",
    "--steps",
    400,
    "--preset",
    "none",
    "--seeds",
    2,
    "--episodes",
    2,
    "--devices",
    2,
    "--set",
    "hidden_sizes=8",
    "learning_starts=100",
    "batch_size=16",
    "buffer_size=400",
)


def env_with_devices(devices: int) -> dict[str, str]:
    """Environment variables that give a process this many CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return process_env() | {"XLA_FLAGS": flags}


def run_two_processes(*words: object, cwd: Path) -> list[tuple[str, str]]:
    """Run the command in two processes of one device each. Returns stdout and stderr of both."""
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        port = unused.getsockname()[1]
    connection = ["--coordinator", f"localhost:{port}", "--processes", "2", "--process"]
    processes = [
        subprocess.Popen(
            [*COMMAND, *map(str, words), *connection, str(i)],
            cwd=cwd,
            env=env_with_devices(1),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    return outputs


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("words", [PPO, DQN], ids=["environments", "seeds"])
def test_two_processes_give_the_result_of_one(words, tmp_path):
    process = subprocess.run(
        [*COMMAND, *map(str, words), "--out", "one"], cwd=tmp_path, env=env_with_devices(2), check=True
    )
    assert process.returncode == 0
    outputs = run_two_processes(*words, "--out", "two", cwd=tmp_path)
    assert "Final play" in outputs[0][0] and "Final play" not in outputs[1][0]
    expected, result = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(expected) == len(result) > 5
    for expected_row, row in zip(expected, result, strict=True):
        for name, text in expected_row.items():
            assert (text == "") == (row[name] == "")
            if text:
                assert float(row[name]) == pytest.approx(float(text), rel=1e-3, abs=1e-4), name
    if words is DQN:  # no sum was taken across processes
        assert (
            len({json.loads((tmp_path / run / "final.json").read_text())["state_hash"] for run in ("one", "two")}) == 1
        )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_of_two_processes_can_be_resumed(processes, tmp_path):
    run_two_processes(*PPO, "--out", "run", cwd=tmp_path)
    for name in ("final.json", "report.html"):
        (tmp_path / "run" / name).unlink()
    last = max((tmp_path / "run" / "checkpoints").glob("*.ckpt"))
    last.unlink()  # as if the run had been stopped before its end
    if processes == 1:
        thespis("resume", "run", "--devices", 1, "--quiet", cwd=tmp_path)
    else:
        run_two_processes("resume", "run", cwd=tmp_path)
    assert json.loads((tmp_path / "run" / "final.json").read_text())["step"] == 1024


@pytest.mark.parametrize(
    "words", [("--processes", "2"), ("--coordinator", "localhost:1", "--processes", "2", "--process", "2")]
)
def test_incomplete_process_options_are_one_line(words, capsys):
    assert command_line(["train", "ppo", "--env", "CartPole-v1", *words]) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1 and "--coordinator HOST:PORT" in message

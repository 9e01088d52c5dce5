"""Two processes train one run together, and end where one does."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from processes import COMMAND, environment, thespis

from thespis.cli.main import run as command_line

PPO = ("train", "ppo", "--env", "CartPole-v1", "--steps", 1024, "--envs", 4, "--episodes", 2, "--devices", 2,
       "--set", "length=32", "hidden=8", "epochs=2", "minibatch=32")  # fmt: skip
DQN = ("train", "dqn", "--env", "CartPole-v1", "--steps", 400, "--seeds", 2, "--episodes", 2, "--devices", 2,
       "--set", "hidden=8", "warmup=100", "batch=16", "capacity=400")  # fmt: skip


def cut(devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return environment() | {"XLA_FLAGS": flags}


def together(*words: object, cwd: Path) -> list[tuple[str, str]]:
    """The command in two processes of one device each; what each of them said."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    meet = ["--coordinator", f"localhost:{port}", "--processes", "2", "--process"]
    begun = [
        subprocess.Popen(
            [*COMMAND, *map(str, words), *meet, str(i)],
            cwd=cwd,
            env=cut(1),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    said = [process.communicate() for process in begun]
    assert [process.returncode for process in begun] == [0, 0], said
    return said


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("words", [PPO, DQN], ids=["environments", "seeds"])
def test_two_processes_do_what_one_does(words, tmp_path):
    alone = subprocess.run([*COMMAND, *map(str, words), "--out", "one"], cwd=tmp_path, env=cut(2), check=True)
    assert alone.returncode == 0
    said = together(*words, "--out", "two", cwd=tmp_path)
    assert "Final play" in said[0][0] and "Final play" not in said[1][0]
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == len(two) > 5
    for mine, theirs in zip(one, two, strict=True):
        for name, text in mine.items():
            assert (text == "") == (theirs[name] == "")
            if text:
                assert float(theirs[name]) == pytest.approx(float(text), rel=1e-3, abs=1e-4), name
    if words is DQN:  # nothing was added up across processes
        assert (
            len({json.loads((tmp_path / run / "final.json").read_text())["state_hash"] for run in ("one", "two")}) == 1
        )


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_of_two_processes_goes_on(processes, tmp_path):
    together(*PPO, "--out", "run", cwd=tmp_path)
    for name in ("final.json", "report.html"):
        (tmp_path / "run" / name).unlink()
    last = max((tmp_path / "run" / "checkpoints").glob("*.ckpt"))
    last.unlink()  # as if it had been stopped before its end
    if processes == 1:
        thespis("resume", "run", "--devices", 1, "--quiet", cwd=tmp_path)
    else:
        together("resume", "run", cwd=tmp_path)
    assert json.loads((tmp_path / "run" / "final.json").read_text())["step"] == 1024


@pytest.mark.parametrize("words", [("--processes", "2"), ("--coordinator", "localhost:1", "--processes", "2",
                                                          "--process", "2")])  # fmt: skip
def test_numbers_that_contradict_each_other(words, capsys):
    assert command_line(["train", "ppo", "--env", "CartPole-v1", *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "--coordinator HOST:PORT" in said

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import COMMAND, PATIENCE, environment, outcome

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


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_to_end(words: list[str], cwd: Path, meanwhile: Callable[[subprocess.Popen], None] | None = None) -> Ended:
    """A command to its end, after which none of the processes that it started may be left."""
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=cwd, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        if meanwhile is not None:
            meanwhile(process)
        out, err = process.communicate(timeout=PATIENCE)
        end = time.monotonic() + 100  # after SIGKILL, Ray takes a minute to notice
        while started_in(cwd) and time.monotonic() < end:
            time.sleep(0.1)
        assert not started_in(cwd), [Path(f"/proc/{number}/cmdline").read_text() for number in started_in(cwd)]
        return Ended(process.returncode, out, err)
    finally:
        for number in started_in(cwd):
            os.kill(number, signal.SIGKILL)


def started_in(cwd: Path, name: str = "") -> list[int]:
    """The processes that live in this directory, and whose command line has this name in it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").readlink() == cwd and name in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended, or is a zombie
    return found


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


def one_line(said: Ended) -> str:
    assert said.err.count("\n") == 1 and said.err.startswith("thespis: "), said.err
    return said.err


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


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def inside(room: str, cwd: Path, *words: str, **more: str) -> None:
    """Run a command in a network namespace."""
    told = environment() | more
    command = ["ip", "netns", "exec", room, *words]
    done = subprocess.run(command, cwd=cwd, env=told, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def rooms() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable: 10.213.7.1 and 10.213.7.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2's ip")
    mark = uuid.uuid4().hex[:6]
    names = f"tha{mark}", f"thb{mark}"
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.213.7.{number}/24", "dev", name)
            for device in (name, "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)


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

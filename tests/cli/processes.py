"""Thespis as a user starts it: as a process, which can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "thespis"]
PATIENCE = 240  # seconds


def environment() -> dict[str, str]:
    path = filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def thespis(*words: object, cwd: Path, check: int | None = 0, **more) -> subprocess.CompletedProcess:
    """Run a command to its end and require its exit code."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=PATIENCE, **more,
    )  # fmt: skip
    assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def begun(*words: object, cwd: Path) -> subprocess.Popen:
    """A command under way."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step_*.ckpt"))


def wait_for(process: subprocess.Popen, happened) -> bool:
    """Whether it happened before the process ended."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if happened():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.0005)
    process.kill()
    raise AssertionError(f"nothing happened:\n{process.communicate()}")


def kill(process: subprocess.Popen, run: Path, *, writing: bool, rng: random.Random) -> bool:
    """SIGKILL after the next checkpoint: at once when another is being written, or some time later."""
    before = checkpoints(run)
    newer = wait_for(process, lambda: checkpoints(run) not in ([], before))
    if newer and writing:
        newer = wait_for(process, lambda: any((run / "checkpoints").glob(".*.part")))
    elif newer:
        time.sleep(rng.uniform(0, 0.5))
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def killed(command: list, run: Path, cwd: Path, *, kills: int, seed: int) -> int:
    """Train, killed again and again, then resume to the end. Returns how many kills hit."""
    rng, hits = random.Random(seed), 0
    process = begun(*command, "--out", run, "--checkpoint-seconds", 0, cwd=cwd)
    for i in range(kills):
        hits += kill(process, run, writing=i % 2 == 0, rng=rng)
        process = begun("resume", run, cwd=cwd)
    output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    return hits


def outcome(run: Path) -> tuple[str, bytes]:
    """What two equal runs share: the hash of the final state, and every byte of the metrics."""
    return json.loads((run / "final.json").read_text())["state_hash"], (run / "metrics.csv").read_bytes()


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


def one_line(said: Ended) -> str:
    assert said.err.count("\n") == 1 and said.err.startswith("thespis: "), said.err
    return said.err

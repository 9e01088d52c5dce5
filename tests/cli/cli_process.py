"""Run ``thespis`` commands as processes, as a user does: start, kill, wait and compare the runs that they write."""

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
TIMEOUT = 240  # seconds


def process_env() -> dict[str, str]:
    """Environment variables in which this folder can be imported from."""
    path = filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def thespis(*words: object, cwd: Path, check: int | None = 0, **options) -> subprocess.CompletedProcess:
    """Run a command to its end and check its exit code."""
    process = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env=process_env(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        **options,
    )
    assert check is None or process.returncode == check, (
        f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
    )
    return process


def start_command(*words: object, cwd: Path) -> subprocess.Popen:
    """Start a command and return its process."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env=process_env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step_*.ckpt"))


def wait_for(process: subprocess.Popen, condition) -> bool:
    """Wait until the condition holds. Returns False if the process ended before that."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.0005)
    process.kill()
    raise AssertionError(f"the condition never held:\n{process.communicate()}")


def kill(process: subprocess.Popen, run: Path, *, writing: bool, rng: random.Random) -> bool:
    """Send SIGKILL after the next checkpoint: while the one after it is written, or after a random delay."""
    before = checkpoints(run)
    has_newer = wait_for(process, lambda: checkpoints(run) not in ([], before))
    if has_newer and writing:
        has_newer = wait_for(process, lambda: any((run / "checkpoints").glob(".*.part")))
    elif has_newer:
        time.sleep(rng.uniform(0, 0.5))
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def train_with_kills(command: list, run: Path, cwd: Path, *, kills: int, seed: int) -> int:
    """Train with ``kills`` SIGKILLs, then resume to the end. Returns how many of them hit a running process."""
    rng, hits = random.Random(seed), 0
    own = any(str(word).startswith("failing_envs:") for word in command)  # a module that resuming must not just import
    trust = ("--trust", "failing_envs") if own else ()
    process = start_command(*command, "--out", run, "--checkpoint-seconds", 0, cwd=cwd)
    for i in range(kills):
        hits += kill(process, run, writing=i % 2 == 0, rng=rng)
        process = start_command("resume", run, *trust, cwd=cwd)
    output = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, output
    return hits


def outcome(run: Path) -> tuple[str, bytes]:
    """The hash of the final state and the bytes of the metrics: equal for equal runs."""
    return json.loads((run / "final.json").read_text())["state_hash"], (run / "metrics.csv").read_bytes()


class FinishedProcess(NamedTuple):
    """Exit code, stdout and stderr of a process."""

    code: int
    out: str
    err: str


def run_to_end(
    words: list[str], cwd: Path, meanwhile: Callable[[subprocess.Popen], None] | None = None
) -> FinishedProcess:
    """Run a command to its end and check that none of the processes that it started is left."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=cwd,
        env=process_env(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if meanwhile is not None:
            meanwhile(process)
        out, err = process.communicate(timeout=TIMEOUT)
        deadline = time.monotonic() + 100  # after SIGKILL, Ray takes a minute to notice
        while processes_in(cwd) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not processes_in(cwd), [Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_in(cwd)]
        return FinishedProcess(process.returncode, out, err)
    finally:
        for pid in processes_in(cwd):
            os.kill(pid, signal.SIGKILL)


def processes_in(cwd: Path, name: str = "") -> list[int]:
    """Ids of the processes whose working directory is ``cwd`` and whose command line contains ``name``."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").readlink() == cwd and name in (folder / "cmdline").read_text():
                pids.append(int(folder.name))
        except OSError:
            continue  # it has ended, or is a zombie
    return pids


def one_line(result: FinishedProcess) -> str:
    """The error message, which must be the only line on stderr."""
    assert result.err.count("\n") == 1 and result.err.startswith("thespis: "), result.err
    return result.err

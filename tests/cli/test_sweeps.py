"""Sweeps as a user sees them: the runs of ``thespis train``, whatever happens to the processes that make them."""

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
from accidents import Calm
from conftest import SMALL
from processes import COMMAND, PATIENCE, one_line, outcome, run_to_end, started_in
from rooms import inside

from thespis import PPO, sweep
from thespis.loops.cluster import connect
from thespis.runs.events import Event

SLOW = ["--env", "accidents:Slow", "--steps", "1024", "--envs", "4", "--episodes", "2", "--checkpoint-seconds", "0"]
SLOW += ["--set", "length=32", "hidden=8", "epochs=1"]
"""8 blocks of 128 steps; one takes 0.2 seconds and more."""
SWEEP = ["sweep", "ppo", *SLOW, "--grid", "learning_rate=1e-3,1e-2", "--jobs", "2", "--out", "s", "--quiet"]
FIRST, SECOND = (f"s/learning_rate={rate},seed=0" for rate in ("1e-3", "1e-2"))


@pytest.fixture
def ray():
    """A Ray that the command finds, as if the user had started it."""
    joined = connect(None, 2)
    yield
    joined.leave()


@pytest.mark.slow
def test_a_sweep_makes_the_runs_of_train_and_outlives_one_that_diverges(thespis, ray):
    words = ("ppo", "--env", "CartPole-v1", "--seeds", "1,", *SMALL)
    grid = ("--grid", "learning_rate=1e-3,1e30", "--out", "s")
    said = thespis("sweep", *words, *grid, "--json", code=3)
    found, run = said.document, "s/learning_rate=1e-3,seed=1"
    assert [(row["name"], row["runs"], row["seeds"]) for row in found["settings"]] == [
        ("learning_rate=1e-3", [run], [1]),
        ("learning_rate=1e30", [], []),
    ]
    assert f": {run}: greedy return" in said.err and "0 of 1" in said.err and found["compare"] is None
    (failure,) = found["failed"]
    assert failure["reason"] == "diverged" and f"thespis: {failure['run']}: step " in said.err
    assert json.loads(Path("s/sweep.json").read_text())["settings"] == found["settings"]
    thespis("train", *words, "--set", "learning_rate=1e-3", "--out", "straight", "--quiet")
    assert outcome(Path(run)) == outcome(Path("straight"))
    ours, theirs = (json.loads(Path(path, "run.json").read_text()) for path in (run, "straight"))
    assert ours.pop("device") and theirs.pop("device") and ours == theirs
    before = Path(run, "final.json").stat().st_mtime_ns
    said = thespis("sweep", *words, "--grid", "learning_rate=1e-3", "--out", "s")
    assert "1 run in s, 1 of them finished before" in said.out and "1 of 1:" not in said.out
    assert Path(run, "final.json").stat().st_mtime_ns == before, "what is finished is not done again"


@pytest.mark.slow
def test_wide_networks_too_have_the_bits_of_train(thespis, ray):
    """Where the number of XLA's threads would show."""
    words = ("sac", "--env", "Pendulum-v1", "--steps", "1200", "--seeds", "2", "--episodes", "2", "--quiet", "--out")
    thespis("sweep", *words, "s")
    thespis("train", *words, "straight")
    assert outcome(Path("s/sac,seeds=0-1")) == outcome(Path("straight"))


@pytest.mark.slow
def test_a_method_and_a_world_that_are_objects_in_python(tmp_path):
    """And a callback that stops the sweep: what is under way is saved and gone on with."""
    asked = {"steps": 512, "seeds": [3, 5], "seeds_per_job": 1, "envs": 4, "episodes": 2, "settings": ["length=32"]}
    heard: list[Event] = []

    def enough(event: Event) -> bool:
        heard.append(event)
        return event.kind == "done"

    method, grid = PPO(hidden=(8,), epochs=1), {"hidden": [(8,), (16, 8)]}
    done = sweep(method, Calm, grid=grid, jobs=1, callbacks=[enough], out=tmp_path / "s", **asked)
    assert done.reason == "stopped" and [event.kind for event in heard].count("done") == 1 and not done.failures
    assert sum(len(row.runs) for row in done.rows) == 1
    done = sweep(method, Calm, grid=grid, out=tmp_path / "s", **asked)
    assert done.reason == "finished" and sorted(row.seeds for row in done.rows) == [(3, 5), (3, 5)]
    assert {Path(run).name for row in done.rows for run in row.runs} == {
        f"hidden={hidden},seed={seed}" for hidden in ("8", "16-8") for seed in (3, 5)
    }
    assert done.best.summary.iqm == max(row.summary.iqm for row in done.rows)


# -- accidents ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> list[tuple[str, bytes]]:
    """What the slow runs come to if nobody disturbs them."""
    cwd = tmp_path_factory.mktemp("straight")
    ends = [
        run_to_end(["train", "ppo", *SLOW, "--set", f"learning_rate={rate}", "--out", rate, "--quiet"], cwd)
        for rate in ("1e-3", "1e-2")
    ]
    assert [end.code for end in ends] == [0, 0], ends
    return [outcome(cwd / rate) for rate in ("1e-3", "1e-2")]


def when_both_have_saved(cwd: Path, process: subprocess.Popen) -> None:
    """Wait until both runs are under way."""
    runs = [cwd / FIRST, cwd / SECOND]
    end = time.monotonic() + PATIENCE
    while not all(len(list(run.glob("checkpoints/step_*.ckpt"))) == 2 for run in runs):
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)


@pytest.mark.slow
def test_a_job_that_is_killed_is_started_again_and_goes_on_exactly(straight, tmp_path):
    def kill(process: subprocess.Popen) -> None:
        when_both_have_saved(tmp_path, process)
        os.kill(started_in(tmp_path, "ray::work")[0], signal.SIGKILL)

    said = run_to_end(SWEEP, tmp_path, kill)
    assert said.code == 0 and "its process was lost and is started again (1 of 3 times)" in one_line(said)
    assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == straight


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_is_given_up(tmp_path):
    words = ["sweep", "ppo", *SLOW, "--env", "accidents:EndsItsProcess", "--jobs", "1", "--out", "s", "--quiet"]
    said = run_to_end(words, tmp_path)
    assert said.code == 2 and said.err.count("is started again") == 3, said
    assert said.err.splitlines()[-1].startswith("thespis: s/ppo,seed=0: its process was lost 4 times")


@pytest.mark.slow
def test_ctrl_c_saves_all_and_the_same_command_goes_on(straight, tmp_path):
    def press(process: subprocess.Popen) -> None:
        when_both_have_saved(tmp_path, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the group hears it

    said = run_to_end(SWEEP, tmp_path, press)
    assert said.code == 130 and "the same command with this --out goes on" in one_line(said)
    assert not list(tmp_path.glob("s/*/final.json"))
    said = run_to_end(SWEEP, tmp_path)
    assert said.code == 0 and said.err == "", said
    assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == straight


@pytest.mark.slow
def test_runs_come_home_from_a_machine_without_a_shared_disk(straight, rooms, tmp_path):
    """One CPU each, so that both must work; the second one finds another disk where the sweep's directory is."""
    ray = str(Path(sys.executable).parent / "ray")
    notes, files = tmp_path / "notes", tempfile.mkdtemp(prefix="th-", dir="/tmp")
    for folder in (notes, tmp_path / "s"):
        folder.mkdir()
    node = [ray, "start", "--num-cpus", "1", "--disable-usage-stats", "--node-ip-address"]
    head = ["--head", "--port", "6399", "--temp-dir", files, "--include-dashboard", "false"]
    apart = ["sh", "-c", 'mount -t tmpfs none s && exec "$@"', "sh"]  # ip gives each command mounts of its own
    more = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex, "NOTES": str(notes)}
    try:
        inside(rooms[0], tmp_path, *node, "10.213.7.1", *head, **more)
        inside(rooms[1], tmp_path, *apart, *node, "10.213.7.2", "--address", "10.213.7.1:6399", **more)
        inside(rooms[0], tmp_path, *COMMAND, *SWEEP, "--cluster", "10.213.7.1:6399", **more)
        assert len(list(notes.iterdir())) == 2, "both machines trained"
        assert [outcome(tmp_path / run) for run in (FIRST, SECOND)] == straight
        assert sum((tmp_path / run / ".lock").exists() for run in (FIRST, SECOND)) == 1, "one was written elsewhere"
        mark = json.loads((tmp_path / "s" / "sweep.json").read_text())["id"]
        assert not Path(tempfile.gettempdir(), f"thespis-{mark}").exists()
    finally:
        for number in started_in(tmp_path):
            os.kill(number, signal.SIGKILL)
        shutil.rmtree(files, ignore_errors=True)

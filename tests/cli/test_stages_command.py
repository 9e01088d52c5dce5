"""``thespis stages``: its output and errors, and an experiment that is killed at random moments against a whole one."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time

import pytest
from cli_process import checkpoints, outcome, start_command, thespis, wait_for

STAGES = """
env = "probe:maze"
seeds = 2
episodes = 2
checkpoint_seconds = 0

[[stage]]
name = "explore"
method = "ppo"
feedback = "rnd"
steps = {steps}
envs = 4
[stage.settings]
num_steps = 16
hidden_sizes = [8]
num_epochs = 1

[[stage]]
name = "exploit"
method = "a2c"
feedback = "frozen:previous"
steps = {steps}
envs = 4
[stage.settings]
num_steps = 16
hidden_sizes = [8]
[stage.start]
method.network = "previous"

[[stage]]
name = "polish"
method = "a2c"
steps = {steps}
envs = 4
[stage.settings]
num_steps = 16
hidden_sizes = [8]
[stage.start]
method = "previous"
"""
NAMES = ("1-explore", "2-exploit", "3-polish")


def write_stages(folder, steps):
    (folder / "experiment.toml").write_text(STAGES.format(steps=steps))


@pytest.mark.slow
def test_a_killed_experiment_comes_to_the_same_bits_as_a_whole_one(tmp_path):
    """SIGKILL in every stage, after its first checkpoints or before them, and at random moments around the seams."""
    write_stages(tmp_path, 4_096)
    thespis("stages", "experiment.toml", "--out", "whole", "--quiet", cwd=tmp_path)
    cut, rng, hits = tmp_path / "cut", random.Random(3), 0
    moments = [
        lambda: (cut / "1-explore" / "run.json").exists(),  # before the first checkpoint
        lambda: len(checkpoints(cut / "1-explore")) > 1,
        lambda: (cut / "1-explore" / "final.json").exists(),  # at the end, or between the stages
        lambda: (cut / "2-exploit").exists(),
        lambda: len(checkpoints(cut / "2-exploit")) > 1,
        lambda: (cut / "2-exploit" / "report.html").exists(),
        lambda: checkpoints(cut / "3-polish"),
        lambda: len(checkpoints(cut / "3-polish")) > 1,
    ]
    process = start_command("stages", "experiment.toml", "--out", "cut", "--quiet", cwd=tmp_path)
    for moment in moments:
        if wait_for(process, moment):
            time.sleep(rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 1.0)]))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.communicate()
        hits += process.returncode == -signal.SIGKILL
        process = start_command("resume", "cut", "--quiet", cwd=tmp_path)
    output = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert hits >= len(moments) - 2  # nearly all hit a running process
    for name in NAMES:
        assert outcome(cut / name) == outcome(tmp_path / "whole" / name), name
        newest = checkpoints(cut / name)[-1]
        assert newest.read_bytes() == (tmp_path / "whole" / name / "checkpoints" / newest.name).read_bytes()
    plan = json.loads((cut / "stages.json").read_text())["stages"]
    assert [stage["name"] for stage in plan] == list(NAMES) and [stage["step"] for stage in plan] == [4_096] * 3


@pytest.mark.slow
def test_the_command_shows_every_stage_and_others_take_the_last(tmp_path):
    write_stages(tmp_path, 128)
    done = thespis("stages", "experiment.toml", "--out", "run", cwd=tmp_path)
    for name in NAMES:
        assert f"stage {name}: " in done.stdout
    assert done.stdout.count("finished at 128") == 3
    for command in (["report", "run"], ["resume", "run", "--quiet"]):
        done = thespis(*command, cwd=tmp_path)
        assert not done.stderr
    found = json.loads(thespis("evaluate", "run", "--episodes", 2, "--json", cwd=tmp_path).stdout)
    assert found["run"] == "run/3-polish"


@pytest.mark.slow
def test_an_interrupted_experiment_says_how_to_continue(tmp_path):
    write_stages(tmp_path, 40_960)
    process = start_command("stages", "experiment.toml", "--out", "run", cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(tmp_path / "run" / "2-exploit")) > 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "continue with: thespis resume run" in out and "resume run/" not in out + err


@pytest.mark.slow
def test_mistakes_are_one_line(tmp_path):
    write_stages(tmp_path, 128)
    text = (tmp_path / "experiment.toml").read_text()
    last = text.rindex("hidden_sizes = [8]")
    (tmp_path / "wrong.toml").write_text(text[:last] + "hidden_sizes = [16]" + text[last + len("hidden_sizes = [8]") :])
    done = thespis("stages", "wrong.toml", "--out", "run", "--quiet", cwd=tmp_path, check=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("thespis: stage 3-polish: method of stage 2-exploit does not fit: ")
    assert "float32[2, 8] there, and is float32[2, 16] in stage 3-polish" in line
    assert not (tmp_path / "run").exists()
    done = thespis("stages", "nothing.toml", cwd=tmp_path, check=2)
    assert done.stderr.startswith("thespis: stages file nothing.toml cannot be read")

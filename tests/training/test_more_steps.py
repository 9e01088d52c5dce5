"""Runs that continue to more steps: equal to runs started with that number, bit for bit, in every loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import Replay
from thespis.runs.store import RunDirectory, budgets
from thespis.training.assembly import check_extension

DATA = str(Path(__file__).parents[1] / "compatibility" / "steps")
ON_POLICY = {"num_steps": 16, "hidden_sizes": "8", "num_epochs": 1}
OFF_POLICY = {"hidden_sizes": "8", "learning_starts": 8, "batch_size": 4}
CASES = {
    "on-policy": ("ppo", "probe:maze", {"settings": ON_POLICY, "envs": 2}),
    "replay-that-grows": ("dqn", "probe:maze", {"settings": OFF_POLICY}),
    "replay-that-is-full": ("dqn", "probe:maze", {"settings": OFF_POLICY | {"buffer_size": 32}}),
    "host-loop": ("dqn", "probe:maze", {"settings": OFF_POLICY, "loop": "host", "seeds": 2}),
    "data": ("bc", None, {"settings": {"hidden_sizes": "8", "batch_size": 4}, "data": DATA}),
}
FAST = ("replay-that-grows",)
STEPS = 70  # no multiple of a block


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


def train(name: str, steps: int, out: Path) -> thespis.Run:
    method, env, options = CASES[name]
    return thespis.train(method, env, steps=steps, out=out, report_every=35, episodes=2, **options)


def state_hash(run: thespis.Run) -> str:
    assert run.final_scores is not None
    return run.final_scores["state_hash"]


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_a_run_that_continues_equals_one_started_with_that_number_of_steps(name, tmp_path):
    whole = train(name, 2 * STEPS, tmp_path / "whole")
    short = train(name, STEPS, tmp_path / "short")
    first_end, first_final = short.step, short.final_scores
    continued = thespis.resume(short.path, steps=2 * STEPS)
    for file in (f"checkpoints/step_{whole.step:012d}.ckpt", "metrics.csv"):
        assert (continued.path / file).read_bytes() == (whole.path / file).read_bytes(), file
    assert continued.final_scores == whole.final_scores
    config = json.loads((continued.path / "run.json").read_text())
    assert config["steps"] == 2 * STEPS
    assert config["budgets"] == [{"steps": STEPS, "from": 0}, {"steps": 2 * STEPS, "from": first_end}]
    if first_final is not None:  # the evaluation at the earlier end is kept
        (line,) = continued.directory.evaluations()
        assert line["step"] == first_end and line["greedy"] == first_final["greedy"]["scores"]


@pytest.mark.slow
def test_a_run_can_continue_several_times_and_a_repeated_call_changes_nothing(tmp_path):
    run = train("replay-that-grows", 40, tmp_path / "run")
    thespis.resume(run.path, steps=80)
    state = state_hash(thespis.resume(run.path, steps=120))
    assert state_hash(thespis.resume(run.path, steps=120)) == state
    assert [budget["steps"] for budget in budgets(RunDirectory.open(run.path).config)] == [40, 80, 120]
    whole = train("replay-that-grows", 120, tmp_path / "whole")
    assert state == state_hash(whole)


@pytest.mark.slow
def test_a_stopped_run_can_end_earlier_than_planned(tmp_path):
    method, env, options = CASES["replay-that-grows"]
    stop = [lambda event: event.kind == "metrics" and event.step >= 30]
    run = thespis.train(method, env, steps=90, out=tmp_path / "run", report_every=10, callbacks=stop, **options)
    assert run.step == 32 and thespis.resume(run.path, steps=60).step == 60


@pytest.mark.long
def test_fewer_steps_than_done_are_refused(tmp_path):
    run = train("on-policy", STEPS, tmp_path / "run")
    before = (run.path / "run.json").read_bytes()
    with pytest.raises(UserError, match="--steps 64 is less than the 96 steps that the run has done"):
        thespis.resume(run.path, steps=64)
    assert (run.path / "run.json").read_bytes() == before and run.final_scores is not None


def test_a_replay_buffer_of_single_frames_cannot_grow():
    feed = Replay(buffer_size=100, frame_stack=4)
    config = thespis.api.build_config(thespis.DQN(feed=feed), "probe:maze", steps=50, seeds=1)
    with pytest.raises(UserError, match=r"frame_stack=4.* for 50 steps cannot grow: start a new run"):
        check_extension(config, 80, 50)
    check_extension(config | {"steps": 100}, 300, 100)  # as large as it can be

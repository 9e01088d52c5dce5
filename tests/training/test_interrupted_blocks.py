"""Interrupts inside a block: the state before it is saved, and the resumed run is the uninterrupted one."""

from __future__ import annotations

import functools
import os
import signal
import threading

import pytest

import thespis
from thespis.runs.store import RunDirectory
from thespis.runtime.interrupts import NO_WATCH, InterruptWatch, has_abandoned_work
from thespis.training import driver, pacing
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.host_loop import HostLoop

SETTINGS = {"num_steps": 16, "hidden_sizes": "8", "num_epochs": 1, "learning_rate": 0.05}
LOOPS = {"compiled": CompiledLoop, "host": HostLoop}
BLOCK = 32


@pytest.fixture(autouse=True)
def no_reports(monkeypatch):
    monkeypatch.setattr("thespis.train_run.write_report", lambda runs, out: out)


def train(out, loop: str, **options):
    common = {"settings": SETTINGS, "envs": 2, "seeds": 2, "report_every": 5 * BLOCK, "episodes": 2, "loop": loop}
    return thespis.train("ppo", "probe:maze", steps=10 * BLOCK, out=out, **common, **options)


def slow_blocks(patch: pytest.MonkeyPatch, loop: str, interrupted_block: int) -> threading.Event:
    """Run every block in a call of its own; one of them interrupts the process and then waits for the event."""
    release, original, numbers = threading.Event(), LOOPS[loop].advance, iter(range(100))

    def advance(self, carry, blocks, watch=NO_WATCH):
        assert blocks == 1

        def work():
            after = original(self, carry, blocks)  # the state before is donated
            if next(numbers) == interrupted_block:
                os.kill(os.getpid(), signal.SIGINT)
                release.wait()
            return after

        return watch.call(work)

    patch.setattr(LOOPS[loop], "advance", advance)
    patch.setattr(driver, "InterruptWatch", functools.partial(InterruptWatch, patience=0.05))
    patch.setattr(pacing, "CALL_SECONDS", 0.0)
    patch.setattr(pacing, "SLOW_SECONDS", 0.0)
    return release


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupt_inside_a_block_saves_the_state_before_it(loop, tmp_path):
    whole = train(tmp_path / "whole", loop)
    events = []
    with pytest.MonkeyPatch.context() as patch:
        release = slow_blocks(patch, loop, interrupted_block=3)  # in the middle between two rows of metrics
        part = train(tmp_path / "part", loop, callbacks=[events.append])
        assert has_abandoned_work()
        release.set()
    assert events[-1].kind == "done" and events[-1].data["reason"] == "interrupted"
    assert part.final_scores is None and RunDirectory.open(part.path).saved_step == 3 * BLOCK
    resumed = thespis.resume(part.path)
    assert (resumed.path / "metrics.csv").read_bytes() == (whole.path / "metrics.csv").read_bytes()
    assert whole.final_scores is not None and resumed.final_scores is not None
    assert resumed.final_scores["state_hash"] == whole.final_scores["state_hash"]


@pytest.mark.long
def test_an_interrupt_between_two_calls_stops_there(tmp_path):
    def interrupt(event):
        if event.kind == "progress":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "CALL_SECONDS", 0.0)
        patch.setattr(driver, "PROGRESS_SECONDS", 0.0)  # an event before every call but the first
        part = train(tmp_path / "part", "compiled", callbacks=[interrupt])
    assert RunDirectory.open(part.path).saved_step == 2 * BLOCK


class FakeLoop:
    """The part of a loop that a pace reads."""

    def __init__(self, warmup_blocks=0, parallel_blocks=1):
        self.warmup_blocks, self.parallel_blocks, self.timing = warmup_blocks, parallel_blocks, {"compile": 0.0}

    def shapes(self):
        return ()


def paced(loop: FakeLoop, seconds: list[float], monkeypatch, call_seconds=0.0) -> list[int]:
    """Numbers of blocks of successive calls whose blocks take so many ``seconds``, without compilation.

    ``call_seconds``: what every call takes beside its blocks.
    """
    now, pace, counts, done = [0.0], pacing.Pace(loop), [], 0  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(pacing.time, "monotonic", lambda: now[0])
    for block_seconds in seconds:
        counts.append(pace.num_blocks(done, 1000))
        pace.start()
        loop.timing["compile"] += 7.0
        now[0] += 7.0 + call_seconds + block_seconds * counts[-1]
        pace.stop(counts[-1])
        done += counts[-1]
    return counts


def test_calls_take_about_a_second_and_grow_slowly(monkeypatch):
    assert paced(FakeLoop(), [0.25, 0.25, 0.25], monkeypatch) == [1, 4, 4]
    assert paced(FakeLoop(), [0.001, 0.001, 0.5, 0.5], monkeypatch) == [1, 4, 16, 2]
    assert paced(FakeLoop(), [3.0, 3.0], monkeypatch) == [1, 1]


def test_the_cost_of_a_call_is_not_taken_for_that_of_its_blocks(monkeypatch):
    """A call that starts slowly, as on a loaded machine, has as many blocks as one that does not, some calls later."""
    slow_start = paced(FakeLoop(), [0.01] * 12, monkeypatch, call_seconds=1.9)
    assert slow_start[:4] == [1, 2, 4, 8] and min(slow_start[-5:]) >= 90
    assert paced(FakeLoop(), [1.5] * 5, monkeypatch) == [1, 2, 1, 1, 1]
    assert paced(FakeLoop(), [0.1] * 4 + [0.4] * 4, monkeypatch, call_seconds=0.5)[-2:] == [2, 2]


def test_the_first_block_with_updates_has_a_call_of_its_own(monkeypatch):
    assert paced(FakeLoop(warmup_blocks=10), [0.001, 0.001, 0.001, 2.0, 2.0], monkeypatch) == [1, 4, 5, 1, 1]


def test_loops_that_overlap_blocks_get_several(monkeypatch):
    assert paced(FakeLoop(parallel_blocks=2), [3.0, 3.0], monkeypatch) == [8, 8]

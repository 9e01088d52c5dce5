"""The driver: runs any loop to its last step, with metrics, evaluation, checkpoints and early stopping.

A loop runs a number of blocks and knows nothing of files or clocks; everything between two chunks
happens here, for all loops. Chunks end at fixed steps, so rows of metrics never depend on timing. A chunk is run in
several calls (:mod:`thespis.training.pacing`), so that it can be interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.errors import UserError
from thespis.runs.events import EventBus
from thespis.runs.store import RunDirectory
from thespis.runtime.distributed import any_process, gather_arrays, is_main_process
from thespis.runtime.interrupts import NO_WATCH, AbandonedError, InterruptWatch, Watch, catch_interrupts
from thespis.runtime.timer import PhaseTimer
from thespis.training.components import LearnerSnapshot, LearnerState, MetricSums
from thespis.training.pacing import Pace, copy_state
from thespis.training.vector_env import CollectionError

DEFAULT_NUM_REPORTS = 100  # number of chunks of a run
PROGRESS_SECONDS = 5.0  # between events of progress, where there are no rows of metrics
MAX_CHUNK_STEPS = 10_000  # largest number of environment steps per seed, for frequent progress and prompt interrupts


@runtime_checkable
class TrainingLoop(Protocol):
    """Interface of training loops for the driver."""

    kind: str
    seeds: list[int]
    metric_names: tuple[str, ...]
    steps_per_block: int
    warmup_blocks: int
    """Blocks without updates at the start of a run."""
    parallel_blocks: int
    """Blocks that are computed at the same time."""
    timing: dict[str, float]
    timer: PhaseTimer

    def shapes(self) -> PyTree:
        """Shapes of the state on the device; nothing is allocated."""
        ...

    def init(self, worker: int = 0, watch: Watch = NO_WATCH) -> Any:
        """A fresh carry (the whole state of a run), another one for each asynchronous ``worker``."""
        ...

    def advance(self, carry: Any, blocks: int, watch: Watch = NO_WATCH) -> Any:
        """Run ``blocks`` blocks; ``carry`` is consumed. ``watch`` may end this by an error; then all is lost."""
        ...

    def num_steps(self, carry: Any) -> int:
        """Steps per seed so far."""
        ...

    def pop_metric_sums(self, carry: Any) -> tuple[Any, MetricSums]:
        """Metric sums since the last call, and the carry with them reset."""
        ...

    def learner_state(self, carry: Any) -> LearnerState:
        """The learner's state, leading axis ``[seed]``."""
        ...

    def with_states(self, carry: Any, states: LearnerState) -> Any:
        """The carry with other states of method, feedback and curriculum, before the first step.

        They are ordinary arrays ``[seed, ...]``; the stores of ``states`` are not used.
        """
        ...

    def snapshot(self, carry: Any) -> PyTree:
        """The content of a checkpoint."""
        ...

    def checkpoint_template(self) -> PyTree:
        """The structure of this loop's checkpoints: arrays or shapes."""
        ...

    def restore(self, snapshot: PyTree) -> tuple[Any, list[str]]:
        """The carry from a checkpoint, and messages about what could not be restored."""
        ...

    def pop_warnings(self) -> list[str]:
        """Warnings about the last blocks for the user, one line each; each is returned once."""
        ...

    def close(self) -> None:
        """Release environments and processes."""
        ...


class DivergenceError(UserError):
    """Error: a loss or a parameter is no longer finite."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Intervals of evaluations, checkpoints and reports. Steps are per seed; a chunk ends with a row of metrics."""

    total_steps: int
    evaluate_every: int = 0
    checkpoint_seconds: float = 60.0
    report_every: int = 0

    def blocks_per_chunk(self, block_steps: int) -> int:
        """Number of blocks between two rows of metrics."""
        chunk_steps = self.report_every or min(self.total_steps / DEFAULT_NUM_REPORTS, MAX_CHUNK_STEPS)
        return max(1, round(chunk_steps / block_steps))

    def eval_due(self, before: int, step: int) -> bool:
        """Whether an evaluation is due between ``before`` (exclusive) and ``step``."""
        every = self.evaluate_every
        return every > 0 and step // every > before // every

    def halfway_due(self, before: int, step: int) -> bool:
        """Whether half of the run was completed between ``before`` (exclusive) and ``step``, and the run goes on."""
        return before < self.total_steps / 2 <= step < self.total_steps


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """The end of :func:`run_loop`: the last step and why it ended (``finished``, ``stopped`` or ``interrupted``).

    ``carry`` is ``None`` if interrupted work was abandoned, and goes on in its thread.
    """

    step: int
    reason: str
    carry: Any


def run_loop(
    loop: TrainingLoop,
    carry: Any,
    schedule: Schedule,
    run: RunDirectory,
    bus: EventBus,
    evaluate: Callable[[int, PyTree], bool],
    on_halfway: Callable[[int, PyTree], None] = lambda step, states: None,
) -> RunEnd:
    """Run a training loop to its end.

    ``evaluate`` is called with the step and the method's states where an evaluation is due, and returns whether a
    callback wants to stop; ``on_halfway`` is called with the same after half of the steps. Raises
    :class:`DivergenceError` on a number that is not finite; the last good checkpoint stays. Where a callback or an
    environment raises an error, what has been trained is saved first.
    """
    total = math.ceil(schedule.total_steps / loop.steps_per_block)
    chunk = schedule.blocks_per_chunk(loop.steps_per_block)
    meter, done = _ProgressMeter(loop, loop.num_steps(carry)), loop.num_steps(carry) // loop.steps_per_block
    saved, saved_at, saved_step, reason, working_bytes = None, -math.inf, -1, "finished", 0
    with catch_interrupts() as interrupted:
        stretch = _Stretch(loop, run, bus, interrupted, lambda step: meter.progress(step, schedule.total_steps))
        while done < total:
            before, blocks = done // chunk * chunk, min(chunk - done % chunk, total - done)
            carry, ran, stop = stretch.advance(carry, done, blocks)
            done += ran
            step = done * loop.steps_per_block
            if carry is None:
                return RunEnd(step, "interrupted", None)
            if ran < blocks:
                reason = "interrupted"
                break
            if loop.timer.working_bytes > working_bytes:
                working_bytes = loop.timer.working_bytes
                bus.emit("memory", step, working_bytes=working_bytes)
            carry, metric_sums = loop.pop_metric_sums(carry)
            rows = metric_rows(metric_sums, step, loop.seeds)
            check_finite(rows, loop.learner_state(carry), step, loop.seeds, saved)
            with _save_on_error(loop, carry, run):
                stop |= _log_chunk(
                    run, bus, step, loop.pop_warnings(), rows, meter.progress(step, schedule.total_steps)
                )
                if schedule.eval_due(before * loop.steps_per_block, step) and done < total:
                    stop |= evaluate(step, gather_arrays(loop.learner_state(carry).method))
                if schedule.halfway_due(before * loop.steps_per_block, step):
                    on_halfway(step, loop.learner_state(carry).method)
            checkpoint_due = time.monotonic() - saved_at >= schedule.checkpoint_seconds
            stop, interrupt, checkpoint_due = any_process(stop, interrupted.is_set(), checkpoint_due)
            if stop or interrupt:
                reason = "interrupted" if interrupt else "stopped"
                break
            if checkpoint_due:
                saved, saved_at, saved_step = save_checkpoint(loop, carry, run, bus), time.monotonic(), step
        if saved_step != loop.num_steps(carry):
            save_checkpoint(loop, carry, run, bus)
    return RunEnd(loop.num_steps(carry), reason, carry)


class _Stretch:
    """Runs the blocks between two rows of metrics in calls of about a second, until an interrupt."""

    def __init__(
        self,
        loop: TrainingLoop,
        run: RunDirectory,
        bus: EventBus,
        interrupted: threading.Event,
        progress: Callable[[int], dict[str, float]],
    ):
        self._loop, self._run, self._bus, self._interrupted, self._progress = loop, run, bus, interrupted, progress
        self._pace = Pace(loop)

    def advance(self, carry: Any, done: int, blocks: int) -> tuple[Any, int, bool]:
        """Run ``blocks`` blocks, after ``done``: the carry, the number run, and whether a callback wants to stop.

        After an interrupt fewer are run. The carry is ``None`` if work had to be abandoned: then the state before it is
        saved. Every few seconds there is an event of progress.
        """
        ran, stop, reported = 0, False, time.monotonic()
        while ran < blocks:
            if ran and self._interrupted.is_set():
                break
            if ran and time.monotonic() - reported >= PROGRESS_SECONDS:
                step, reported = (done + ran) * self._loop.steps_per_block, time.monotonic()
                stop |= self._bus.emit("progress", step, **self._progress(step))
            count = self._pace.num_blocks(done + ran, blocks - ran)
            state = copy_state(self._loop.snapshot(carry)) if self._pace.is_slow() else None
            watch = NO_WATCH if state is None else InterruptWatch(self._interrupted)
            self._pace.start()
            try:
                carry = _advance(self._loop, carry, count, self._run, watch)
            except AbandonedError:
                step = (done + ran) * self._loop.steps_per_block
                write_checkpoint(self._loop, step, state, self._run, self._bus)
                return None, ran, stop
            self._pace.stop(count)
            ran += count
        return carry, ran, stop


def _advance(loop: TrainingLoop, carry: Any, blocks: int, run: RunDirectory, watch: Watch) -> Any:
    """Run ``blocks`` blocks; where an environment raises an error, what was trained before is saved first."""
    try:
        return loop.advance(carry, blocks, watch)
    except CollectionError as failure:
        _save_quietly(loop, failure.carry, run)
        raise failure.error from failure.error.__cause__


@contextlib.contextmanager
def _save_on_error(loop: TrainingLoop, carry: Any, run: RunDirectory) -> Iterator[None]:
    """Context in which an error of a callback or an evaluation is raised after a checkpoint was written."""
    try:
        yield
    except Exception:
        _save_quietly(loop, carry, run)
        raise


def _save_quietly(loop: TrainingLoop, carry: Any, run: RunDirectory) -> None:
    """Write a checkpoint if possible, without events: an error is on its way to the user.

    With several processes there is none, as writing one needs all of them.
    """
    if jax.process_count() == 1:
        with contextlib.suppress(UserError):
            save_checkpoint(loop, carry, run, EventBus())


def _log_chunk(
    run: RunDirectory, bus: EventBus, step: int, warnings: list[str], rows: list[dict], progress: dict[str, float]
) -> bool:
    """Write and emit the results of a chunk. Returns whether a callback wants to stop."""
    run.append_metrics(rows)
    run.append_progress(step, progress["elapsed"], progress["steps_per_second"])
    stop = any([bus.emit("warning", step, message=line) for line in warnings])
    stop |= bus.emit("metrics", step, rows=rows)
    return bus.emit("progress", step, **progress) or stop


def save_checkpoint(loop: TrainingLoop, carry: Any, run: RunDirectory, bus: EventBus) -> str:
    """Write a checkpoint and emit its event. Returns its path."""
    return write_checkpoint(loop, loop.num_steps(carry), loop.snapshot(carry), run, bus)


def write_checkpoint(loop: TrainingLoop, step: int, snapshot: PyTree, run: RunDirectory, bus: EventBus) -> str:
    """Write the content of a checkpoint and emit its event. Returns its path."""
    began = time.perf_counter()
    if jax.process_count() > 1:
        snapshot = jax.tree.map(gather_arrays, snapshot)  # leaf by leaf: a device may not have room for all of it
    path = run.save_checkpoint(step, snapshot, {"step": step}) if is_main_process() else run.checkpoint_dir
    seconds = time.perf_counter() - began
    loop.timing["checkpoint"] = loop.timing.get("checkpoint", 0.0) + seconds
    bus.emit("checkpoint", step, path=str(path), seconds=seconds)
    return str(path)


def save_best(run: RunDirectory, step: int, greedy: list[list[float]], states: PyTree) -> None:
    """Keep the method's states if the mean of the ``greedy`` returns, ``[seed][episode]``, is the highest so far."""
    score = float(np.mean(greedy))
    if is_main_process() and math.isfinite(score):
        run.save_best(step, score, {"carry": LearnerSnapshot(LearnerState(states, None, None, None))})


def metric_rows(metric_sums: MetricSums, step: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Build one row of metrics per seed: means since the last row, ``None`` where nothing was measured."""
    rows = []
    for i, seed in enumerate(seeds):
        episodes, updates = int(metric_sums.num_episodes[i]), int(metric_sums.num_updates[i])
        row: dict[str, Any] = {"step": step, "seed": seed, "episodes": episodes}
        row["episode_return"] = float(metric_sums.return_sum[i]) / episodes if episodes else None
        row["episode_length"] = float(metric_sums.length_sum[i]) / episodes if episodes else None
        row |= {name: float(total[i]) / updates if updates else None for name, total in metric_sums.sums.items()}
        rows.append(row)
    return rows


def check_finite(
    rows: list[dict[str, Any]], learner: LearnerState, step: int, seeds: list[int], checkpoint_path: str | None
) -> None:
    """Raise :class:`DivergenceError` with step, seed and name of what is not finite."""
    checkpoint_note = (
        f"the last good checkpoint is {checkpoint_path}" if checkpoint_path else "no checkpoint had been written yet"
    )
    advice = "lower learning_rate, or check the environment's rewards and observations for NaN"
    for row in rows:
        bad = [name for name, value in row.items() if value is not None and not math.isfinite(value)]
        if bad:
            raise DivergenceError(
                f"step {step}, seed {row['seed']}: {bad[0]} is {row[bad[0]]}; {checkpoint_note}; {advice}"
            )
    finite = gather_arrays(_all_finite((learner.method, learner.feedback)))
    if not np.all(finite):
        seed = seeds[int(np.argmin(finite))]
        raise DivergenceError(f"step {step}, seed {seed}: a parameter is not finite; {checkpoint_note}; {advice}")


@jax.jit
def _all_finite(tree: PyTree) -> jax.Array:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    flags = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in floats]
    return jnp.stack(flags).all(axis=0)


class _ProgressMeter:
    """Steps per second and remaining time, measured since its start, without compilation."""

    def __init__(self, loop: TrainingLoop, step: int):
        self.loop, self.first = loop, step
        self.began = self._now()
        self.last = (self.began, step)

    def _now(self) -> float:
        return time.monotonic() - self.loop.timing["compile"]

    def progress(self, step: int, total: int) -> dict[str, float]:
        now = self._now()
        seconds, steps = now - self.last[0], step - self.last[1]
        self.last = (now, step)
        speed = steps / max(seconds, 1e-9)
        seconds_left = (total - step) * (now - self.began) / max(step - self.first, 1)
        return {
            "fraction": min(step / total, 1.0),
            "steps_per_second": speed * len(self.loop.seeds),
            "seconds_left": max(seconds_left, 0.0),
            "elapsed": now - self.began,
        }

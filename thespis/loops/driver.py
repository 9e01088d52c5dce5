"""Drives any loop from its present state to its last step: chunks, metrics, evaluation, checkpoints, and ways to stop.

A loop is told how many blocks to run and knows nothing of files or clocks; what happens between two chunks
happens here, for all of them. Chunks end at fixed steps, so rows of metrics never depend on timing.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.errors import UserError
from thespis.loops.interrupts import interrupts
from thespis.loops.parts import Learner, Tally
from thespis.loops.processes import agreed, fetched, first
from thespis.runs.events import Bus
from thespis.runs.store import RunDirectory

REPORTS = 100  # chunks a run is cut into
LONGEST_CHUNK = 10_000  # environment steps per seed, at most, so that progress is seen and Ctrl-C heard


@runtime_checkable
class Loop(Protocol):
    """What every loop offers the driver."""

    kind: str
    seeds: list[int]
    metrics: tuple[str, ...]
    block_steps: int
    timing: dict[str, float]

    def shapes(self) -> PyTree:
        """Shapes of the state on the device, nothing allocated."""
        ...

    def init(self) -> Any:
        """A fresh carry."""
        ...

    def advance(self, carry: Any, blocks: int) -> Any:
        """Run blocks; the carry given is used up."""
        ...

    def steps(self, carry: Any) -> int:
        """Steps per seed so far."""
        ...

    def take_tally(self, carry: Any) -> tuple[Any, Tally]:
        """Sums since the last call, and the carry with them cleared."""
        ...

    def learner(self, carry: Any) -> Learner:
        """All learnt states, leading axis ``[seed]``."""
        ...

    def snapshot(self, carry: Any) -> PyTree:
        """What a checkpoint holds."""
        ...

    def like(self) -> PyTree:
        """What a checkpoint of this loop looks like: arrays or shapes."""
        ...

    def restore(self, snapshot: PyTree) -> tuple[Any, list[str]]:
        """The carry of a checkpoint, and in words what could not be restored."""
        ...

    def news(self) -> list[str]:
        """What the user should know of the last blocks, a line each, told once."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Diverged(UserError):
    """A loss or a parameter is not finite any more."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When things happen. Steps are per seed; a chunk is the time between two rows of metrics."""

    steps: int
    evaluate_every: int = 0
    checkpoint_seconds: float = 60.0
    report_every: int = 0

    def chunk_blocks(self, block_steps: int) -> int:
        """Blocks between two rows of metrics."""
        wanted = self.report_every or min(self.steps / REPORTS, LONGEST_CHUNK)
        return max(1, round(wanted / block_steps))

    def evaluates_between(self, before: int, step: int) -> bool:
        """Whether an evaluation falls due after step ``before`` and up to ``step``."""
        every = self.evaluate_every
        return every > 0 and step // every > before // every

    def halfway_between(self, before: int, step: int) -> bool:
        """Whether half of the run is over after step ``before`` and up to ``step``, and there is more to come."""
        return before < self.steps / 2 <= step < self.steps


def drive(
    loop: Loop,
    carry: Any,
    schedule: Schedule,
    run: RunDirectory,
    bus: Bus,
    evaluate: Callable[[PyTree], tuple[list, list | None]],
    halfway: Callable[[int, PyTree], None] = lambda step, states: None,
) -> tuple[Any, str]:
    """Run to the end. Returns the last carry and why it ended: ``finished``, ``stopped`` or ``interrupted``.

    ``halfway`` is told the step and the method's states when half of the steps are made.
    Raises :class:`Diverged` on a number that is not finite; the last good checkpoint stays.
    """
    total = math.ceil(schedule.steps / loop.block_steps)
    chunk = schedule.chunk_blocks(loop.block_steps)
    clock, done = _Clock(loop, loop.steps(carry)), loop.steps(carry) // loop.block_steps
    saved, saved_at, saved_step, reason = None, -math.inf, -1, "finished"
    with interrupts() as interrupted:
        while done < total:
            blocks = min(chunk - done % chunk, total - done)
            carry = loop.advance(carry, blocks)
            before, done = done * loop.block_steps, done + blocks
            step = done * loop.block_steps
            carry, tally = loop.take_tally(carry)
            rows = metric_rows(tally, step, loop.seeds)
            check_finite(rows, loop.learner(carry), step, loop.seeds, saved)
            stop = _tell(run, bus, step, loop.news(), rows, clock.read(step, schedule.steps))
            if schedule.evaluates_between(before, step) and done < total:
                greedy, sampled = evaluate(loop.learner(carry).method)
                run.append_evaluation(step, greedy, sampled)
                stop |= bus.emit("evaluation", step, greedy=greedy, sampled=sampled)
            if schedule.halfway_between(before, step):
                halfway(step, loop.learner(carry).method)
            late = time.monotonic() - saved_at >= schedule.checkpoint_seconds
            stop, interrupt, late = agreed(stop, interrupted.is_set(), late)
            if stop or interrupt:
                reason = "interrupted" if interrupt else "stopped"
                break
            if late:
                saved, saved_at, saved_step = save(loop, carry, run, bus), time.monotonic(), step
        if saved_step != loop.steps(carry):
            save(loop, carry, run, bus)
    return carry, reason


def _tell(
    run: RunDirectory, bus: Bus, step: int, news: list[str], rows: list[dict], progress: dict[str, float]
) -> bool:
    """Write down and emit what a chunk came to. Returns whether somebody wants to stop."""
    run.append_metrics(rows)
    run.append_progress(step, progress["elapsed"], progress["steps_per_second"])
    stop = any([bus.emit("warning", step, message=line) for line in news])
    stop |= bus.emit("metrics", step, rows=rows)
    return bus.emit("progress", step, **progress) or stop


def save(loop: Loop, carry: Any, run: RunDirectory, bus: Bus) -> str:
    """Write a checkpoint and say so. Returns its path."""
    began = time.perf_counter()
    step = loop.steps(carry)
    snapshot = loop.snapshot(carry)
    if jax.process_count() > 1:
        snapshot = jax.tree.map(fetched, snapshot)  # one by one: a device may not have room for all of it
    path = run.save_checkpoint(step, snapshot, {"step": step}) if first() else run.checkpoints
    seconds = time.perf_counter() - began
    loop.timing["checkpoint"] = loop.timing.get("checkpoint", 0.0) + seconds
    bus.emit("checkpoint", step, path=str(path), seconds=seconds)
    return str(path)


def metric_rows(tally: Tally, step: int, seeds: list[int]) -> list[dict[str, Any]]:
    """One row per seed: means since the last row, ``None`` where nothing was measured."""
    rows = []
    for i, seed in enumerate(seeds):
        episodes, updates = int(tally.episodes[i]), int(tally.updates[i])
        row: dict[str, Any] = {"step": step, "seed": seed, "episodes": episodes}
        row["episode_return"] = float(tally.returns[i]) / episodes if episodes else None
        row["episode_length"] = float(tally.lengths[i]) / episodes if episodes else None
        row |= {name: float(total[i]) / updates if updates else None for name, total in tally.metrics.items()}
        rows.append(row)
    return rows


def check_finite(rows: list[dict[str, Any]], learner: Learner, step: int, seeds: list[int], saved: str | None) -> None:
    """Raise :class:`Diverged` naming step, seed and what is not finite."""
    kept = f"the last good checkpoint is {saved}" if saved else "no checkpoint had been written yet"
    advice = "lower learning_rate, or check the environment's rewards and observations for NaN"
    for row in rows:
        bad = [name for name, value in row.items() if value is not None and not math.isfinite(value)]
        if bad:
            raise Diverged(f"step {step}, seed {row['seed']}: {bad[0]} is {row[bad[0]]}; {kept}; {advice}")
    finite = fetched(_all_finite((learner.method, learner.feedback)))
    if not np.all(finite):
        seed = seeds[int(np.argmin(finite))]
        raise Diverged(f"step {step}, seed {seed}: a parameter is not finite; {kept}; {advice}")


@jax.jit
def _all_finite(tree: PyTree) -> jax.Array:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    flags = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in floats]
    return jnp.stack(flags).all(axis=0)


class _Clock:
    """Steps per second and time left, from the steps made since it was started; it stands while programs compile."""

    def __init__(self, loop: Loop, step: int):
        self.loop, self.first = loop, step
        self.began = self._now()
        self.last = (self.began, step)

    def _now(self) -> float:
        return time.monotonic() - self.loop.timing["compile"]

    def read(self, step: int, total: int) -> dict[str, float]:
        now = self._now()
        seconds, made = now - self.last[0], step - self.last[1]
        self.last = (now, step)
        speed = made / max(seconds, 1e-9)
        left = (total - step) * (now - self.began) / max(step - self.first, 1)
        return {
            "fraction": min(step / total, 1.0),
            "steps_per_second": speed * len(self.loop.seeds),
            "seconds_left": max(left, 0.0),
            "elapsed": now - self.began,
        }

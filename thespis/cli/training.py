"""Training as it is shown: the live display while it goes on, and at its end the verdict and what to do next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from thespis.cli.output import Output, complain
from thespis.runs.events import Event, Listener

if TYPE_CHECKING:
    from thespis.trained import Run

DIVERGED, INTERRUPTED = 3, 130


class Watch:
    """A listener that remembers what the end will need; it prints warnings if nobody else does."""

    def __init__(self, out: Output, quiet: bool):
        self._out, self._quiet = out, quiet
        self.start: dict[str, Any] = {}
        self.reason, self.seconds, self.step = "", 0.0, 0

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        self.step = event.step
        match event.kind:
            case "start":
                self.start = event.data
                self._out.directory = event.data["run"]
            case "warning" if self._quiet:
                complain(f"warning: {event.data['message']}")
            case "done":
                self.reason, self.seconds = event.data["reason"], event.data["seconds"]


def show(
    out: Output,
    go: Callable[[list[Listener]], Run],
    *,
    quiet: bool = False,
    trackers: list[Listener] | None = None,
) -> int:
    """Let ``go`` train with the listeners given to it, print how it ended, and return the exit code."""
    from thespis.cli.live import Live
    from thespis.loops.driver import Diverged

    watch = Watch(out, quiet)
    try:
        with contextlib.nullcontext() if quiet else Live(out.console) as live:
            run = go([*([live] if live else []), watch, *(trackers or [])])
    except Diverged as error:
        complain(str(error))
        return DIVERGED
    if watch.reason == "interrupted":
        out.result(_result(run, watch))
        if quiet:  # otherwise the display has said so
            complain(f"interrupted at step {watch.step:,} and saved; continue with: thespis resume {run.path}")
        return INTERRUPTED
    _show_end(out, run)
    out.result(_result(run, watch))
    return 0


def meet(coordinator: str | None, processes: int, process: int) -> bool:
    """Join the other processes, if there are any. Returns whether this one prints and writes."""
    if coordinator is None and (processes, process) == (1, 0):
        return True
    from thespis.loops.processes import join

    join(coordinator, processes, process)
    return process == 0


def follow(go: Callable[[list[Listener]], Run]) -> int:
    """Train beside the process that shows it, in silence. Returns the exit code."""
    from thespis.loops.driver import Diverged

    ended: list[str] = []

    def hear(event: Event) -> None:
        if event.kind == "done":
            ended.append(event.data["reason"])

    try:
        go([hear])
    except Diverged:
        return DIVERGED
    return INTERRUPTED if ended == ["interrupted"] else 0


def trackers(tensorboard: str | None, wandb: str | None) -> list[Listener]:
    """The trackers that were asked for. W&B's own variable WANDB_MODE is heard: offline, disabled."""
    if tensorboard is None and wandb is None:
        return []
    from thespis.runs.trackers import TensorBoard, WandB

    made: list[Listener] = [] if tensorboard is None else [TensorBoard(tensorboard)]
    mode: Any = os.environ.get("WANDB_MODE", "online")
    return made if wandb is None else [*made, WandB(wandb, mode)]


def _result(run: Run, watch: Watch) -> dict[str, Any]:
    """The JSON document of a training command."""
    final = (run.final or {}) if watch.reason != "interrupted" else {}
    played = {way: final.get(way) for way in ("greedy", "sampled")}
    report = run.path / "report.html"
    return {
        "run": str(run.path),
        "reason": watch.reason,
        "step": watch.step,
        "seconds": watch.seconds,
        "device": watch.start.get("device"),
        **played,
        "state_hash": final.get("state_hash"),
        "report": str(report) if report.exists() else None,
    }


def _show_end(out: Output, run: Run) -> None:
    from thespis.cli.live import final_table

    if run.final:
        out.say()
        out.say(final_table(run.final))
    rows = [("report", str(run.path / "report.html"))]
    rows += [("source" if i == 0 else "", line) for i, line in enumerate(sources(run.config))]
    rows += [("next" if i == 0 else "", line) for i, line in enumerate(_next(run))]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in rows:
        grid.add_row(name, Text(line))
    out.say()
    out.say(grid)


def sources(config: dict[str, Any]) -> list[str]:
    """The bibliography of a run, a line each."""
    return [f"{c['authors']} {c['year']}: {c['title']}, {c['id']}" for c in config.get("bibliography", [])]


def _next(run: Run) -> list[str]:
    where = Path(run.path)
    if run.config["env"] is None:
        return [f"thespis report {where}"]
    return [f"thespis evaluate {where} --episodes 100", f"thespis record {where}", f"thespis compare {where} OTHER"]

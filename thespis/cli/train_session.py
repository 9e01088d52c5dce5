"""Training with output: live display, summary of results, and commands to run next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.trust_flags import trust_flags
from thespis.runs.events import Callback, Event

if TYPE_CHECKING:
    from thespis.evaluation.run import Run

EXIT_DIVERGED, EXIT_INTERRUPTED = 3, 130


class RunSummaryListener:
    """Callback that keeps the data of the final summary, with warnings, and prints these on stderr if it ``warns``."""

    def __init__(self, out: CommandOutput, warns: bool):
        self._out, self._warns = out, warns
        self.start_data: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.reason, self.seconds, self.step = "", 0.0, 0

    def __call__(self, event: Event) -> None:
        """Keep the data of one event; print a warning if nothing else does."""
        self.step = event.step
        match event.kind:
            case "start":
                self.start_data = event.data
                self._out.run_directory = event.data.get("stages", event.data["run"])
                self._out.trust_flags = trust_flags(event.data["config"])
            case "warning":
                self.warnings.append(event.data["message"])
                if self._warns:
                    print_stderr(f"warning: {event.data['message']}")
            case "done":
                self.reason, self.seconds = event.data["reason"], event.data["seconds"]


def train_with_display(
    out: CommandOutput,
    train_fn: Callable[[list[Callback]], Run],
    *,
    quiet: bool = False,
    trackers: list[Callback] | None = None,
) -> int:
    """Train by ``train_fn``, which is called with the callbacks; print the results and return the exit code."""
    from thespis.cli.progress import StageDisplays, use_plain_output
    from thespis.training.driver import DivergenceError

    on_stdout = out.json_stream is None and use_plain_output(out.console)  # where a reader may miss the warnings
    summary = RunSummaryListener(out, warns=quiet or on_stdout)
    try:
        with contextlib.nullcontext() if quiet else StageDisplays(out.console) as display:
            run = train_fn([*([display] if display else []), summary, *(trackers or [])])
    except DivergenceError as error:
        print_stderr(str(error))
        return EXIT_DIVERGED
    if summary.reason == "interrupted":
        out.write_result(_result_json(run, summary))
        if quiet:  # otherwise the display has printed it
            print_stderr(
                f"interrupted at step {summary.step:,} and saved; continue with: "
                f"thespis resume {out.run_directory}{out.trust_flags}"
            )
        return EXIT_INTERRUPTED
    _print_summary(out, run)
    out.write_result(_result_json(run, summary))
    return 0


def join_processes(coordinator: str | None, num_processes: int, process_id: int) -> bool:
    """Join the other processes, if there are any. Returns whether this process prints and writes."""
    if coordinator is None and (num_processes, process_id) == (1, 0):
        return True
    from thespis.runtime.distributed import join_processes

    join_processes(coordinator, num_processes, process_id)
    return process_id == 0


def train_silently(train_fn: Callable[[list[Callback]], Run]) -> int:
    """Train without output, in a process other than the first. Returns the exit code."""
    from thespis.training.driver import DivergenceError

    reasons: list[str] = []

    def record_reason(event: Event) -> None:
        if event.kind == "done":
            reasons.append(event.data["reason"])

    try:
        train_fn([record_reason])
    except DivergenceError:
        return EXIT_DIVERGED
    return EXIT_INTERRUPTED if reasons == ["interrupted"] else 0


def make_trackers(tensorboard: str | None, wandb: str | None) -> list[Callback]:
    """The requested trackers. The environment variable WANDB_MODE applies to W&B: offline, disabled."""
    if tensorboard is None and wandb is None:
        return []
    from thespis.runs.trackers import TensorBoard, WandB

    trackers: list[Callback] = [] if tensorboard is None else [TensorBoard(tensorboard)]
    mode: Any = os.environ.get("WANDB_MODE", "online")
    return trackers if wandb is None else [*trackers, WandB(wandb, mode)]


def _result_json(run: Run, summary: RunSummaryListener) -> dict[str, Any]:
    """The result of a training command, as JSON."""
    final = (run.final_scores or {}) if summary.reason != "interrupted" else {}
    results = {mode: final.get(mode) for mode in ("greedy", "sampled")}
    report = run.path / "report.html"
    return {
        "run": str(run.path),
        "reason": summary.reason,
        "step": summary.step,
        "seconds": summary.seconds,
        "device": summary.start_data.get("device"),
        **results,
        "held_out": run.held_out_scores,
        "best": run.directory.best,
        "state_hash": final.get("state_hash"),
        "report": str(report) if report.exists() else None,
        "warnings": summary.warnings,
    }


def _print_summary(out: CommandOutput, run: Run) -> None:
    from thespis.cli.progress import final_table
    from thespis.cli.tables import held_out_table, report_card_tables
    from thespis.evaluation.report_card import ReportCard

    if run.final_scores:
        out.print()
        out.print(final_table(run.final_scores))
        if card := run.final_scores.get("report_card"):
            for part in report_card_tables(ReportCard.from_json(card)):
                out.print(part)
    if run.held_out_scores:
        out.print()
        out.print(held_out_table(run.held_out_scores, run.config["options"]["eval_data"]))
    rows = [("report", str(run.path / "report.html"))]
    if (best := run.directory.best) is not None:
        rows += [("best", f"mean greedy return {best['score']:.6g} at step {best['step']:,}: --checkpoint best")]
    rows += [("source" if i == 0 else "", line) for i, line in enumerate(bibliography_lines(run.config))]
    rows += [("next" if i == 0 else "", line) for i, line in enumerate(_next_commands(run))]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, line in rows:
        grid.add_row(name, Text(line))
    out.print()
    out.print(grid)


def bibliography_lines(config: dict[str, Any]) -> list[str]:
    """The bibliography of a run, one line per entry."""
    return [f"{c['authors']} {c['year']}: {c['title']}, {c['id']}" for c in config.get("bibliography", [])]


def _next_commands(run: Run) -> list[str]:
    path, trust = Path(run.path), trust_flags(run.config)
    if run.config["env"] is None:
        commands = [f"thespis evaluate {path} --eval-data FILE{trust}", f"thespis report {path}"]
        return [f"thespis chat {path}{trust}", *commands] if run.is_language else commands
    commands = [f"thespis evaluate {path} --episodes 100{trust}", f"thespis record {path}{trust}"]
    return [*commands, f"thespis compare {path} OTHER"]

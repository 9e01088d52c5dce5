"""Progress of a run, collected from its events: a live display in the terminal, and the table of final results.

On a terminal the display is a panel that is redrawn in place. Elsewhere, or if ``NO_COLOR`` or ``CI`` is set, it is
plain ASCII lines without control codes, at most one every few seconds and one per evaluation. Both also show that a
run goes on while nothing happens for a while: a program is compiled, or an update takes long.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live as Redrawn
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from thespis.cli.trust_flags import trust_flags
from thespis.evaluation import formatting
from thespis.runs.events import Event
from thespis.runs.store import BASE_COLUMNS

_SPARK_BLOCKS = "▁▂▃▄▅▆▇█"
_HISTORY_SIZE = 400  # returns kept for the sparkline
_MIN_SPARKLINE_WIDTH = 70  # characters: a narrower panel has no sparkline
_MAX_METRICS = 10  # of the method, at most, in the panel
_MAX_PLAIN_METRICS = 3
_WAIT_INTERVAL = 10.0  # seconds without an event after which the display says that the run goes on


class RunProgress:
    """Progress of a run so far, as a panel and as a line of text."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.run_directory = ""
        self.step = 0
        self.fraction = 0.0
        self.steps_per_second = self.seconds_left = self.seconds_elapsed = math.nan
        self.returns: list[float] = []  # of each seed, the latest
        self.lengths: list[float] = []
        self.metrics: dict[str, float] = {}
        self.return_history: deque[float] = deque(maxlen=_HISTORY_SIZE)
        self.evaluation = ""
        self.updated_at = math.nan  # time of the latest event

    def update(self, event: Event) -> None:
        """Update from one event."""
        self.step, data = event.step, event.data
        match event.kind:
            case "start":
                self.config, self.run_directory = data.get("config", {}), str(data.get("stages", data.get("run", "")))
            case "progress":
                self.fraction = data["fraction"]
                self.steps_per_second, self.seconds_left = data["steps_per_second"], data["seconds_left"]
                self.seconds_elapsed = data["elapsed"]
            case "metrics":
                self._update_metrics(data["rows"])
            case "evaluation":
                results = ((mode, data.get(mode)) for mode in ("greedy", "sampled"))
                parts = [
                    f"{mode} {formatting.format_number(mean([x for row in rows for x in row]))}"
                    for mode, rows in results
                    if rows
                ]
                self.evaluation = f"{event.step:,} {self.short_unit}: {', '.join(parts)}"
            case "held_out":
                values = formatting.format_held_out(data["metrics"])
                self.evaluation = f"{event.step:,} {self.short_unit}, held-out data: {values}"

    def _update_metrics(self, rows: list[dict[str, Any]]) -> None:
        if returns := _finite_values(rows, "episode_return"):
            self.returns = returns
            self.return_history.append(mean(returns))
            self.lengths = _finite_values(rows, "episode_length")
        for name in (name for name in rows[0] if name not in BASE_COLUMNS):
            if values := _finite_values(rows, name):
                self.metrics[name] = mean(values)

    def waiting_line(self, now: float) -> str:
        """How long the run has been working since its latest event, in one line."""
        work = "compiling, or the first steps" if math.isnan(self.steps_per_second) else "next update or evaluation"
        return f"{self._step_text()} · {work}: {formatting.format_duration(now - self.updated_at)} so far"

    @property
    def unit(self) -> str:
        """What a step of the run is: environment steps, or updates of a run from data."""
        return formatting.step_unit(self.config)

    @property
    def short_unit(self) -> str:
        """The last word of :attr:`unit`."""
        return self.unit.rpartition(" ")[2]

    def headline(self) -> str:
        """Method, environment, number of steps and seeds, and loop in one line."""
        config = self.config
        parts = [f"{config.get('method_name', 'training')} on {config.get('env') or 'a dataset'}"]
        parts += [f"{config['steps']:,} {self.unit} per seed"] if "steps" in config else []
        parts += [formatting.format_seeds(config["seeds"])] if "seeds" in config else []
        parts += [f"{config['loop']} loop"] if "loop" in config else []
        parts += [f"preset {config['preset']['name']}"] if "preset" in config else []
        return " · ".join(parts)

    def status_line(self) -> str:
        """The state of the run in one line."""
        parts = [
            self._step_text(),
            f"{formatting.format_number(self.steps_per_second, 3)} {self.short_unit}/s",
            f"{formatting.format_duration(self.seconds_left)} left",
        ]
        if self.returns:
            parts += [f"return {self._return_text()}", f"length {formatting.format_number(mean(self.lengths), 3)}"]
        parts += [
            f"{name} {formatting.format_number(value, 3)}"
            for name, value in list(self.metrics.items())[:_MAX_PLAIN_METRICS]
        ]
        return " · ".join(parts)

    def panel(self, width: int, now: float = math.nan) -> RenderableType:
        """The state of the run as a panel ``width`` characters wide, at the time ``now``."""
        bar = ProgressBar(total=1.0, completed=self.fraction, complete_style="cyan", finished_style="green")
        line = Table.grid(expand=True)  # a bar alone does not end its line
        line.add_row(bar)
        parts: list[RenderableType] = [Text(self._step_text()), line, self._speed_text()]
        if now - self.updated_at >= _WAIT_INTERVAL:
            parts.append(Text(self.waiting_line(now).partition(" · ")[2], style="dim"))
        parts.append(Padding(self._result_table(width), (1, 0, 0, 0)))
        if self.metrics:
            parts.append(Padding(self._metric_table(), (1, 0, 0, 0)))
        title = Text(f"{self.config.get('method_name', '')} · {self.config.get('env') or 'a dataset'}", style="bold")
        return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width)

    def _speed_text(self) -> Text:
        if math.isnan(self.steps_per_second):
            return Text("preparing: compiling before the first step", style="dim")
        parts = [
            (formatting.format_number(self.steps_per_second, 3), f"{self.short_unit}/s"),
            (formatting.format_duration(self.seconds_elapsed), "elapsed"),
            (formatting.format_duration(self.seconds_left), "left"),
        ]
        return Text("   ").join(Text.assemble((value, "bold"), " ", name) for value, name in parts)

    def _result_table(self, width: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, min_width=len("evaluation"))
        grid.add_column(no_wrap=True)
        grid.add_column(style="cyan", no_wrap=True)
        value, _, spread = self._return_text().partition(" ") if self.returns else ("", "", "no episode has ended yet")
        curve = sparkline(list(self.return_history), 24) if width >= _MIN_SPARKLINE_WIDTH else ""
        grid.add_row("return", Text.assemble((value, "bold"), " " if value else "", spread), curve)
        grid.add_row("length", formatting.format_number(mean(self.lengths), 3))
        if self.evaluation:
            grid.add_row("evaluation", self.evaluation)
        return grid

    def _metric_table(self) -> Table:
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2):
            grid.add_column(style="dim", overflow="ellipsis", no_wrap=True, ratio=2)
            grid.add_column(justify="right", no_wrap=True, ratio=1)
        items = [
            (name.replace("_", " "), formatting.format_number(value, 3))
            for name, value in list(self.metrics.items())[:_MAX_METRICS]
        ]
        for left, right in zip(items[::2], [*items[1::2], ("", "")], strict=False):
            grid.add_row(*left, *right)
        return grid

    def _step_text(self) -> str:
        total = f"/{self.config['steps']:,}" if "steps" in self.config else ""
        return f"{self.step:,}{total} {self.short_unit} ({100 * self.fraction:.0f}%)"

    def _return_text(self) -> str:
        text = formatting.format_number(mean(self.returns))
        if len(self.returns) > 1:
            low, high = formatting.format_number(min(self.returns)), formatting.format_number(max(self.returns))
            text += f" (seeds {low} to {high})"
        return text


def sparkline(values: list[float], width: int) -> str:
    """The values as at most ``width`` blocks, averaged where there are more; empty below two values."""
    if len(values) < 2:
        return ""
    width = min(width, len(values))
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    levels = [mean(values[a:b]) for a, b in itertools.pairwise(edges)]
    low, span = min(levels), max(levels) - min(levels)
    return "".join(_SPARK_BLOCKS[round(7 * (level - low) / span) if span else 3] for level in levels)


def _finite_values(rows: list[dict[str, Any]], name: str) -> list[float]:
    values = (row.get(name) for row in rows)
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def mean(values: list[float]) -> float:
    """Arithmetic mean; NaN for an empty list."""
    return sum(values) / len(values) if values else math.nan


_ASCII = str.maketrans({"−": "-", "–": "-", "…": "...", "·": "|"})
_MAX_WIDTH = 78  # characters


def use_plain_output(console: Console) -> bool:
    """Whether to write plain lines instead of a live panel."""
    requested = bool(os.environ.get("NO_COLOR") or os.environ.get("CI"))
    return requested or not console.is_terminal or console.is_dumb_terminal


class StageDisplays:
    """Callback that shows each run of an experiment in stages on a display of its own; also for a single run."""

    def __init__(self, console: Console):
        self._console = console
        self._display: LiveDisplay | None = None

    def __enter__(self) -> StageDisplays:
        """Return the callback itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the current display."""
        if self._display is not None:
            self._display.close()

    def __call__(self, event: Event) -> None:
        """Pass an event to the display of its run, which is made at the start."""
        if event.kind == "start" or self._display is None:
            self.__exit__()
            self._display = LiveDisplay(self._console)
        self._display(event)


class LiveDisplay:
    """Callback that displays a run's events. Use it as a context manager, so that the terminal is restored.

    ``print_interval``: seconds between two plain lines; ``clock``: source of time in seconds, for tests.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        plain: bool | None = None,
        print_interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.console = console or Console()
        self.plain = use_plain_output(self.console) if plain is None else plain
        self.progress = RunProgress()
        self._every, self._clock = print_interval, clock
        self._last = -math.inf
        self._redrawn: Redrawn | None = None
        self._closed, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> LiveDisplay:
        """Return the display itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the display; what it shows stays on the terminal."""
        self.close()

    def close(self) -> None:
        """Keep the last panel on screen and restore the terminal. May be called twice."""
        self._closed.set()
        if self._redrawn is not None:
            self._redrawn.stop()
            self._redrawn = None

    def __call__(self, event: Event) -> None:
        """Show one event of the run on the display."""
        self.progress.updated_at = time.monotonic()
        self.progress.update(event)
        match event.kind:
            case "start":
                self._start(event)
            case "memory":
                text = formatting.format_bytes(event.data["working_bytes"])
                self._print(f"working memory: {text} for intermediate results of the largest program", "dim")
            case "warning":
                self._print(f"warning: {event.data['message']}", "bold yellow")
            case "done":
                self._done(event)
            case "evaluation" | "held_out" if self.plain:
                self._print(f"evaluation at {self.progress.evaluation}")
            case "progress" if self.plain:
                self._progress_line()
        if self._redrawn is not None:
            self._redrawn.refresh()

    def _width(self) -> int:
        return min(_MAX_WIDTH, self.console.width)

    def _start(self, event: Event) -> None:
        data = event.data
        device = str(data.get("device", ""))
        if device:
            self._print(device if device.startswith("device:") else f"device: {device}")
        stage = f"stage {data['stage']}: " if "stage" in data else ""
        self._print(f"{stage}{self.progress.headline()}")
        if data.get("planned_bytes"):
            text = f"planned memory: {formatting.format_bytes(data['planned_bytes'])} for parameters and stored data"
            self._print(text, "dim")
        if data.get("run"):
            self._print(f"run directory: {data['run']}", "dim")
        if self.plain:
            threading.Thread(target=self._print_while_waiting, name="progress", daemon=True).start()
        else:
            self._redrawn = Redrawn(get_renderable=self._panel, console=self.console, refresh_per_second=4)
            self._redrawn.start()

    def _panel(self) -> RenderableType:
        return self.progress.panel(self._width(), time.monotonic())

    def _print_while_waiting(self) -> None:
        """Print a line whenever some seconds have passed without one, until the display is closed."""
        printed_at = time.monotonic()
        while not self._closed.wait(1.0):
            printed_at = max(printed_at, self.progress.updated_at)
            if (now := time.monotonic()) - printed_at >= _WAIT_INTERVAL:
                printed_at = now
                self._print(self.progress.waiting_line(now))

    def _done(self, event: Event) -> None:
        if self.plain and self.progress.fraction < 1:
            self._progress_line(force=True)
        if self._redrawn is not None:
            self._redrawn.refresh()
        self.close()
        reason = event.data.get("reason", "finished")
        text = f"{reason} at {event.step:,} {self.progress.unit} per seed"
        if event.data.get("seconds"):
            text += f" after {formatting.format_duration(event.data['seconds'])}"
        if reason != "finished" and self.progress.run_directory:
            flags = trust_flags(self.progress.config)
            text += f"; continue with: thespis resume {self.progress.run_directory}{flags}"
        self._print(text, "bold")

    def _progress_line(self, force: bool = False) -> None:
        if force or self._clock() - self._last >= self._every:
            self._last = self._clock()
            self._print(self.progress.status_line())

    def _print(self, text: str, style: str = "") -> None:
        if self.plain:
            with self._lock:
                self.console.file.write(text.translate(_ASCII) + "\n")
                self.console.file.flush()
        else:
            self.console.print(Text(text, style=style), soft_wrap=True)


def final_table(final: dict[str, Any]) -> RenderableType:
    """The content of a final.json as a table: greedy and sampled play, and baselines, with IQM, interval, seeds."""
    table = Table(title="Final play", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("play", "IQM", "95% interval", "seeds", "episodes", "length"):
        table.add_column(name, justify="left" if name == "play" else "right")
    for name, result in formatting.final_results(final):
        table.add_row(
            name,
            Text(formatting.format_number(result["iqm"]), style="bold"),
            formatting.format_interval(result["interval"]),
            str(result["seeds"]),
            str(result["episodes"]),
            formatting.format_number(mean(formatting.episode_lengths(result)), 3),
        )
    return table

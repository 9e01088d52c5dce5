"""The state of a run in progress, gathered from its events, as a panel and as a line."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from thespis.evaluation import words
from thespis.runs.events import Event
from thespis.runs.store import COLUMNS

_BLOCKS = "▁▂▃▄▅▆▇█"
_HISTORY = 400  # returns remembered for the little curve
_ROOMY = 70  # characters: a narrower panel has no curve
_METRICS = 10  # of the method, at most, in the panel
_METRICS_PLAIN = 3


class Shown:
    """What is known of the run so far, as a panel and as a line."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.run = ""
        self.step = 0
        self.fraction = 0.0
        self.speed = self.left = self.elapsed = math.nan
        self.returns: list[float] = []  # of each seed, the latest
        self.lengths: list[float] = []
        self.metrics: dict[str, float] = {}
        self.history: deque[float] = deque(maxlen=_HISTORY)
        self.evaluation = ""

    def take(self, event: Event) -> None:
        """Learn from one event."""
        self.step, data = event.step, event.data
        match event.kind:
            case "start":
                self.config, self.run = data.get("config", {}), str(data.get("run", ""))
            case "progress":
                self.fraction = data["fraction"]
                self.speed, self.left = data["steps_per_second"], data["seconds_left"]
                self.elapsed = data["elapsed"]
            case "metrics":
                self._take_rows(data["rows"])
            case "evaluation":
                ways = ((way, data.get(way)) for way in ("greedy", "sampled"))
                said = [f"{way} {words.number(mean([x for row in rows for x in row]))}" for way, rows in ways if rows]
                self.evaluation = f"{event.step:,} steps: {', '.join(said)}"

    def _take_rows(self, rows: list[dict[str, Any]]) -> None:
        if returns := _measured(rows, "episode_return"):
            self.returns = returns
            self.history.append(mean(returns))
            self.lengths = _measured(rows, "episode_length")
        for name in (name for name in rows[0] if name not in COLUMNS):
            if values := _measured(rows, name):
                self.metrics[name] = mean(values)

    def headline(self) -> str:
        """What is being trained, on what, for how long."""
        config = self.config
        parts = [f"{config.get('method_name', 'training')} on {config.get('env') or 'a dataset'}"]
        parts += [f"{config['steps']:,} steps per seed"] if "steps" in config else []
        parts += [words.count(len(config["seeds"]), "seed")] if "seeds" in config else []
        parts += [f"{config['loop']} loop"] if "loop" in config else []
        return " · ".join(parts)

    def line(self) -> str:
        """The state of the run in one line."""
        parts = [self._steps(), f"{words.number(self.speed, 3)} steps/s", f"{words.duration(self.left)} left"]
        if self.returns:
            parts += [f"return {self._return()}", f"length {words.number(mean(self.lengths), 3)}"]
        parts += [f"{name} {words.number(value, 3)}" for name, value in list(self.metrics.items())[:_METRICS_PLAIN]]
        return " · ".join(parts)

    def panel(self, width: int) -> RenderableType:
        """The state of the run as a panel ``width`` characters wide."""
        bar = ProgressBar(total=1.0, completed=self.fraction, complete_style="cyan", finished_style="green")
        line = Table.grid(expand=True)  # a bar alone does not end its line
        line.add_row(bar)
        parts: list[RenderableType] = [Text(self._steps()), line, self._speed()]
        parts.append(Padding(self._results(width), (1, 0, 0, 0)))
        if self.metrics:
            parts.append(Padding(self._metric_table(), (1, 0, 0, 0)))
        title = Text(f"{self.config.get('method_name', '')} · {self.config.get('env') or 'a dataset'}", style="bold")
        return Panel(Group(*parts), title=title, title_align="left", border_style="dim", width=width)

    def _speed(self) -> Text:
        if math.isnan(self.speed):
            return Text("preparing: compiling comes before the first step", style="dim")
        said = [
            (words.number(self.speed, 3), "steps/s"),
            (words.duration(self.elapsed), "elapsed"),
            (words.duration(self.left), "left"),
        ]
        return Text("   ").join(Text.assemble((value, "bold"), " ", name) for value, name in said)

    def _results(self, width: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, min_width=len("evaluation"))
        grid.add_column(no_wrap=True)
        grid.add_column(style="cyan", no_wrap=True)
        value, _, spread = self._return().partition(" ") if self.returns else ("", "", "no episode has ended yet")
        curve = sparkline(list(self.history), 24) if width >= _ROOMY else ""
        grid.add_row("return", Text.assemble((value, "bold"), " " if value else "", spread), curve)
        grid.add_row("length", words.number(mean(self.lengths), 3))
        if self.evaluation:
            grid.add_row("evaluation", self.evaluation)
        return grid

    def _metric_table(self) -> Table:
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2):
            grid.add_column(style="dim", overflow="ellipsis", no_wrap=True, ratio=2)
            grid.add_column(justify="right", no_wrap=True, ratio=1)
        items = [
            (name.replace("_", " "), words.number(value, 3)) for name, value in list(self.metrics.items())[:_METRICS]
        ]
        for left, right in zip(items[::2], [*items[1::2], ("", "")], strict=False):
            grid.add_row(*left, *right)
        return grid

    def _steps(self) -> str:
        total = f"/{self.config['steps']:,}" if "steps" in self.config else ""
        return f"{self.step:,}{total} steps ({100 * self.fraction:.0f}%)"

    def _return(self) -> str:
        text = words.number(mean(self.returns))
        if len(self.returns) > 1:
            low, high = words.number(min(self.returns)), words.number(max(self.returns))
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
    return "".join(_BLOCKS[round(7 * (level - low) / span) if span else 3] for level in levels)


def _measured(rows: list[dict[str, Any]], name: str) -> list[float]:
    values = (row.get(name) for row in rows)
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def mean(values: list[float]) -> float:
    """The mean; NaN of nothing."""
    return sum(values) / len(values) if values else math.nan

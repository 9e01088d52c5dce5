"""What a run looks like in a terminal while it goes on, and the table at its end.

On a terminal a panel that is redrawn in place; elsewhere, and where ``NO_COLOR`` or ``CI`` is set, plain
ASCII lines without control codes, at most one every few seconds and one per evaluation.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.live import Live as Redrawn
from rich.table import Table
from rich.text import Text

from thespis.cli.panel import Shown, mean
from thespis.evaluation import words
from thespis.runs.events import Event

_ASCII = str.maketrans({"−": "-", "–": "-", "…": "...", "·": "|"})
_WIDEST = 78  # characters


def is_plain(console: Console) -> bool:
    """Whether only plain lines should be written."""
    asked = bool(os.environ.get("NO_COLOR") or os.environ.get("CI"))
    return asked or not console.is_terminal or console.is_dumb_terminal


class Live:
    """A listener that shows a run's events. Use it as a context manager, so that the terminal is given back.

    ``every``: seconds between two plain lines; ``clock``: seconds, for tests.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        plain: bool | None = None,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.console = console or Console()
        self.plain = is_plain(self.console) if plain is None else plain
        self.shown = Shown()
        self._every, self._clock = every, clock
        self._last = -math.inf
        self._redrawn: Redrawn | None = None

    def __enter__(self) -> Live:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As :meth:`close`."""
        self.close()

    def close(self) -> None:
        """Leave the last panel standing and give the terminal back. May be called twice."""
        if self._redrawn is not None:
            self._redrawn.stop()
            self._redrawn = None

    def __call__(self, event: Event) -> None:
        """Show one event."""
        self.shown.take(event)
        match event.kind:
            case "start":
                self._start(event)
            case "warning":
                self._say(f"warning: {event.data['message']}", "bold yellow")
            case "done":
                self._done(event)
            case "evaluation" if self.plain:
                self._say(f"evaluation at {self.shown.evaluation}")
            case "progress" if self.plain:
                self._progress_line()
        if self._redrawn is not None:
            self._redrawn.update(self.shown.panel(self._width()))

    def _width(self) -> int:
        return min(_WIDEST, self.console.width)

    def _start(self, event: Event) -> None:
        data = event.data
        device = str(data.get("device", ""))
        if device:
            self._say(device if device.startswith("device:") else f"device: {device}")
        self._say(self.shown.headline())
        if data.get("planned_bytes"):
            self._say(f"planned memory: {words.size(data['planned_bytes'])}", "dim")
        if data.get("run"):
            self._say(f"run directory: {data['run']}", "dim")
        if not self.plain:
            self._redrawn = Redrawn(self.shown.panel(self._width()), console=self.console, refresh_per_second=4)
            self._redrawn.start()

    def _done(self, event: Event) -> None:
        if self.plain and self.shown.fraction < 1:
            self._progress_line(now=True)
        if self._redrawn is not None:
            self._redrawn.update(self.shown.panel(self._width()))
        self.close()
        reason = event.data.get("reason", "finished")
        text = f"{reason} at {event.step:,} steps per seed"
        if event.data.get("seconds"):
            text += f" after {words.duration(event.data['seconds'])}"
        if reason != "finished" and self.shown.run:
            text += f"; continue with: thespis resume {self.shown.run}"
        self._say(text, "bold")

    def _progress_line(self, now: bool = False) -> None:
        if now or self._clock() - self._last >= self._every:
            self._last = self._clock()
            self._say(self.shown.line())

    def _say(self, text: str, style: str = "") -> None:
        if self.plain:
            self.console.file.write(text.translate(_ASCII) + "\n")
            self.console.file.flush()
        else:
            self.console.print(Text(text, style=style), soft_wrap=True)


def final_table(final: dict[str, Any]) -> RenderableType:
    """The content of a final.json as a table: greedy and sampled play with IQM, interval, seeds."""
    table = Table(title="Final play", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("play", "IQM", "95% interval", "seeds", "episodes", "length"):
        table.add_column(name, justify="left" if name == "play" else "right")
    for way in ("greedy", "sampled"):
        if result := final.get(way):
            table.add_row(
                way,
                Text(words.number(result["iqm"]), style="bold"),
                words.interval(result["interval"]),
                str(result["seeds"]),
                str(result["episodes"]),
                words.number(mean(words.lengths(result)), 3),
            )
    return table

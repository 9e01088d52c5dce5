"""What a command prints: for readers on a console, or one JSON document alone on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol, TextIO, runtime_checkable

from rich.console import Console


@runtime_checkable
class Command(Protocol):
    """A parsed command line."""

    @property
    def json(self) -> bool:
        """Whether the result is wanted as one JSON document."""
        ...

    def run(self, out: Output) -> int:
        """Do it and return the exit code."""
        ...


class Output:
    """Where a command's words and its result go.

    ``document`` takes the JSON document, if one is wanted; the console then writes to stderr. ``directory`` is the
    run that is being trained, for whoever has to say where things are after an accident.
    """

    def __init__(self, document: TextIO | None = None):
        self.document = document
        self.console = Console(stderr=document is not None, highlight=False)
        self.directory: str | None = None

    def say(self, *what: Any, markup: bool = True) -> None:
        """Print for a reader; without ``markup`` what stands in square brackets is no style."""
        self.console.print(*what, soft_wrap=True, markup=markup)

    def ask(self, prompt: str) -> str:
        """A line that the reader types. Raises ``EOFError`` where there is none."""
        typed = self.console.input(prompt, markup=False)
        if not sys.stdin.isatty():  # nobody's terminal has shown it
            self.say(typed, markup=False)
        return typed

    def result(self, data: Any) -> None:
        """Print the result as JSON, if that is wanted; numbers that are not finite become null."""
        if self.document is not None:
            from thespis.runs.store import plain

            json.dump(plain(data), self.document, indent=1, allow_nan=False)
            self.document.write("\n")
            self.document.flush()


@contextlib.contextmanager
def output(as_json: bool) -> Iterator[Output]:
    """An :class:`Output`. For JSON, whatever else this process writes to stdout goes to stderr, libraries included."""
    if not as_json:
        yield Output()
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w") as document:
            yield Output(document)
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"thespis: {text}", file=sys.stderr)

"""Output of commands: text on a console, or a single JSON document on stdout."""

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
        """Whether to print the result as one JSON document."""
        ...

    def run(self, out: CommandOutput) -> int:
        """Run the command and return the exit code."""
        ...


class CommandOutput:
    """Destination of a command's text and result.

    ``json_stream`` receives the JSON document, if one is requested; the console then writes to stderr.
    ``run_directory`` is the run in training, for messages after an error, and ``trust_flags`` what its commands need.
    """

    def __init__(self, json_stream: TextIO | None = None):
        self.json_stream = json_stream
        self.console = Console(stderr=json_stream is not None, highlight=False)
        self.run_directory: str | None = None
        self.trust_flags = ""

    def print(self, *objects: Any, markup: bool = True) -> None:
        """Print on the console; without ``markup``, square brackets are printed as they are."""
        self.console.print(*objects, soft_wrap=True, markup=markup)

    def input(self, prompt: str) -> str:
        """Read a line from the user. Raises ``EOFError`` at the end of input."""
        typed = self.console.input(prompt, markup=False)
        if not sys.stdin.isatty():  # no terminal has echoed it
            self.print(typed, markup=False)
        return typed

    def write_result(self, data: Any) -> None:
        """Print the result as JSON, if requested; numbers that are not finite become null."""
        if self.json_stream is not None:
            from thespis.runs.store import to_jsonable

            json.dump(to_jsonable(data), self.json_stream, indent=1, allow_nan=False)
            self.json_stream.write("\n")
            self.json_stream.flush()


@contextlib.contextmanager
def open_output(as_json: bool) -> Iterator[CommandOutput]:
    """Context with a :class:`CommandOutput`; for JSON, all other output to stdout, by libraries too, goes to stderr."""
    if not as_json:
        yield CommandOutput()
        return
    sys.stdout.flush()
    saved_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(saved_stdout), "w") as document:
            yield CommandOutput(document)
    finally:
        sys.stdout.flush()
        os.dup2(saved_stdout, 1)
        os.close(saved_stdout)


def print_stderr(text: str) -> None:
    """Print one line on stderr."""
    print(f"thespis: {text}", file=sys.stderr)

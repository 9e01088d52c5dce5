"""The command line: parse, run, and say in one line what went wrong.

Exit codes: 0 done; 1 a check failed, or an error that nobody foresaw; 2 something the user can mend; 3 the training
diverged; 130 interrupted, saved. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import NoReturn, cast

import tyro

from thespis.cli.commands.arena import Arena
from thespis.cli.commands.chat import Chat
from thespis.cli.commands.collect import Collect
from thespis.cli.commands.compare import Compare
from thespis.cli.commands.doctor import Doctor
from thespis.cli.commands.evaluate import Evaluate
from thespis.cli.commands.export import Export
from thespis.cli.commands.listing import List
from thespis.cli.commands.papers import Papers
from thespis.cli.commands.play import Play
from thespis.cli.commands.record import Record
from thespis.cli.commands.report import MakeReport
from thespis.cli.commands.reproduce import Reproduce
from thespis.cli.commands.resume import Resume
from thespis.cli.commands.serve import Serve
from thespis.cli.commands.sweep import Sweep
from thespis.cli.commands.train import Train
from thespis.cli.output import Command, Output, complain, output
from thespis.core.errors import UserError

COMMANDS: dict[str, type] = {
    "train": Train,
    "resume": Resume,
    "sweep": Sweep,
    "evaluate": Evaluate,
    "compare": Compare,
    "arena": Arena,
    "play": Play,
    "chat": Chat,
    "report": MakeReport,
    "record": Record,
    "collect": Collect,
    "export": Export,
    "serve": Serve,
    "papers": Papers,
    "reproduce": Reproduce,
    "list": List,
    "doctor": Doctor,
}

DESCRIPTION = "An actor acts, a critic evaluates, a learner improves: train agents, and see how good they are."


def main() -> NoReturn:
    """The entry point of ``thespis``."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    argv = argv or ["--help"]
    try:
        _check_command(argv)
        if argv == ["--version"]:
            from thespis import __version__

            print(f"thespis {__version__}")
            return 0
        command = _parse(argv)
    except UserError as error:
        complain(str(error))
        return 2
    except SystemExit as end:
        return _after_help(argv) if end.code in (0, None) else 2
    except BrokenPipeError:
        return _unread()
    with _quiet_libraries(), output(command.json) as out:
        return _guarded(command, out)


def _parse(argv: list[str]) -> Command:
    parsed = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        args=argv,
        prog="thespis",
        description=DESCRIPTION,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return cast(Command, parsed)


def _check_command(argv: list[str]) -> None:
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0], COMMANDS, 2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it is one of {', '.join(COMMANDS)}"
        raise UserError(f"unknown command {argv[0]!r}: {hint}")


def _after_help(argv: list[str]) -> int:
    """``thespis train sac --help`` (and sweep) goes on with the settings of SAC."""
    if argv[0] not in ("train", "sweep") or argv[1].startswith("-"):
        return 0  # nobody asked about a method
    with _quiet_libraries():
        return _guarded(List("methods", argv[1]), Output())


def _guarded(command: Command, out: Output) -> int:
    try:
        return command.run(out)
    except UserError as error:
        complain(f"{error}{_how_to_go_on(out)}")
        return 2
    except KeyboardInterrupt:
        complain(f"interrupted{_how_to_go_on(out)}")
        return 130
    except BrokenPipeError:
        return _unread()
    except Exception:
        traceback.print_exc()
        complain(f"this was not foreseen: please report the lines above{_how_to_go_on(out)}")
        return 1


def _unread() -> int:
    """The reader has seen enough: nothing more is said, not even by Python as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _how_to_go_on(out: Output) -> str:
    return f"; continue with: thespis resume {out.directory}" if out.directory else ""


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """JAX's own remarks are off: what a user must know, the device among it, we say ourselves."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("jax", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="jax")
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
        yield

"""Entry point of the command line: parses arguments, runs the command, and prints errors in one line.

Exit codes: 0 success; 1 a failed check or an unexpected error; 2 an error that the user can fix, also in the user's own
code; 3 training diverged; 130 interrupted and saved. ``--traceback``, anywhere, prints tracebacks of all errors. No
heavy module is imported before a command runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import tyro

from thespis.cli.commands.arena import ArenaCommand
from thespis.cli.commands.bench import BenchCommand
from thespis.cli.commands.benchmark import BenchmarkCommand
from thespis.cli.commands.chat import ChatCommand
from thespis.cli.commands.collect import CollectCommand
from thespis.cli.commands.compare import CompareCommand
from thespis.cli.commands.doctor import DoctorCommand
from thespis.cli.commands.evaluate import EvaluateCommand
from thespis.cli.commands.exploitability import ExploitabilityCommand
from thespis.cli.commands.export import ExportCommand
from thespis.cli.commands.judge import JudgeCommand
from thespis.cli.commands.label import LabelCommand
from thespis.cli.commands.list import ListCommand
from thespis.cli.commands.merge import MergeCommand
from thespis.cli.commands.new import NewCommand
from thespis.cli.commands.papers import PapersCommand
from thespis.cli.commands.plan import PlanCommand
from thespis.cli.commands.play import PlayCommand
from thespis.cli.commands.record import RecordCommand
from thespis.cli.commands.report import ReportCommand
from thespis.cli.commands.reproduce import ReproduceCommand
from thespis.cli.commands.resume import ResumeCommand
from thespis.cli.commands.serve import ServeCommand
from thespis.cli.commands.stages import StagesCommand
from thespis.cli.commands.sweep import SweepCommand
from thespis.cli.commands.train import TrainCommand
from thespis.cli.commands.tune import TuneCommand
from thespis.cli.commands.view import ViewCommand
from thespis.cli.output import Command, CommandOutput, open_output, print_stderr
from thespis.cli.trust_flags import env_module
from thespis.core.errors import DamagedCheckpointWarning, DownloadWarning, UserError
from thespis.core.renames import RenamedWarning
from thespis.runs.trust import trusting
from thespis.runtime.user_frames import describe_error, user_frame_text

COMMANDS: dict[str, type] = {
    "train": TrainCommand,
    "resume": ResumeCommand,
    "stages": StagesCommand,
    "sweep": SweepCommand,
    "tune": TuneCommand,
    "evaluate": EvaluateCommand,
    "compare": CompareCommand,
    "exploitability": ExploitabilityCommand,
    "arena": ArenaCommand,
    "play": PlayCommand,
    "chat": ChatCommand,
    "report": ReportCommand,
    "record": RecordCommand,
    "view": ViewCommand,
    "label": LabelCommand,
    "judge": JudgeCommand,
    "collect": CollectCommand,
    "export": ExportCommand,
    "merge": MergeCommand,
    "serve": ServeCommand,
    "papers": PapersCommand,
    "reproduce": ReproduceCommand,
    "plan": PlanCommand,
    "bench": BenchCommand,
    "benchmark": BenchmarkCommand,
    "list": ListCommand,
    "new": NewCommand,
    "doctor": DoctorCommand,
}

_OLD_FLAGS = {"--vary": "--randomize", "--lag": "--policy-lag", "--newest": "--latest-policy"}
_OLD_VALUES = {("--role", "world"): "environment"}

TRACEBACK_FLAG = "--traceback"
DESCRIPTION = (
    "An actor acts, a critic evaluates, a learner improves: train agents, and see how good they are. "
    f"{TRACEBACK_FLAG}, with any command, shows the whole traceback of an error."
)


def main() -> NoReturn:
    """The entry point of ``thespis``."""
    code = run(sys.argv[1:])
    if "thespis.runtime.interrupts" in sys.modules:
        from thespis.runtime.interrupts import has_abandoned_work

        if has_abandoned_work():  # the run is saved
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code."""
    show_traceback = TRACEBACK_FLAG in argv
    argv = [word for word in argv if word != TRACEBACK_FLAG] or ["--help"]
    try:
        _check_command(argv)
        if argv == ["--version"]:
            from thespis import __version__

            print(f"thespis {__version__}")
            return 0
        argv = _with_new_flags(argv)
        _check_flags(argv)
        command = _parse(argv)
    except UserError as error:
        print_stderr(str(error))
        return 2
    except SystemExit as end:
        return _show_method_help(argv) if end.code in (0, None) else 2
    except BrokenPipeError:
        return _handle_broken_pipe()
    with _silence_libraries(), open_output(command.json) as out:
        return _run_command(command, out, show_traceback)


def _with_new_flags(argv: list[str]) -> list[str]:
    """Arguments with flags and values of earlier versions replaced; prints a note for each."""
    if argv[0] not in ("train", "sweep", "chat"):
        return argv
    words = []
    for word in argv:
        flag, equals, value = word.partition("=")
        old = (flag, value) if equals else (words[-1] if words else "", word)
        if old in _OLD_VALUES:
            print(f"note: {' '.join(old)} is now called {old[0]} {_OLD_VALUES[old]}", file=sys.stderr)
            word = word.removesuffix(old[1]) + _OLD_VALUES[old]
        if flag in _OLD_FLAGS:
            print(f"note: {flag} is now called {_OLD_FLAGS[flag]}", file=sys.stderr)
            word = f"{_OLD_FLAGS[flag]}{equals}{value}"
        words.append(word)
    return words


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
        close_matches = difflib.get_close_matches(argv[0], COMMANDS, 2)
        hint = f"did you mean {' or '.join(close_matches)}?" if close_matches else f"it is one of {', '.join(COMMANDS)}"
        raise UserError(f"unknown command {argv[0]!r}: {hint}")


def _check_flags(argv: list[str]) -> None:
    """Raise :class:`UserError` for an unknown option that is a setting or has another name here."""
    if argv[0] not in ("train", "sweep", "tune"):
        return
    known = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(COMMANDS[argv[0]])} | {"--help"}
    flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
    unknown = [flag for flag in flags if flag.replace("_", "-") not in known]
    if not unknown:
        return
    from thespis.methods.registry import REGISTRY, load_method
    from thespis.runs.config import setting_paths
    from thespis.runs.foreign_names import translate

    methods = REGISTRY.names()
    named = next((word for word in argv[1:] if word in methods), None)
    paths = list(setting_paths(load_method(named)())) if named else []
    name = unknown[0].removeprefix("--").replace("-", "_")
    ours = next((path for path in paths if path == name or path.endswith(f".{name}")), "") or translate(name, paths)
    if ours:
        meant = ours if ours.startswith("--") else f"--set {ours}=..."
        raise UserError(f"{argv[0]} has no option {unknown[0]}: did you mean {meant}?")


def _show_method_help(argv: list[str]) -> int:
    """Print the settings of SAC after the help of ``thespis train sac --help`` (and sweep)."""
    if argv[0] not in ("train", "sweep", "tune") or argv[1].startswith("-"):
        return 0  # no method is named
    with _silence_libraries():
        return _run_command(ListCommand("methods", argv[1]), CommandOutput(), show_traceback=False)


def _run_command(command: Command, out: CommandOutput, show_traceback: bool) -> int:
    try:
        with trusting(_trusted_modules(command)):
            return command.run(out)
    except UserError as error:
        if show_traceback:
            traceback.print_exc()
        _print_user_frame(error)
        print_stderr(f"{error}{_resume_hint(out)}")
        return 2
    except KeyboardInterrupt:
        print_stderr(f"interrupted{_resume_hint(out)}")
        return 130
    except BrokenPipeError:
        return _handle_broken_pipe()
    except Exception as error:
        if show_traceback:
            traceback.print_exc()
        if _print_user_frame(error):
            hint = "" if show_traceback else f" ({TRACEBACK_FLAG} shows everything)"
            print_stderr(f"{describe_error(error)}{hint}{_resume_hint(out)}")
            return 2
        if not show_traceback:
            traceback.print_exc()
        print_stderr(f"unexpected error: please report the lines above{_resume_hint(out)}")
        return 1


def _print_user_frame(error: Exception) -> bool:
    """Print where in the user's own file an error was raised. Returns whether it was."""
    text = user_frame_text(error)
    if text:
        print(text, file=sys.stderr)
    return bool(text)


def _trusted_modules(command: Command) -> list[str]:
    """Modules that the user has named: by ``--trust``, or as the module of ``--env`` or of a part."""
    env: Any = getattr(command, "env", None)
    modules: list[str] = [*getattr(command, "trust", ())]
    module = env_module(env) if isinstance(env, str) else None
    modules += [] if module is None else [module]
    parts = (getattr(command, name, None) for name in ("method", "feedback", "curriculum"))
    named = [part.partition(":")[0] for part in parts if isinstance(part, str) and ":" in part]
    return modules + [name for name in named if name != "frozen"]  # frozen:RUN is no module


def _handle_broken_pipe() -> int:
    """Redirect stdout to the null device after its reader has closed it, so that Python prints no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _resume_hint(out: CommandOutput) -> str:
    return f"; continue with: thespis resume {out.run_directory}{out.trust_flags}" if out.run_directory else ""


@contextlib.contextmanager
def _silence_libraries() -> Iterator[None]:
    """Context that silences log messages and warnings of JAX; the commands print the device themselves."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("jax", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="jax")
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
        for category in (RenamedWarning, DownloadWarning, DamagedCheckpointWarning):
            warnings.filterwarnings("always", category=category)
        original_showwarning = warnings.showwarning

        def show_in_one_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, RenamedWarning | DownloadWarning):
                print(f"note: {message}", file=sys.stderr)
            elif issubclass(category, DamagedCheckpointWarning):
                print_stderr(f"warning: {message}")
            else:
                original_showwarning(message, category, *where, **more)

        warnings.showwarning = show_in_one_line
        yield

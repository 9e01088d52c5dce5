"""Command ``thespis tune``: search for good settings of a method in an environment."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import Count, JsonFlag, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.cli.train_args import TrainArgs, flatten_option
from thespis.cli.train_session import EXIT_INTERRUPTED
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.runs.events import Event
    from thespis.sweeps.trials import TrialResult
    from thespis.sweeps.tune import TuneResult

NUM_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class TuneCommand(TrainArgs):
    """Try settings of a method, chosen by Optuna from the results so far, and write the best ones as a preset.

    thespis tune ppo --env CartPole-v1 --steps 20000 --seeds 3 --trials 30 --out runs/study

    Finished trials are kept, so the same command with the same --out continues after an interruption.
    """

    seeds: Annotated[str, tyro.conf.arg(metavar="K|A,B,..")] = "3"
    """Number of training seeds of each trial, or a list of seeds (0,3,5). They train in parallel."""
    trials: Count = 20
    """Number of settings to try, with those of earlier calls."""
    tune: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME[=LOW..HIGH] ..")
    ] = ()
    """Settings to tune, with an interval or without; by default the usual ones (docs/tune.md)."""
    jobs: Annotated[Count | None, optional_arg("N")] = None
    """Number of trials at the same time; by default 1, or one for each CPU of the cluster."""
    cluster: Annotated[str | None, optional_arg("HOST:PORT")] = None
    """The Ray cluster to run trials in, or auto for the one of this machine; by default processes of this machine."""
    out: Annotated[str | None, optional_arg("DIR")] = None
    """The directory of the study; by default a new one under runs/."""
    json: JsonFlag = False
    quiet: bool = False
    """No progress: only the result."""

    def run(self, out: CommandOutput) -> int:
        """Run the study and print its best trials."""
        from thespis.sweeps.tune import tune

        arguments = self.train_kwargs()
        if arguments["env"] is None:
            raise UserError("a study needs an environment: --env NAME (thespis list envs)")
        result = tune(
            **arguments,
            trials=self.trials,
            names=flatten_option(self.tune),
            jobs=self.jobs,
            cluster=self.cluster,
            out=self.out,
            callbacks=[] if self.quiet else [_Listener(out, self.trials)],
        )
        _print_result(out, self.method, result)
        out.write_result(result.to_json())
        if result.reason == "interrupted":
            print_stderr("interrupted: finished trials are kept; run the same command with this --out to continue")
            return EXIT_INTERRUPTED
        return 0


class _Listener:
    """Callback that prints a line for each trial."""

    def __init__(self, out: CommandOutput, trials: int):
        self._out, self._trials = out, trials

    def __call__(self, event: Event) -> None:
        """Print one event of the study as a line."""
        match event.kind:
            case "start":
                finished = f", {event.data['finished']} of them already finished" if event.data["finished"] else ""
                self._out.print(f"{event.data['trials']} trials in {event.data['run']}{finished}")
            case "done":
                trial: TrialResult = event.data["trial"]
                self._out.print(f"trial {trial.number}: {_score(trial)} {trial.state}; {_settings(trial)}")


def _print_result(out: CommandOutput, method: str, result: TuneResult) -> None:
    ranked = sorted(
        result.trials, key=lambda trial: (trial.state != "complete", trial.score is None, -(trial.score or 0))
    )
    table = Table(title=f"Greedy return on {result.env}", title_justify="left", title_style="bold")
    for header in ("trial", "IQM", "state", "settings"):
        table.add_column(header, justify="right" if header in ("trial", "IQM") else "left", overflow="fold")
    for trial in ranked[:NUM_SHOWN]:
        table.add_row(str(trial.number), _score(trial), trial.state, _settings(trial))
    out.print(table)
    out.print(Text(f"tuned: {', '.join(map(str, result.space))}"))
    if result.preset is not None:
        out.print(Text(f"use the best: thespis train {method} --env {result.env} --preset {result.preset}"))


def _score(trial: TrialResult) -> str:
    from thespis.evaluation import formatting

    return "–" if trial.score is None else formatting.format_number(trial.score)


def _settings(trial: TrialResult) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in trial.settings.items())

"""Command ``thespis doctor``: checks of the installation and of an environment."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import Annotated

import tyro

from thespis.cli.options import Count, JsonFlag
from thespis.cli.output import CommandOutput
from thespis.cli.train_args import named_env

_STATUS_LABELS = {True: "[green]ok    [/]", False: "[bold red]FAILED[/]", None: "[yellow]note  [/]"}


@dataclasses.dataclass(frozen=True)
class DoctorCommand:
    """Check your environment, if you name it, and this installation on probe environments with known solutions."""

    env: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="ENV")] = None
    """An environment to check as well: a name, or my_module:MyEnv."""
    env_args: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")
    ] = ()
    """Keyword arguments of the environment, as in training."""
    seconds: Count = 60
    """Time limit in seconds, approximately."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Run the checks and print results; returns 1 if a check failed."""
        from rich.markup import escape

        from thespis.cli.doctor import doctor
        from thespis.evaluation import formatting
        from thespis.runs.system_info import describe_device

        out.print(f"{describe_device()}\nchecking, at most about {self.seconds} seconds")
        env = named_env(self.env, self.env_args)
        checks = doctor(env, seconds=self.seconds)
        skipped = [check for check in checks if check.skipped]
        for check in checks:
            if check.skipped:
                continue
            out.print(
                f"{_STATUS_LABELS[check.passed]}  {escape(check.name)}: {escape(check.message)} "
                f"[dim]({check.seconds:.1f} s)[/]"
            )
        failed = [check.name for check in checks if check.passed is False]
        passed = sum(check.passed is True for check in checks)
        out.print()
        if failed:
            out.print(f"[bold red]{len(failed)} of {len(checks)} checks failed; the first one: {escape(failed[0])}[/]")
        else:
            out.print(f"[bold green]nothing failed[/]: {passed} of {len(checks)} checks passed")
        if skipped:
            enough = 60 * math.ceil(1.5 * self.seconds * len(checks) / max(len(checks) - len(skipped), 1) / 60)
            command = " ".join(["thespis doctor", *([shlex.quote(env)] if env else []), f"--seconds {enough}"])
            count = formatting.format_count(len(skipped), "check")
            out.print(f"{count} skipped, as the time was over; about enough for all: {command}", markup=False)
        check_dicts = [dataclasses.asdict(check) for check in checks]
        out.write_result({"failed": failed, "first_failing": failed[0] if failed else None, "checks": check_dicts})
        return 1 if failed else 0

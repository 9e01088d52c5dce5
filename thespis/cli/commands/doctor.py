"""``thespis doctor``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from thespis.cli.options import Count, JsonFlag
from thespis.cli.output import Output

_MARKS = {True: "[green]ok    [/]", False: "[bold red]FAILED[/]", None: "[yellow]note  [/]"}


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check this installation on worlds with known answers, and your environment if you name it."""

    env: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="ENV")] = None
    """An environment to check as well: a name, or my_module:MyEnv."""
    seconds: Count = 60
    """Time it may take."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Check, print, and return 1 if anything failed."""
        from rich.markup import escape

        from thespis.cli.doctor import doctor
        from thespis.runs.environment_info import device_line

        out.say(f"{device_line()}\nchecking, which takes about {self.seconds} seconds at most")
        checks = doctor(self.env, seconds=self.seconds)
        for check in checks:
            out.say(
                f"{_MARKS[check.passed]}  {escape(check.name)}: {escape(check.message)} [dim]({check.seconds:.1f} s)[/]"
            )
        failed = [check.name for check in checks if check.passed is False]
        passed = sum(check.passed is True for check in checks)
        out.say()
        if failed:
            out.say(f"[bold red]{len(failed)} of {len(checks)} checks failed; the first one: {escape(failed[0])}[/]")
        else:
            out.say(f"[bold green]nothing failed[/]: {passed} of {len(checks)} checks passed")
        listed = [dataclasses.asdict(check) for check in checks]
        out.result({"failed": failed, "first_failing": failed[0] if failed else None, "checks": listed})
        return 1 if failed else 0

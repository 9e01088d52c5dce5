"""Command ``thespis plan``: pairs of seeds and minutes that a verdict needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Plan a trial: how many pairs of seeds and minutes show a difference of a given size.

    The variance is that of the controls of the paper's bench: two arms without a difference, on equal seeds.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ID|BENCH")]
    """A paper (thespis papers) or a bench (thespis bench list)."""
    effect: Annotated[float, tyro.conf.arg(metavar="D")] = 0.5
    """The difference, in standard deviations of seeds."""
    power: Annotated[float, tyro.conf.arg(metavar="P")] = 0.8
    """The probability with which it is shown."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """The directory of the evidence."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Print pairs, minutes and the correlation of equal seeds."""
        from thespis.core.errors import UserError
        from thespis.evaluation.formatting import format_number
        from thespis.evidence.bench import read_admission
        from thespis.evidence.benches.registry import bench_names, load_bench
        from thespis.evidence.paper import PairedTrial
        from thespis.evidence.planner import plan_trial
        from thespis.papers import registry

        if self.effect <= 0 or not 0 < self.power < 1:
            raise UserError("--effect must be above 0, and --power between 0 and 1")
        trial = None
        if self.name in bench_names():
            bench = load_bench(self.name)
        else:
            trial = registry.load_paper(self.name).miniature
            if not isinstance(trial, PairedTrial) or not trial.bench:
                raise UserError(f"the trial of {self.name} stands on no bench yet: name a bench (thespis bench list)")
            bench = load_bench(trial.bench_name)
        plan = plan_trial(bench, read_admission(Path(self.evidence), bench.name), trial, self.effect, self.power)
        looks = (trial.looks if trial else bench.looks)[-1].num_pairs
        if plan.pairs is None or plan.minutes is None:
            out.print("more than 10,000 pairs: no trial of this kind can show so small a difference")
        else:
            arms = f"{len(trial.arms)} arms" if trial else "two arms"
            out.print(
                f"{plan.pairs} pairs show a difference of {self.effect:g} sd with probability {self.power:g}; the last "
                f"look is at {looks}"
            )
            out.print(
                f"{format_number(plan.minutes, 2)} minutes for {arms} on {bench.label}, where the controls took "
                f"{plan.minutes_per_run:.2f} minutes a run; arms of earlier trials are not trained again"
            )
        out.print(f"correlation of equal seeds: {plan.correlation:.2f}")
        out.write_result(dataclasses.asdict(plan) | {"bench": bench.label, "last_look": looks})
        return 0

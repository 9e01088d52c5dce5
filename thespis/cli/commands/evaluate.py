"""Command ``thespis evaluate``: evaluation of a trained run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import tyro

from thespis.cli.options import CheckpointOption, Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.evaluation import formatting

if TYPE_CHECKING:
    from thespis.evaluation.run import Run


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Evaluate a trained run, with greedy and with sampled actions, or on held-out data. The run is not changed.

    The file of a cast is evaluated as it is, also against models behind an endpoint:

    thespis evaluate critic.toml --endpoint http://127.0.0.1:8000/v1
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|CAST.toml")]
    """The run's directory, or the file of a cast (docs/casts.md)."""
    episodes: Count = 100
    """Episodes per training seed, greedy and sampled each."""
    eval_data: Annotated[str | None, optional_arg("DIR")] = None
    """Held-out data, named like --data of train: loss, perplexity or accuracy of a run from data. By default that of
    the run, if it has no environment."""
    env: Annotated[str | None, optional_arg("ENV")] = None
    """Another environment with the same spaces, such as a test maze (thespis list envs); by default that of the run."""
    scripted: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="SEAT")] = ()
    """A seat of a conversation that the environment's demonstrator plays in the report card; can be repeated."""
    endpoint: Annotated[str | None, optional_arg("URL")] = None
    """The address, up to /v1, for seats of a cast's file that are played by an endpoint and name none."""
    cache: Annotated[str | None, optional_arg("DIR")] = None
    """A directory where responses of endpoints are kept, so that equal requests are not made again."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")] = ()
    """Settings of a cast's seats, such as critic.temperature=0.5."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Evaluate and print the results."""
        from thespis import api
        from thespis.cli.progress import final_table
        from thespis.cli.tables import report_card_tables
        from thespis.core.errors import UserError
        from thespis.runs.checkpoint import hash_tree
        from thespis.training.cast_file import is_cast_file

        if self.episodes < 1:
            raise UserError("an evaluation needs at least one episode: --episodes 10")
        if is_cast_file(self.directory):
            return self._evaluate_cast(out)
        if self.endpoint or self.cache or self.set:
            raise UserError("--endpoint, --cache and --set are for the file of a cast: thespis evaluate critic.toml")
        run = api.load(self.directory, self.env, checkpoint=self.checkpoint)
        held_out = self.eval_data or (run.config["env"] is None and run.config["options"].get("eval_data"))
        if held_out:
            return self._evaluate_held_out(out, run, held_out)
        state_hash = hash_tree(run.states)
        result = run.evaluate(self.episodes)
        assert result["state_hash"] == state_hash, "playing changed the state"
        out.print(final_table(result))
        card = run.report_card(self.episodes, scripted=self.scripted) if self.scripted or run.has_report_card else None
        if card is not None:
            for part in report_card_tables(card):
                out.print(part)
        place = f" in {self.env}" if self.env else ""
        out.print(f"at step {result['step']:,} of {run.path}{place}, state {state_hash[:16]}")
        document = {key: result[key] for key in ("run", "step", "greedy", "sampled", "state_hash")}
        document |= {"env": self.env or run.config["env"], "warnings": run.warnings}
        out.write_result(document | ({} if card is None else {"report_card": card.to_json()}))
        return 0

    def _evaluate_cast(self, out: CommandOutput) -> int:
        """Evaluate the file of a cast, and say what its endpoints have cost."""
        from thespis import api
        from thespis.cli.tables import report_card_tables, usage_line

        settings = [text for group in self.set for text in group]
        evaluation = api.evaluate_cast(
            self.directory,
            self.env,
            settings=settings,
            episodes=self.episodes,
            scripted=self.scripted,
            endpoint=self.endpoint,
            cache=self.cache,
        )
        for part in report_card_tables(evaluation.card):
            out.print(part)
        out.print(f"{self.episodes:,} sampled conversations of {evaluation.env}", markup=False)
        for seat, usage in evaluation.usage.items():
            out.print(f"{seat}: {usage_line(usage)}", markup=False)
        usages = {seat: dataclasses.asdict(usage) for seat, usage in evaluation.usage.items()}
        out.write_result({"cast": self.directory, "env": evaluation.env, "usage": usages} | evaluation.card.to_json())
        return 0

    def _evaluate_held_out(self, out: CommandOutput, run: Run, data: str) -> int:
        from thespis.cli.tables import held_out_table

        metrics = run.evaluate_held_out(data)
        out.print(held_out_table(metrics, data))
        out.print(f"at {formatting.step_unit(run.config)} {run.step:,} of {run.path}")
        out.write_result({"run": str(run.path), "step": run.step, "eval_data": data, "held_out": metrics})
        return 0

"""Command ``thespis evaluate``: evaluation of a trained run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from thespis.cli.options import CheckpointOption, Count, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.evaluation import formatting

if TYPE_CHECKING:
    from thespis.evaluation.run import Run


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Evaluate a trained run, with greedy and with sampled actions, or on held-out data. The run is not changed."""

    directory: RunPath
    """The run's directory."""
    episodes: Count = 100
    """Episodes per training seed, greedy and sampled each."""
    eval_data: Annotated[str | None, optional_arg("DIR")] = None
    """Held-out data, named like --data of train: loss, perplexity or accuracy of a run from data. By default that of
    the run, if it has no environment."""
    env: Annotated[str | None, optional_arg("ENV")] = None
    """Another environment with the same spaces, such as a test maze (thespis list envs); by default that of the run."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Evaluate and print the results."""
        from thespis import api
        from thespis.cli.progress import final_table
        from thespis.core.errors import UserError
        from thespis.runs.checkpoint import hash_tree

        if self.episodes < 1:
            raise UserError("an evaluation needs at least one episode: --episodes 10")
        run = api.load(self.directory, self.env, checkpoint=self.checkpoint)
        held_out = self.eval_data or (run.config["env"] is None and run.config["options"].get("eval_data"))
        if held_out:
            return self._evaluate_held_out(out, run, held_out)
        state_hash = hash_tree(run.states)
        result = run.evaluate(self.episodes)
        assert result["state_hash"] == state_hash, "playing changed the state"
        out.print(final_table(result))
        place = f" in {self.env}" if self.env else ""
        out.print(f"at step {result['step']:,} of {run.path}{place}, state {state_hash[:16]}")
        document = {key: result[key] for key in ("run", "step", "greedy", "sampled", "state_hash")}
        out.write_result(document | {"env": self.env or run.config["env"], "warnings": run.warnings})
        return 0

    def _evaluate_held_out(self, out: CommandOutput, run: Run, data: str) -> int:
        from thespis.cli.tables import held_out_table

        metrics = run.evaluate_held_out(data)
        out.print(held_out_table(metrics, data))
        out.print(f"at {formatting.step_unit(run.config)} {run.step:,} of {run.path}")
        out.write_result({"run": str(run.path), "step": run.step, "eval_data": data, "held_out": metrics})
        return 0

"""Command ``thespis evaluate``: evaluation of a trained run."""

from __future__ import annotations

import dataclasses

from thespis.cli.options import CheckpointOption, Count, JsonFlag, RunPath, TrustOption
from thespis.cli.output import CommandOutput


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Evaluate a trained run, with greedy and with sampled actions. The run is not changed."""

    directory: RunPath
    """The run's directory."""
    episodes: Count = 100
    """Episodes per training seed, greedy and sampled each."""
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
        run = api.load(self.directory, checkpoint=self.checkpoint)
        state_hash = hash_tree(run.states)
        result = run.evaluate(self.episodes)
        assert result["state_hash"] == state_hash, "playing changed the state"
        out.print(final_table(result))
        out.print(f"at step {result['step']:,} of {run.path}, state {state_hash[:16]}")
        document = {key: result[key] for key in ("run", "step", "greedy", "sampled", "state_hash")}
        out.write_result(document | {"warnings": run.warnings})
        return 0

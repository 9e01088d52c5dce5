"""``thespis evaluate``."""

from __future__ import annotations

import dataclasses

from thespis.cli.options import Count, JsonFlag, RunPath
from thespis.cli.output import Output


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play a trained run, greedily and by sampling. Changes nothing of the run."""

    directory: RunPath
    """The run's directory."""
    episodes: Count = 100
    """Episodes per training seed, greedy and sampled each."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Play and print."""
        from thespis import api
        from thespis.cli.live import final_table
        from thespis.core.errors import UserError
        from thespis.runs.checkpoint import hash_tree

        if self.episodes < 1:
            raise UserError("an evaluation needs at least one episode: --episodes 10")
        run = api.load(self.directory)
        before = hash_tree(run.states)
        result = run.evaluate(self.episodes)
        assert result["state_hash"] == before, "playing changed the state"
        out.say(final_table(result))
        out.say(f"at step {result['step']:,} of {run.path}, state {before[:16]}")
        out.result({key: result[key] for key in ("run", "step", "greedy", "sampled", "state_hash")})
        return 0

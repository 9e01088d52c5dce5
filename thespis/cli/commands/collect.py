"""``thespis collect``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, RunPath, optional
from thespis.cli.output import Output
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.core.records import Transition
    from thespis.trained import Run

SIDE_BY_SIDE = 64  # episodes played at once, about


@dataclasses.dataclass(frozen=True)
class Collect:
    """Play a trained run and write its experience as a dataset that training can start from.

    Whole episodes, of all training seeds in turn: at least as many steps, or exactly as many episodes, as asked for.
    In place of a run a text world may be named, whose demonstrator talks then.
    """

    directory: RunPath
    """The run's directory; or a text world, such as text:maze."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The dataset's directory."""
    steps: Annotated[Count | None, optional("N")] = None
    """How many steps, at least."""
    episodes: Annotated[Count | None, optional("N")] = None
    """How many episodes."""
    format: Literal["npz", "parquet"] = "npz"
    """The kind of file."""
    greedy: bool = False
    """Take the best action instead of sampling one."""
    sampled: bool = False
    """Sample actions; this is the default."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Play and write."""
        if (self.steps is None) == (self.episodes is None) or (self.steps or self.episodes or 0) < 1:
            raise UserError("say how much to collect: --steps N or --episodes N")
        if self.greedy and self.sampled:
            raise UserError("--greedy and --sampled exclude each other")
        if not Path(self.directory).exists() and ":" in self.directory:
            return self._demonstrated(out)
        import jax
        import numpy as np

        from thespis import api
        from thespis.core.spaces import Text
        from thespis.data.datasets import to_columns, write_dataset

        run = api.load(self.directory)
        played = self._play(run)
        steps: Any = jax.tree.map(lambda *x: np.concatenate(x), *played)
        mode = "greedy" if self.greedy else "sampled"
        about = {
            "env": run.spec.name,
            "observation": run.spec.observation,
            "action": run.spec.action,
            "legal": run.spec.legal,
            "time_limit": run.spec.time_limit,
            "run": str(run.path),
            "method": run.config["method_name"],
            "mode": mode,
            "step": run.step,
            "seeds": run.config["seeds"],
        }
        write_dataset(self.out, to_columns(run.spec, steps), about, kind=self.format)
        total, mean = len(steps.reward), float(np.mean([np.sum(episode.reward) for episode in played]))
        out.say(f"{total:,} steps in {len(played)} episodes of {mode} play, mean return {mean:.6g}: {self.out}")
        method = "sft" if isinstance(run.spec.action, Text) else "bc"
        out.say(f"learn from it: thespis train {method} --data {self.out} --env {run.config['env']}")
        out.result({"out": self.out, "steps": total, "episodes": len(played), "mode": mode, "mean_return": mean})
        return 0

    def _demonstrated(self, out: Output) -> int:
        """Write what a world's demonstrator says."""
        from thespis.data.datasets import to_columns, write_dataset
        from thespis.sources import shown_in

        if self.episodes is None or self.greedy or self.sampled:
            raise UserError("a demonstrator talks in its own way, a conversation at a time: --episodes N alone")
        shown = shown_in(self.directory, self.episodes)
        spec, steps = shown.spec, shown.steps
        about = shown.about | {"observation": spec.observation, "action": spec.action, "time_limit": spec.time_limit}
        write_dataset(self.out, to_columns(spec, steps), about, kind=self.format)
        total, mean = len(steps.reward), float(steps.reward.sum()) / self.episodes
        out.say(f"{total:,} steps in {self.episodes} demonstrated conversations, mean return {mean:.6g}: {self.out}")
        out.say(f"learn from it: thespis train sft --data {self.out} --env {self.directory}")
        out.result({"out": self.out, "steps": total, "episodes": self.episodes, "mean_return": mean})
        return 0

    def _play(self, run: Run) -> list[Transition]:
        """Whole episodes until there is enough."""
        episodes: list[Transition] = []
        seeds, total, batch = len(run.config["seeds"]), 0, 0
        while total < (self.steps or self.episodes or 0):
            missing = (self.steps or self.episodes or 0) - total
            length = total / len(episodes) if self.steps and episodes else 1
            first = self.steps is not None and not episodes  # how long episodes are is not known yet
            count = 1 if first else min(-(-missing // max(int(length), 1)), SIDE_BY_SIDE)
            each = -(-count // seeds)
            kept = run.play(each, greedy=self.greedy, keep=each, stream=f"collect/{batch}").kept
            for episode in (kept[s][e] for e in range(each) for s in range(seeds)):
                if total < (self.steps or self.episodes or 0):
                    episodes.append(episode)
                    total += len(episode.reward) if self.steps else 1
            batch += 1
        return episodes

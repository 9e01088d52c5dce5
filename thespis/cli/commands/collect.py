"""Command ``thespis collect``: datasets from trained runs and demonstrators."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from thespis.cli.options import CheckpointOption, Count, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.core.records import Transition
    from thespis.evaluation.run import Run

PARALLEL_EPISODES = 64  # approximate number of episodes played at once


@dataclasses.dataclass(frozen=True)
class CollectCommand:
    """Play a trained run and write its experience as a dataset for training (--data).

    Collects whole episodes, of all training seeds in turn: at least the given number of steps, or exactly the given
    number of episodes. Instead of a run, a text environment can be given, whose demonstrator then acts.
    """

    directory: RunPath
    """The run's directory; or a text environment, such as text:maze."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The dataset's directory."""
    steps: Annotated[Count | None, optional_arg("N")] = None
    """Minimum number of steps."""
    episodes: Annotated[Count | None, optional_arg("N")] = None
    """Number of episodes."""
    format: Literal["npz", "parquet"] = "npz"
    """The file format."""
    greedy: bool = False
    """Take the best action instead of sampling one."""
    sampled: bool = False
    """Sample actions; this is the default."""
    seed: Annotated[int | None, optional_arg("S")] = None
    """The training seed that plays; by default all, in turn."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Play and write the dataset."""
        if (self.steps is None) == (self.episodes is None) or (self.steps or self.episodes or 0) < 1:
            raise UserError("the amount of data is missing: give --steps N or --episodes N")
        if self.greedy and self.sampled:
            raise UserError("--greedy and --sampled exclude each other")
        if not Path(self.directory).exists() and ":" in self.directory:
            return self._collect_demonstrations(out)
        import jax
        import numpy as np

        from thespis import api
        from thespis.core.spaces import Text
        from thespis.data.datasets import transitions_to_columns, write_dataset

        run = api.load(self.directory, checkpoint=self.checkpoint)
        episodes = self._play_episodes(run)
        steps: Any = jax.tree.map(lambda *x: np.concatenate(x), *episodes)
        mode = "greedy" if self.greedy else "sampled"
        metadata = {
            "env": run.spec.name,
            "observation": run.spec.observation_space,
            "action": run.spec.action_space,
            "legal": run.spec.has_action_mask,
            "time_limit": run.spec.time_limit,
            "run": str(run.path),
            "method": run.config["method_name"],
            "mode": mode,
            "step": run.step,
            "seeds": run.config["seeds"] if self.seed is None else [self.seed],
        }
        write_dataset(self.out, transitions_to_columns(run.spec, steps), metadata, file_format=self.format)
        num_steps, mean = len(steps.reward), float(np.mean([np.sum(episode.reward) for episode in episodes]))
        out.print(f"{num_steps:,} steps in {len(episodes)} episodes of {mode} play, mean return {mean:.6g}: {self.out}")
        method = "sft" if isinstance(run.spec.action_space, Text) else "bc"
        out.print(f"train on it: thespis train {method} --data {self.out} --env {run.config['env']}")
        out.write_result(
            {"out": self.out, "steps": num_steps, "episodes": len(episodes), "mode": mode, "mean_return": mean}
            | {"warnings": run.warnings}
        )
        return 0

    def _collect_demonstrations(self, out: CommandOutput) -> int:
        """Write episodes of an environment's demonstrator."""
        from thespis.data.datasets import transitions_to_columns, write_dataset
        from thespis.training.data_sources import demonstration_dataset

        if self.episodes is None or self.greedy or self.sampled or self.seed is not None:
            raise UserError("a demonstrator only takes a number of episodes: give --episodes N alone")
        dataset = demonstration_dataset(self.directory, self.episodes)
        spec, steps = dataset.spec, dataset.steps
        metadata = dataset.metadata | {
            "observation": spec.observation_space,
            "action": spec.action_space,
            "time_limit": spec.time_limit,
        }
        write_dataset(self.out, transitions_to_columns(spec, steps), metadata, file_format=self.format)
        num_steps, mean = len(steps.reward), float(steps.reward.sum()) / self.episodes
        out.print(
            f"{num_steps:,} steps in {self.episodes} demonstrated conversations, mean return {mean:.6g}: {self.out}"
        )
        out.print(f"train on it: thespis train sft --data {self.out} --env {self.directory}")
        out.write_result({"out": self.out, "steps": num_steps, "episodes": self.episodes, "mean_return": mean})
        return 0

    def _play_episodes(self, run: Run) -> list[Transition]:
        """Play whole episodes until there are enough."""
        episodes: list[Transition] = []
        seeds: list[int] = run.config["seeds"] if self.seed is None else [self.seed]
        total = batch = 0
        while total < (self.steps or self.episodes or 0):
            remaining = (self.steps or self.episodes or 0) - total
            length = total / len(episodes) if self.steps and episodes else 1
            is_first = self.steps is not None and not episodes  # episode lengths are not known yet
            count = 1 if is_first else min(-(-remaining // max(int(length), 1)), PARALLEL_EPISODES)
            per_seed = -(-count // len(seeds))
            options: dict[str, Any] = {"greedy": self.greedy, "num_kept": per_seed, "stream": f"collect/{batch}"}
            played = run.play(per_seed, seeds=seeds, **options).episodes
            for episode in (played[s][e] for e in range(per_seed) for s in range(len(seeds))):
                if total < (self.steps or self.episodes or 0):
                    episodes.append(episode)
                    total += len(episode.reward) if self.steps else 1
            batch += 1
        return episodes

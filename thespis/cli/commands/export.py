"""Command ``thespis export``: checkpoints from language model runs."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from thespis.cli.options import CheckpointOption, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput


@dataclasses.dataclass(frozen=True)
class ExportCommand:
    """Write a run's language model as a checkpoint: for --model, for ``serve``, for transformers and vLLM."""

    directory: RunPath
    """The run's directory."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The checkpoint's directory: new, or empty."""
    seed: Annotated[int | None, optional_arg("N")] = None
    """The training seed; by default the first."""
    adapters: bool = False
    """Write the learned LoRA adapters alone (``trainable=LoRA``), in PEFT's format."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Load the run and write the checkpoint."""
        from thespis import api
        from thespis.serving.model_io import export_checkpoint

        run = api.load(self.directory, checkpoint=self.checkpoint)
        export_checkpoint(run, self.out, self.seed, adapters_only=self.adapters)
        out.print(f"model of {run.path} at step {run.step:,}: {self.out}")
        if (env := run.config["env"]) and not self.adapters:
            out.print(f"continue training: thespis train grpo --env {env} --model {self.out}")
        out.write_result({"out": self.out, "step": run.step, "warnings": run.warnings})
        return 0

"""``thespis export``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag, RunPath, optional
from thespis.cli.output import Output


@dataclasses.dataclass(frozen=True)
class Export:
    """Write what a run has learnt to say as a checkpoint: for --model, for ``serve``, for transformers and vLLM."""

    directory: RunPath
    """The run's directory."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The checkpoint's directory: new, or empty."""
    seed: Annotated[int | None, optional("N")] = None
    """The training seed; the first if none is named."""
    adapters: bool = False
    """Write the adapters alone that it has learnt (``tuned=Adapters``), as PEFT reads them."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Load and write."""
        from thespis import api
        from thespis.serving.model import exported

        run = api.load(self.directory)
        exported(run, self.out, self.seed, adapters=self.adapters)
        out.say(f"what {run.path} says at step {run.step:,}: {self.out}")
        if (env := run.config["env"]) and not self.adapters:
            out.say(f"go on from it: thespis train grpo --env {env} --model {self.out}")
        out.result({"out": self.out, "step": run.step})
        return 0

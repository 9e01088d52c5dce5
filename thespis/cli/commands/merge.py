"""Command ``thespis merge``: the weighted sum of language models of one architecture."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from thespis.cli.options import JsonFlag, optional_arg
from thespis.cli.output import CommandOutput


@dataclasses.dataclass(frozen=True)
class MergeCommand:
    """Merge language models of one architecture: the weighted sum of their parameters (a model soup).

    The result is a checkpoint: an initial model (--model), or the reference of a method (reference_model).
    """

    directories: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL ...")]
    """Checkpoints or runs (of a run, the first seed); the tokenizer is that of the first."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The directory to write: new, or empty."""
    weights: Annotated[tuple[float, ...] | None, optional_arg("X ...")] = None
    """A weight for each model; by default all are equal and sum to 1. Any others are possible: 1 1 -1 adds what two
    models have learned since a third."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Merge and write the checkpoint."""
        from thespis.serving.model_io import merge_checkpoints

        count = len(self.directories)
        weights = self.weights or (1.0 / max(count, 1),) * count
        merge_checkpoints(self.directories, weights, self.out)
        out.print(f"merged {count} models: {self.out}")
        out.write_result({"out": self.out, "weights": list(weights)})
        return 0

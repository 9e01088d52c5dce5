"""Command ``thespis export``: programs of control policies, and checkpoints of language models."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from thespis.cli.options import CheckpointOption, Count, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.evaluation.run import Run


@dataclasses.dataclass(frozen=True)
class ExportCommand:
    """Export a trained policy for use without Thespis.

    A control policy becomes a program (--format onnx, numpy or safetensors), which is compared with the original
    before the command ends: certificate.json. A language model becomes a checkpoint for --model, ``serve``,
    transformers and vLLM.
    """

    directory: RunPath
    """The run's directory."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The directory to write: new, or empty."""
    format: Literal["checkpoint", "onnx", "numpy", "safetensors"] = "checkpoint"
    """checkpoint: a language model. For control policies, onnx: a model for ONNX Runtime; numpy: a Python file that
    needs NumPy alone; safetensors: the same, with named weights as safetensors."""
    seed: Annotated[int | None, optional_arg("N")] = None
    """The training seed; by default the first."""
    seat: Annotated[str | None, optional_arg("NAME")] = None
    """The seat of a cast whose model it is."""
    batch_size: Count = 1
    """Number of observations for which an exported control policy acts in one call."""
    observations: Count = 1_000
    """Observations on which an exported control policy is compared with the original."""
    tolerance: Annotated[float, tyro.conf.arg(metavar="X")] = 1e-4
    """Largest difference of real-valued outputs, as a share of the largest output above 1."""
    adapters: bool = False
    """Write the learned LoRA adapters alone (``trainable=LoRA``), in PEFT's format."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Load the run and write the files; 1 if an exported policy differs from the original."""
        from thespis import api

        if self.observations < 1 or not self.tolerance >= 0:
            raise UserError("the comparison needs --observations 1 or more and a --tolerance of 0 or more")
        if self.batch_size < 1:
            raise UserError(f"--batch-size {self.batch_size}: it must be at least 1")
        if self.batch_size > 1 and self.format == "checkpoint":
            raise UserError("--batch-size is of exported control policies: add --format onnx, numpy or safetensors")
        if self.adapters and self.format != "checkpoint":
            raise UserError("--adapters are parts of language models: leave --format out")
        if self.seat and self.format != "checkpoint":
            raise UserError("--seat is of casts of language models: leave --format out")
        run = api.load(self.directory, checkpoint=self.checkpoint)
        return self._export_model(run, out) if self.format == "checkpoint" else self._export_policy(run, out)

    def _export_model(self, run: Run, out: CommandOutput) -> int:
        from thespis.serving.model_io import export_checkpoint

        export_checkpoint(run, self.out, self.seed, seat=self.seat, adapters_only=self.adapters)
        out.print(f"model of {run.path} at step {run.step:,}: {self.out}")
        if (env := run.config["env"]) and not self.adapters:
            out.print(f"continue training: thespis train grpo --env {env} --model {self.out}")
        out.write_result({"out": self.out, "step": run.step, "warnings": run.warnings})
        return 0

    def _export_policy(self, run: Run, out: CommandOutput) -> int:
        from thespis.deployment.certificate import describe_call
        from thespis.deployment.export import export_run

        assert self.format != "checkpoint"
        certificate = export_run(
            run,
            self.out,
            self.format,
            self.seed,
            batch_size=self.batch_size,
            count=self.observations,
            tolerance=self.tolerance,
        )
        out.print(f"policy of {run.path}, seed {certificate['seed']}, at step {run.step:,}: {self.out}")
        out.print(f"compared on {certificate['observations']:,} observations ({certificate['source']}):")
        for name, output in certificate["outputs"].items():
            out.print(f"  {name}: {_describe_output(output)}")
        latency = certificate["latency_ms"]
        times = f"median {latency['median']:.3g} ms, 99% {latency['p99']:.3g} ms"
        out.print(f"{describe_call(self.batch_size)} on one core: {times}")
        out.write_result({"out": self.out, "certificate": certificate, "warnings": run.warnings})
        if certificate["passed"]:
            return 0
        print_stderr(
            f"the exported policy differs from the original by more than --tolerance {self.tolerance:g}: do not use it "
            f"({self.out}/certificate.json)"
        )
        return 1


def _describe_output(output: dict[str, Any]) -> str:
    if "equal_share" in output:
        return f"{output['equal_share']:.2%} equal"
    return f"largest difference {output['max_abs_difference']:.2g}"

"""Trackers: TensorBoard and Weights & Biases, as callbacks of the event stream. Their libraries are optional."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from thespis.core.errors import UserError, missing_extra
from thespis.runs.events import Event
from thespis.runtime import disk

_NOT_METRICS = ("step", "seed")


class TensorBoard:
    """A callback that writes TensorBoard files: one TensorBoard run per training seed under ``directory``.

    Steps are environment steps per seed. When a run is resumed, points after the resumed step are
    superseded. Raises :class:`UserError` if tensorboardX is not installed.
    """

    def __init__(self, directory: str | Path):
        try:
            import tensorboardX
        except ImportError:
            raise missing_extra("tensorboardX", "track") from None
        self.directory = Path(directory)
        self._library = tensorboardX
        self._writers: dict[str, Any] = {}
        self._start = 0
        self._seeds: list[int] = []

    def __call__(self, event: Event) -> None:
        """Write one event of the run to the tracker."""
        match event.kind:
            case "start":
                self._start, self._seeds = event.step, list(event.data.get("config", {}).get("seeds", []))
                text = json.dumps(event.data.get("config", {}), indent=1)
                self._writer("run").add_text("config", f"```json\n{text}\n```", event.step)
            case "progress":
                self._writer("run").add_scalar("time/steps_per_second", event.data["steps_per_second"], event.step)
            case "warning":
                self._writer("run").add_text("warning", event.data["message"], event.step)
            case "done":
                self.close()
        for seed, name, value in _scalars(event, self._seeds):
            self._writer(f"seed_{seed}").add_scalar(name, value, event.step)

    def close(self) -> None:
        """Flush the buffers and close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, name: str) -> Any:
        if name not in self._writers:
            purge = self._start if self._start > 0 else None
            self._writers[name] = self._library.SummaryWriter(
                str(self.directory / name),
                purge_step=purge,
                filename_suffix=f".{self._start}",  # a file of the same second would be overwritten
            )
        return self._writers[name]


class WandB:
    """A callback that logs to Weights & Biases: every metric of every seed, and its mean over seeds.

    ``mode`` is ``online``, ``offline`` (written below the run's directory, to be uploaded later with
    ``wandb sync``) or ``disabled``. A resumed run continues its W&B run. Raises :class:`UserError` if wandb
    is not installed.
    """

    def __init__(self, project: str = "thespis", mode: Literal["online", "offline", "disabled"] = "online"):
        try:
            import wandb
        except ImportError:
            raise missing_extra("wandb", "track") from None
        self.project = project
        self.mode: Literal["online", "offline", "disabled"] = mode
        self._library = wandb
        self._run: Any = None
        self._seeds: list[int] = []

    def __call__(self, event: Event) -> None:
        """Log one event of the run to the tracker."""
        if event.kind == "start":
            self._start_run(event.data)
        if self._run is None:
            return
        if values := _by_seed_and_mean(event, self._seeds):
            self._run.log(values | {"step": event.step})
        match event.kind:
            case "progress":
                self._run.log({"time/steps_per_second": event.data["steps_per_second"], "step": event.step})
            case "warning":
                self._run.alert("Thespis", event.data["message"])
            case "done":
                self._run.summary["reason"] = event.data.get("reason", "finished")
                self.close()

    def close(self) -> None:
        """Upload what is buffered and end the W&B run. May be called twice."""
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _start_run(self, data: dict[str, Any]) -> None:
        self._seeds = list(data.get("config", {}).get("seeds", []))
        directory = Path(data["run"]).resolve()
        try:
            self._run = self._library.init(
                project=self.project,
                mode=self.mode,
                dir=str(directory),
                id=self._run_id(directory),
                name=directory.name,
                resume="allow" if self.mode == "online" else None,
                config=data.get("config", {}),
                settings=self._library.Settings(console="off"),  # its log would contain every redraw of the panel
            )
        except self._library.Error as error:  # not logged in, no network, no such project
            reason = " ".join(str(error).split())
            raise UserError(
                f"Weights & Biases does not start: {reason} (or WANDB_MODE=offline, and later `wandb sync`)"
            ) from error
        self._run.define_metric("*", step_metric="step")

    def _run_id(self, directory: Path) -> str:
        """The W&B run id, stored in the run's directory so that a resumed run continues it."""
        id_file = directory / "wandb" / "id.txt"
        with disk.as_user_error("the W&B id", directory):
            id_file.parent.mkdir(exist_ok=True)
            if not id_file.exists():
                id_file.write_text(secrets.token_hex(8))
            return id_file.read_text()


def _scalars(event: Event, seeds: list[int]) -> Iterator[tuple[int, str, float]]:
    """Seed, name and value of every measurement in an event; those by row come in the order of ``seeds``."""
    found: list[tuple[int, str, float | None]] = []
    if event.kind == "metrics":
        for row in event.data["rows"]:
            found += [(row["seed"], f"train/{name}", x) for name, x in row.items() if name not in _NOT_METRICS]
    by_row: dict[str, list[float | None]] = {}
    if event.kind == "held_out":
        by_row = {f"held_out/{name}": values for name, values in event.data["metrics"].items()}
    if event.kind == "evaluation":
        by_row = {
            f"evaluation/{mode}_return": [_finite_mean(returns) for returns in event.data.get(mode) or []]
            for mode in ("greedy", "sampled")
        }
    for name, values in by_row.items():
        found += [(seeds[i] if i < len(seeds) else i, name, value) for i, value in enumerate(values)]
    for seed, name, value in found:
        if value is not None and math.isfinite(value):
            yield seed, name, float(value)


def _finite_mean(values: list[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _by_seed_and_mean(event: Event, seeds: list[int]) -> dict[str, float]:
    values: dict[str, float] = {}
    by_name: dict[str, list[float]] = {}
    for seed, name, value in _scalars(event, seeds):
        values[f"{name}/seed_{seed}"] = value
        by_name.setdefault(name, []).append(value)
    return values | {name: sum(per_seed) / len(per_seed) for name, per_seed in by_name.items()}

"""How a run is run, beside what it trains."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run is run, beside what it trains. All of it is written into run.json."""

    evaluate_every: int = 0
    """Steps between evaluations while training; 0 for none."""
    episodes: int = 10
    """Episodes per seed and way of playing, in each evaluation."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints; results do not depend on it."""
    report_every: int = 0
    """Steps between rows of metrics; 0 for a hundredth of the run."""
    lag: int | None = None
    """Phases of learning by which the acting policy is behind in the host loop; None for the feed's own."""
    newest: bool = False
    """Act by the newest policy that is ready, at most ``lag`` phases old, instead of waiting for the one exactly so
    old: faster where speeds vary, but results depend on timing."""
    jitter: float = 0.0
    """Seconds, at most, by which each phase of acting and of learning is delayed at random in the host loop: shows what
    depends on timing."""
    learners: int = 1
    """Learners that act and learn side by side on one shared state without waiting for each other, each with its share
    of the environments; with more than one, results depend on timing."""
    devices: int = 1
    """Devices that share the seeds, or else each seed's environments, in the compiled loop."""
    workers: int = 0
    """Processes of Ray's that act in host environments, each with its share; 0: this process alone. Results depend on
    their number, not on their speed."""
    cluster: str | None = None
    """Where the workers live: ``HOST:PORT`` of a Ray cluster, or ``auto``; None for a Ray of the run's own."""
    threads: int = 1
    """Threads that step host environments, in each worker; results do not depend on it."""
    cores: int = 0
    """Threads that XLA computes with on a CPU; 0 for one a core. It is heard if JAX has not computed yet."""
    loop: str | None = None
    """compiled, host or logged; None for what the environment and the method need."""
    data: str | None = None
    """Directory of a dataset to learn from."""


def options_of(config: dict[str, Any]) -> Options:
    """The options in a run.json; where there is no word of threads, workers were threads."""
    written = dict(config["options"])
    if "threads" not in written:
        written["threads"] = written.pop("workers", 1)
    return Options(**written)


def require_room_for(options: Options, loop: str) -> None:
    """Raises :class:`UserError` where a loop has no use for workers or devices that are asked for."""
    if options.workers < 0 or options.threads < 1:
        raise UserError(f"--workers {options.workers} and --threads {options.threads}: at least 0, and at least 1")
    if options.cluster is not None and not options.workers:
        raise UserError("--cluster says where workers live, and there are none: add --workers N")
    if options.workers and loop == "compiled":
        raise UserError(
            "the compiled loop acts and learns in one program and has no use for --workers: add --loop host"
        )
    if options.workers and loop == "logged":
        raise UserError("learning from a dataset needs nobody to act: leave out --workers")
    if options.workers and options.learners > 1:
        raise UserError("each of several learners acts in worlds of its own: --learners goes without --workers")
    several = options.devices != 1 or jax.process_count() > 1
    if several and (loop != "compiled" or options.learners > 1):
        raise UserError("only the compiled loop with one learner runs on several devices: leave out --devices")

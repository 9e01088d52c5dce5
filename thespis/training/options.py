"""Options of a run: how it is executed, as opposed to what it trains."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from thespis.core.errors import UserError
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, Range, in_range


def _option(default: Any, allowed: Range) -> Any:
    return dataclasses.field(default=default, metadata=in_range(allowed))


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of a run: how it is executed. All of it is written into run.json."""

    evaluate_every: int | None = _option(None, AT_LEAST_0)
    """Steps between evaluations while training; 0 for none; None for ten greedy evaluations where these are cheap
    (:func:`thespis.training.evaluation_interval.evaluation_interval`)."""
    episodes: int = _option(10, AT_LEAST_1)
    """Episodes per seed and mode (greedy and sampled) in each evaluation."""
    checkpoint_seconds: float = _option(60.0, AT_LEAST_0)
    """Seconds between checkpoints; results do not depend on it."""
    report_every: int = _option(0, AT_LEAST_0)
    """Steps between rows of metrics; 0 for a hundredth of the run."""
    policy_lag: int | None = _option(None, AT_LEAST_0)
    """Update phases by which the acting policy lags behind in the host loop; None for the feed's own value."""
    latest_policy: bool = False
    """Act with the newest policy that is ready, at most ``policy_lag`` phases old, instead of waiting for the one
    exactly that old: faster where speeds vary, but results depend on timing."""
    jitter: float = _option(0.0, AT_LEAST_0)
    """Upper bound in seconds of a random delay before each acting and each learning phase of the host loop: shows what
    depends on timing."""
    learners: int = _option(1, AT_LEAST_1)
    """Learners that act and learn asynchronously on one shared state, each with its share of the environments; with
    more than one, results depend on timing."""
    devices: int = _option(1, AT_LEAST_1)
    """Devices among which the compiled loop splits the seeds, or else each seed's environments."""
    workers: int = _option(0, AT_LEAST_0)
    """Ray processes that step host environments, each with its share; 0: this process alone. Results depend on their
    number, not on their speed."""
    cluster: str | None = None
    """Address of the Ray cluster for the workers: ``HOST:PORT`` or ``auto``; None starts a local Ray for the run."""
    threads: int = _option(1, AT_LEAST_1)
    """Threads that step host environments, in each worker; results do not depend on it."""
    cores: int = _option(0, AT_LEAST_0)
    """Threads that XLA uses on a CPU; 0 for one per core. Has no effect once JAX has computed something."""
    loop: str | None = None
    """compiled, host or logged; None for the one that the environment and the method need."""
    data: str | None = None
    """Directory of a dataset to learn from."""
    eval_data: str | None = None
    """Held-out data, named like ``data``, on which a run from data is evaluated ten times, or at each evaluation."""


def options_from(config: dict[str, Any]) -> RunOptions:
    """Read the options in a run.json. In old files without ``threads``, the field ``workers`` meant threads."""
    fields = dict(config["options"])
    if "threads" not in fields:
        fields["threads"] = fields.pop("workers", 1)
    return RunOptions(**fields)


def check_options(options: RunOptions, loop: str) -> None:
    """Check the options against the loop. Raises :class:`UserError` for workers or devices that the loop cannot use."""
    if options.workers < 0 or options.threads < 1:
        raise UserError(f"--workers {options.workers} and --threads {options.threads}: at least 0, and at least 1")
    if options.cluster is not None and not options.workers:
        raise UserError("--cluster is the address for workers, and there are none: add --workers N")
    if options.workers and loop == "compiled":
        raise UserError(
            "the compiled loop acts and learns in one program and has no use for --workers: add --loop host"
        )
    if options.workers and loop == "logged":
        raise UserError("learning from a dataset needs no workers: leave out --workers")
    if options.workers and options.learners > 1:
        raise UserError("each of several learners steps its own environments: --learners goes without --workers")
    multi_device = options.devices != 1 or jax.process_count() > 1
    if multi_device and (loop != "compiled" or options.learners > 1):
        raise UserError("only the compiled loop with one learner runs on several devices: leave out --devices")

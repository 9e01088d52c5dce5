"""Training, resuming and using runs from Python: what the command line does, as functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.assembly import (
    Assembled,
    assemble,
    circumstances,
    resolved_config,
    schedule_of,
    use_compilation_cache,
    use_cores,
)
from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.spaces import Text
from thespis.evaluation.report import write_report
from thespis.evaluation.score import final_score
from thespis.evaluation.talks import kept
from thespis.loops.driver import drive
from thespis.loops.memory import planned_bytes, require
from thespis.loops.parts import with_array_leaves
from thespis.loops.processes import fetched, first, own_directory
from thespis.options import Options, options_of
from thespis.parts import method_from
from thespis.runs.environment_info import device_line
from thespis.runs.events import Bus, Listener
from thespis.runs.store import RunDirectory, new_run_path
from thespis.serving.model import heir
from thespis.sources import with_experts
from thespis.tiny import prepared
from thespis.trained import Run, environment_of


def train(
    method: str | Method,
    env: Any = None,
    *,
    steps: int = 100_000,
    seeds: int | list[int] = 1,
    envs: int | None = None,
    settings: list[str] | dict[str, Any] | None = None,
    feedback: Any = None,
    curriculum: Any = None,
    out: str | Path | None = None,
    callbacks: Iterable[Listener] = (),
    **options: Any,
) -> Run:
    """Train and return the run.

    ``method``: a name (``"sac"``) or a configured method (``SAC(critics=5)``). ``env``: a name, an environment
    object, a class or a function that makes one. ``steps``: environment steps per seed (updates, when learning
    from a dataset). ``seeds``: how many (0, 1, ...) or which. ``envs``: environments per seed. ``settings``:
    hyperparameters by name. ``callbacks``: functions of events; returning ``True`` stops the run. ``options``:
    fields of :class:`thespis.options.Options`.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    use_compilation_cache()
    # before anything looks at the world, with which XLA begins
    use_cores(options.get("cores", 0), options.get("devices", 1))
    config = declared(
        method, env, steps=steps, seeds=seeds, envs=envs, settings=settings, feedback=feedback, curriculum=curriculum,
        **options,
    )  # fmt: skip
    config |= circumstances()
    assembled = assemble(config, env)
    try:
        path, planned = _path(out, config), _planned(assembled, config)
        with own_directory(path) as own:
            run = RunDirectory.create(own, config, assembled.loop.metrics)
            _go(run, assembled, Bus(callbacks), planned, None)
        return Run(RunDirectory.open(path), env)
    finally:
        assembled.loop.close()


def declared(
    method: str | Method,
    env: Any,
    *,
    steps: int,
    seeds: int | list[int],
    envs: int | None = None,
    settings: list[str] | dict[str, Any] | None = None,
    feedback: Any = None,
    curriculum: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """What :func:`train` with these arguments writes into run.json, but for where it happens. Nothing begins.

    Raises:
        UserError: for a mistake that can be seen before the parts are made.
    """
    texts = [f"{k}={v}" for k, v in settings.items()] if isinstance(settings, dict) else list(settings or [])
    chosen = with_experts(prepared(heir(method_from(method, texts)), env), env)
    seed_list = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not seed_list or len(set(seed_list)) < len(seed_list) or steps < 1:
        raise UserError(f"a run needs at least one step and at least one seed, all different: {steps=}, {seeds=}")
    try:
        extra = Options(**options)
    except TypeError:
        unknown = sorted(set(options) - set(Options.__dataclass_fields__))
        raise UserError(
            f"unknown option {unknown[0]!r}: it is one of {', '.join(Options.__dataclass_fields__)}"
        ) from None
    return resolved_config(
        chosen, env, steps=steps, envs=envs, seeds=seed_list, feedback=feedback, curriculum=curriculum, options=extra
    )


def resume(
    path: str | Path,
    env: Any = None,
    *,
    devices: int | None = None,
    cluster: str | None = None,
    callbacks: Iterable[Listener] = (),
) -> Run:
    """Continue a run from its newest undamaged checkpoint to its last step, as if it had not been interrupted.

    ``env`` is needed only for an environment that was given as an object; ``devices`` if it is to go on with another
    number of them; ``cluster`` only for a run with workers whose Ray cluster has another address by now.
    """
    use_compilation_cache()
    run = RunDirectory.open(path)
    use_cores(options_of(run.config).cores, devices or options_of(run.config).devices)
    env, config = environment_of(run.config, env), run.config
    changed = {"devices": devices, "cluster": cluster}
    config = config | {"options": config["options"] | {k: v for k, v in changed.items() if v is not None}}
    assembled = assemble(config, env)
    try:
        planned = _planned(assembled, config)
        with own_directory(run.path) as own:
            written = run if first() else RunDirectory.create(own, config, assembled.loop.metrics)
            _go(written, assembled, Bus(callbacks), planned, run)
        return Run(run, env)
    finally:
        assembled.loop.close()


def _path(out: str | Path | None, config: dict[str, Any]) -> Path:
    if out is None and jax.process_count() > 1:
        raise UserError("several processes train one run: give all of them the same --out DIR")
    return Path(out) if out else new_run_path(config["method_name"], config["env"] or "dataset")


def _planned(assembled: Assembled, config: dict[str, Any]) -> int:
    """Bytes that the run needs. Raises :class:`UserError` if there are fewer."""
    planned = planned_bytes(assembled.loop.shapes())
    require(planned, options_of(config).devices)
    return planned


def _go(run: RunDirectory, assembled: Assembled, bus: Bus, planned: int, earlier: RunDirectory | None) -> None:
    """Run the loop to its end, ``earlier`` continued if there is one, then judge the result and write the report."""
    loop, config, began = assembled.loop, run.config, time.perf_counter()
    method, options = with_array_leaves(assembled.parts).method, options_of(config)
    run.lock()
    try:
        found = earlier.load_checkpoint(loop.like()) if earlier else None
        step = int(found.meta["step"]) if found else 0
        if earlier:
            run.rewind(step if found else -1)
        bus.emit("start", step, config=config, device=device_line(), planned_bytes=planned, run=str(run.path))
        carry, lost = loop.restore(found.tree) if found else (loop.init(), [])
        damaged = found.warnings if found else []
        for message in [*assembled.notes, *damaged, *(f"restarted: {what}" for what in lost)]:
            bus.emit("warning", step, message=message)

        make_worlds, keep = assembled.make_worlds, _keeper(run, assembled, method)

        def evaluate(states: PyTree):
            if make_worlds is None:
                raise UserError("evaluating needs an environment: give one with --env")
            score = final_score(method, fetched(states), make_worlds, config["seeds"], options.episodes)
            return score["greedy"]["scores"], score["sampled"]["scores"]

        if step == 0:
            keep(step, loop.learner(carry).method)
        carry, reason = drive(loop, carry, schedule_of(config), run, bus, evaluate, keep)
        step, trained = loop.steps(carry), time.perf_counter()
        if reason != "interrupted" and make_worlds is not None:
            states = fetched(loop.learner(carry).method)
            score = final_score(method, states, make_worlds, config["seeds"], options.episodes)
            run.write_json("final.json", {"step": step} | score)
            keep(step, states)
            bus.emit("evaluation", step, greedy=score["greedy"]["scores"], sampled=score["sampled"]["scores"])
        ended = time.perf_counter()
        run.write_json("timing.json", loop.timing | {"evaluation": ended - trained, "total": ended - began})
        if reason != "interrupted":
            write_report([run.path], run.path / "report.html")
        bus.emit("done", step, reason=reason, seconds=ended - began)
    finally:
        run.unlock()


def _keeper(run: RunDirectory, assembled: Assembled, method: Method) -> Callable[[int, PyTree], None]:
    """What keeps samples of what is said at a step, if anything is."""
    make_worlds, seeds = assembled.make_worlds, run.config["seeds"]
    if make_worlds is None or not isinstance(assembled.spec.action, Text):
        return lambda step, states: None
    return lambda step, states: run.append_conversations(step, kept(method, fetched(states), make_worlds, seeds))


def load(path: str | Path, env: Any = None) -> Run:
    """A run on disk. ``env`` is needed only for an environment that was given as an object."""
    use_compilation_cache()
    run = RunDirectory.open(path)
    return Run(run, env if env is not None else run.config["env"])

"""From a configuration to a loop that can run: the one place where names become parts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.core.caching import cache
from thespis.core.contracts import ForMany, HostEnvironment, Method, Seating
from thespis.core.errors import UserError
from thespis.core.feeds import Logged, LoggedEpisodes, Pairs
from thespis.core.keys import roots
from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.loops.driver import Loop, Schedule
from thespis.loops.parts import Parts
from thespis.options import Options, options_of, require_room_for
from thespis.parts import curriculum_from, feedback_from, fitted
from thespis.runs.config import from_config, to_config
from thespis.tiny import spelt

FROM_DATA = Logged | LoggedEpisodes | Pairs
METHOD_STATE = "['carry'].learner.method"  # where every loop's checkpoint holds the method's states


@dataclasses.dataclass(frozen=True)
class Assembled:
    """A loop with its environment's maker."""

    parts: Parts
    loop: Loop
    spec: EnvSpec
    make_worlds: Callable[[int], HostEnvironment] | None
    notes: tuple[str, ...] = ()
    """What the user should know of the data before it is learnt from, one line each."""


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that the same command starts faster the second time."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache("xla")))
    for name, value in (("min_compile_time_secs", 0.1), ("min_entry_size_bytes", -1)):
        if f"JAX_PERSISTENT_CACHE_{name.upper()}" not in os.environ:  # what a user says goes
            jax.config.update(f"jax_persistent_cache_{name}", value)


def use_cores(count: int, devices: int = 1) -> None:
    """Let XLA compute with ``count`` threads on a CPU, unless it has begun; 0 leaves it as it is.

    Where a CPU is cut into several ``devices`` each holds threads while it waits for the others: there are at least
    four for each, as with as few as there are cores all would wait for ever.
    """
    if devices > 1:
        count = max(count or os.cpu_count() or 1, 4 * devices)
    if count:
        os.environ["PJRT_NPROC"] = str(count)


def seated(env: Any, method: Method, curriculum: Any) -> Any:
    """The world that is learnt in: ``env`` itself, or as a curriculum that fills seats or a checkpoint wants it."""
    if not isinstance(curriculum, Seating):
        return spelt(env, method)
    if registry.resolve(env).kind != "compiled":
        raise UserError(f"{environment_name(env)} is no compiled game: opponents from a pool need one (pgx)")
    return curriculum.world(registry.compiled(env), method)


def environment_name(env: Any) -> str | None:
    """The name under which an environment is written down."""
    if env is None:
        return None
    entry = registry.resolve(env)
    return entry.name if isinstance(env, str) else f"object:{entry.name}"


def assemble(config: dict[str, Any], env: Any) -> Assembled:
    """The loop of a run.json, in ``env`` (a name or the user's own)."""
    method = from_config(config["method"])
    parts = Parts(method, from_config(config["feedback"]), from_config(config["curriculum"]))
    options, env = options_of(config), seated(env, method, parts.curriculum)
    seeds, envs, steps = config["seeds"], config["envs"], config["steps"]

    def make_worlds(n: int) -> HostEnvironment:
        return registry.host(env, n, threads=options.threads)

    require_room_for(options, config["loop"])
    if config["loop"] == "logged":
        return _logged(parts, options, seeds, env, make_worlds)
    if config["loop"] == "compiled":
        from thespis.loops.compiled import CompiledLoop

        world = registry.compiled(env)
        given = (parts, world, _share(envs, options), seeds, steps, options.devices)
        loops = [CompiledLoop(*given)] * options.learners
        return Assembled(parts, _side_by_side(loops), world.spec, make_worlds, _timing_notes(options.learners > 1))
    share = _share(envs, options)
    worlds = _workers(parts, env, share, seeds, steps, options) if options.workers else make_worlds
    loops = [_host(parts, worlds, share, seeds, steps, options) for _ in range(options.learners)]
    notes = _timing_notes(options.learners > 1 or options.newest)
    return Assembled(parts, _side_by_side(loops), loops[0].spec, make_worlds, notes)


def _host(parts: Parts, make_worlds: Any, envs: int, seeds: list[int], steps: int, options: Options) -> Any:
    from thespis.curricula.fixed import Fixed
    from thespis.loops.host import HostLoop
    from thespis.loops.pace import pace

    if not isinstance(parts.curriculum, Fixed):
        raise UserError("the host loop draws no parameters of episodes: --vary needs a compiled environment and loop")
    if options.learners > 1 and (options.lag or options.newest):
        raise UserError(
            "several learners act by what they have just learnt: --learners goes without --lag and --newest"
        )
    lag = parts.method.feed.lag if options.lag is None else options.lag  # pyright: ignore[reportAttributeAccessIssue]
    how = pace(0 if options.learners > 1 else lag, newest=options.newest)
    worlds = make_worlds(len(seeds) * envs)
    try:
        if worlds.spec.groups and not isinstance(parts.method, ForMany):
            raise UserError(
                f"{worlds.spec.name} has many agents and {parts.method.name} is for one: "
                "give the world's class in place of a function, or use a method for many (ippo)"
            )
        if worlds.spec.privileged is not None:
            raise UserError(f"{worlds.spec.name} shows critics more than actors, which only the compiled loop carries")
        return HostLoop(parts, worlds, envs, seeds, steps, how, options.jitter)
    except BaseException:
        worlds.close()
        raise


def _workers(parts: Parts, env: Any, envs: int, seeds: list[int], steps: int, options: Options) -> Any:
    """What starts the workers, in place of what makes the worlds."""
    import gymnasium

    from thespis.data.stores import store_for
    from thespis.loops.worker import Recipe
    from thespis.loops.workers import Workers

    if envs % options.workers:
        raise UserError(f"{envs} environments per seed cannot be shared out to {options.workers} workers: --envs N")
    if not isinstance(env, str | type) and isinstance(env, HostEnvironment | gymnasium.vector.VectorEnv):
        raise UserError("worlds that are already many cannot be shared out to workers: give a class or a function")
    store, share = store_for(parts.method.feed, steps), envs // options.workers
    if store.group and share % store.group:
        raise UserError(f"{share} environments of a worker do not make groups of {store.group}: --envs N")
    recipe = Recipe(parts, env, options.threads, len(seeds), share, store.feed.ticks, store.group)
    return lambda _: Workers(recipe, options.workers, options.cluster)


def _share(envs: int, options: Options) -> int:
    """Environments of one learner, per seed."""
    if options.learners < 1 or envs % options.learners:
        raise UserError(f"{envs} environments per seed cannot be shared out to {options.learners} learners: --envs N")
    return envs // options.learners


def _side_by_side(loops: list[Any]) -> Loop:
    """The loop itself, or all of them as one."""
    from thespis.loops.asynchronous import AsynchronousLoop

    return loops[0] if len(loops) == 1 else AsynchronousLoop(loops)


def _timing_notes(apart: bool) -> tuple[str, ...]:
    """A warning where equal seeds do not give equal results."""
    return ("this run depends on timing: the same seed will not give the same numbers again",) if apart else ()


def _logged(parts: Parts, options: Options, seeds: list[int], env: Any, make_worlds: Any) -> Assembled:
    from thespis.loops.logged import LoggedLoop
    from thespis.sources import dataset_of, spec_for

    if options.data is None:
        raise UserError("learning from a dataset needs one: --data DIR (make one with `thespis collect RUN`)")
    dataset = dataset_of(options.data, env, parts.method)
    spec = spec_for(dataset, env)
    loop = LoggedLoop(parts, spec, dataset.steps, seeds, dataset.together)
    return Assembled(parts, loop, spec, make_worlds if env is not None else None, dataset.notes)


def loop_kind(method: Method, env: Any, options: Options) -> str:
    """The loop that a method, an environment and the options call for."""
    wanted = options.loop
    if wanted not in (None, "compiled", "host", "logged"):
        raise UserError(f"unknown loop {wanted!r}: it is compiled, host or logged")
    if isinstance(method.feed, FROM_DATA) or options.data is not None or wanted == "logged":
        if wanted not in (None, "logged"):
            raise UserError(f"a run that learns from data needs the logged loop, not the {wanted} loop")
        return "logged"
    if env is None:
        raise UserError("no environment given: --env NAME (thespis list envs), or --data DIR for a dataset")
    kind = registry.resolve(env).kind
    if wanted == "compiled" and kind == "host":
        raise UserError(f"{environment_name(env)} is not written in JAX and cannot be compiled: use the host loop")
    return wanted or kind


def method_states_like(method: Method, spec: EnvSpec, seeds: list[int]) -> PyTree:
    """Shapes of a method's states, leading axis ``[seed]``."""
    from thespis.loops.parts import with_array_leaves

    method = with_array_leaves(method)
    return jax.eval_shape(jax.vmap(lambda key: method.init(spec, key)), roots(seeds))


def resolved_config(
    method: Method, env: Any, *, steps: int, envs: int | None, seeds: list[int], feedback: Any, curriculum: Any,
    options: Options,
) -> dict[str, Any]:  # fmt: skip
    """The content of run.json, but for :func:`circumstances`."""
    from thespis import __version__

    kind = loop_kind(method, env, options)
    feedback, curriculum = feedback_from(feedback), curriculum_from(curriculum)
    method = curriculum.learner(method) if isinstance(curriculum, Seating) else fitted(method, env)
    count = 1 if isinstance(method.feed, FROM_DATA) or kind == "logged" else envs or method.feed.envs
    used: tuple[Any, ...] = (method, feedback, curriculum)
    citations = [dataclasses.asdict(citation) for part in used for citation in part.citations]
    return {
        "format": 1, "thespis": __version__, "method_name": method.name, "method": to_config(method),
        "env": environment_name(env), "feedback": to_config(feedback), "curriculum": to_config(curriculum),
        "steps": steps, "envs": count, "seeds": seeds, "loop": kind, "options": dataclasses.asdict(options),
        "details": list(method.details), "bibliography": citations,
    }  # fmt: skip


def circumstances() -> dict[str, Any]:
    """What run.json says of where it was written: versions, device, and the state of the user's repository."""
    from thespis.runs.environment_info import device_line, git_state, versions

    return {"versions": versions(), "device": device_line(), "git": git_state()}


def schedule_of(config: dict[str, Any]) -> Schedule:
    """When things happen in a run."""
    options = options_of(config)
    return Schedule(config["steps"], options.evaluate_every, options.checkpoint_seconds, options.report_every)

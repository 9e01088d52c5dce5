"""Assembly of a run: builds method, environment, feedback, curriculum and training loop from its configuration."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.core.contracts import HostEnvironment, Method, MultiAgentMethod, OpponentCurriculum
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.methods.registry import load_method as load_method
from thespis.runs.config import from_config
from thespis.runs.store import budgets
from thespis.runtime.cache import cache_path
from thespis.runtime.keys import root_keys
from thespis.training.components import Components, FeedData
from thespis.training.driver import Schedule, TrainingLoop
from thespis.training.evaluation_interval import NUM_EVALUATIONS, evaluation_interval
from thespis.training.held_out import HeldOutData
from thespis.training.method_setup import tokenize_env
from thespis.training.options import RunOptions, check_options, options_from
from thespis.training.run_config import env_name

METHOD_STATE_PATH = "['carry'].learner.method"  # where every loop's checkpoint stores the method's states


@dataclasses.dataclass(frozen=True)
class AssembledRun:
    """A training loop and the function that makes its environments."""

    components: Components
    loop: TrainingLoop
    spec: EnvSpec
    make_envs: Callable[[int], HostEnvironment] | None
    warnings: tuple[str, ...] = ()
    """Warnings about the data for the user, one line each."""
    evaluation_interval: int = 0
    """Steps between evaluations during training; 0 for none."""
    held_out: HeldOutData | None = None
    """Held-out data, if the run has any."""
    compiled_env: Any = None
    """The environment, if it is compiled."""


def enable_compilation_cache() -> None:
    """Keep compiled programs on disk, so that the same command starts faster the second time."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_path("xla")))
    for name, value in (("min_compile_time_secs", 0.1), ("min_entry_size_bytes", -1)):
        if f"JAX_PERSISTENT_CACHE_{name.upper()}" not in os.environ:  # the user's own setting takes precedence
            jax.config.update(f"jax_persistent_cache_{name}", value)


def set_cpu_threads(num_threads: int, num_devices: int = 1) -> None:
    """Set the number of threads that XLA uses on a CPU; 0 leaves it as it is. No effect once XLA has started.

    Where a CPU is split into ``num_devices`` devices, each blocks a thread while it waits for the others: there are at
    least four threads per device, as with only one per core all of them could wait for ever.
    """
    if num_devices > 1:
        num_threads = max(num_threads or os.cpu_count() or 1, 4 * num_devices)
    if num_threads:
        os.environ["PJRT_NPROC"] = str(num_threads)


def training_env(env: Any, method: Method, curriculum: Any) -> Any:
    """The training environment: ``env``, wrapped where an opponent curriculum or a checkpoint's tokenizer needs it."""
    if not isinstance(curriculum, OpponentCurriculum):
        return tokenize_env(env, method)
    if registry.resolve_env(env).kind != "compiled":
        raise UserError(f"{env_name(env)} is no compiled game: opponents from a pool need one (pgx)")
    return curriculum.make_env(registry.make_compiled(env), method)


def assemble_run(config: dict[str, Any], env: Any) -> AssembledRun:
    """Build the loop that a run.json describes, in ``env`` (a name or the user's own environment)."""
    assembled = _assemble(config, env)
    options = options_from(config)
    interval = evaluation_interval(options, env, assembled.spec, config["steps"])
    if assembled.held_out is not None and options.evaluate_every is None:
        interval = max(config["steps"] // NUM_EVALUATIONS, 1)
    return dataclasses.replace(assembled, evaluation_interval=interval)


def _assemble(config: dict[str, Any], env: Any) -> AssembledRun:
    method = from_config(config["method"])
    parts = Components(method, from_config(config["feedback"]), from_config(config["curriculum"]))
    parts = dataclasses.replace(parts, data=load_feed_data(parts, env))
    options, env = options_from(config), training_env(env, method, parts.curriculum)
    seeds, envs, steps = config["seeds"], config["envs"], _max_steps(config)

    def make_envs(n: int) -> HostEnvironment:
        return registry.make_host(env, registry.fixed_num_envs(env) or n, num_threads=options.threads)

    check_options(options, config["loop"])
    if options.eval_data is not None and config["loop"] != "logged":
        raise UserError(
            f"--eval-data {options.eval_data} is for runs that learn from data (--data); this one is evaluated in {env}"
        )
    if config["loop"] == "logged":
        return _logged_loop(parts, options, seeds, env, make_envs)
    if config["loop"] == "compiled":
        from thespis.training.compiled_loop import CompiledLoop

        environment = registry.make_compiled(env)
        loop_args = (parts, environment, _envs_per_learner(envs, options), seeds, steps, options.devices)
        loops = [CompiledLoop(*loop_args)] * options.learners
        notes, combined = _timing_warnings(options.learners > 1), _combine_loops(loops)
        return AssembledRun(parts, combined, environment.spec, make_envs, notes, compiled_env=environment)
    share = _envs_per_learner(envs, options)

    def make_training_envs(n: int) -> HostEnvironment:
        return registry.make_host(env, n, num_threads=options.threads, training=True)

    env_factory = _ray_env(parts, env, share, seeds, steps, options) if options.workers else make_training_envs
    loops = [_host_loop(parts, env_factory, share, seeds, steps, options) for _ in range(options.learners)]
    notes = _timing_warnings(options.learners > 1 or options.latest_policy) + _fixed_size_warnings(env, seeds, options)
    return AssembledRun(parts, _combine_loops(loops), loops[0].spec, make_envs, notes)


def load_feed_data(components: Components, env: Any) -> FeedData:
    """The datasets that the feeds of method and feedback name besides the run's own.

    Raises ``UserError`` if one cannot be read, or is of other observations or actions than the environment.
    """
    from thespis.training.data_sources import read_beside

    read = functools.partial(read_beside, env=env, method=components.method)
    own_feed = components.feedback.feed
    return FeedData(components.method.feed.load_data(read), () if own_feed is None else own_feed.load_data(read))


def _max_steps(config: dict[str, Any]) -> int:
    """The largest total number of steps that a run has had: a replay buffer that has grown stays as large."""
    return max(budget["steps"] for budget in budgets(config))


def check_extension(config: dict[str, Any], steps: int, saved_step: int) -> None:
    """Check that the run of a run.json, saved at ``saved_step``, can continue to a total of ``steps`` steps.

    Raises:
        UserError: if the run has done more steps already, or its replay buffer cannot grow.
    """
    if steps < saved_step or steps < 1:
        raise UserError(
            f"--steps {steps} is less than the {saved_step:,} steps that the run has done: give a larger total"
        )
    feed = from_config(config["method"]).feed
    if feed.collects:
        feed.make_store(_max_steps(config)).check_growth(steps)


def _host_loop(
    components: Components, make_envs: Any, envs: int, seeds: list[int], steps: int, options: RunOptions
) -> Any:
    from thespis.training.host_loop import HostLoop
    from thespis.training.policy_lag import make_policy_lag
    from thespis.training.vector_env import require_episode_params

    if options.learners > 1 and (options.policy_lag or options.latest_policy):
        raise UserError(
            "several learners act with their newest policy: --learners goes without --policy-lag and --latest-policy"
        )
    lag = components.method.feed.policy_lag if options.policy_lag is None else options.policy_lag  # pyright: ignore[reportAttributeAccessIssue]
    policy_lag = make_policy_lag(0 if options.learners > 1 else lag, latest_policy=options.latest_policy)
    vector_env: Any = make_envs(len(seeds) * envs)
    draws = _draws(components)
    try:
        if draws and not options.workers:
            require_episode_params(vector_env)
        if vector_env.spec.groups and not isinstance(components.method, MultiAgentMethod):
            raise UserError(
                f"{vector_env.spec.name} has many agents and {components.method.name} is for one: "
                "pass the environment's class instead of a function, or use a multi-agent method (ippo)"
            )
        if vector_env.spec.privileged_space is not None:
            raise UserError(
                f"{vector_env.spec.name} has privileged observations for critics, which only the compiled loop supports"
            )
        return HostLoop(components, vector_env, envs, seeds, steps, policy_lag, options.jitter, draws=draws)
    except BaseException:
        vector_env.close()
        raise


def _draws(components: Components) -> bool:
    """Whether a curriculum chooses the parameters of episodes."""
    from thespis.curricula.fixed import FixedCurriculum

    return not isinstance(components.curriculum, FixedCurriculum)


def _ray_env(components: Components, env: Any, envs: int, seeds: list[int], steps: int, options: RunOptions) -> Any:
    """A function that starts the Ray workers, in place of one that makes local environments."""
    import gymnasium

    from thespis.training.ray_env import RayVectorEnv, WorkerConfig

    if envs % options.workers:
        raise UserError(f"{envs} environments per seed cannot be shared out to {options.workers} workers: --envs N")
    if not isinstance(env, str | type) and isinstance(env, HostEnvironment | gymnasium.vector.VectorEnv):
        raise UserError("a vector environment cannot be shared out to workers: give a class or a function")
    store, share = components.method.feed.make_store(steps), envs // options.workers
    if store.group_size and share % store.group_size:
        raise UserError(f"{share} environments of a worker do not make groups of {store.group_size}: --envs N")
    recipe = WorkerConfig(
        components,
        env,
        options.threads,
        len(seeds),
        share,
        store.feed.collect_steps,
        store.group_size,
        draws=_draws(components),
    )
    return lambda _: RayVectorEnv(recipe, options.workers, options.cluster)


def _envs_per_learner(envs: int, options: RunOptions) -> int:
    """Environments of one learner, per seed."""
    if options.learners < 1 or envs % options.learners:
        raise UserError(f"{envs} environments per seed cannot be shared out to {options.learners} learners: --envs N")
    return envs // options.learners


def _combine_loops(loops: list[Any]) -> TrainingLoop:
    """One loop for all learners; a single learner's loop is returned as it is."""
    from thespis.training.async_loop import AsyncLoop

    return loops[0] if len(loops) == 1 else AsyncLoop(loops)


def _timing_warnings(depends_on_timing: bool) -> tuple[str, ...]:
    """A warning if results depend on timing, so that equal seeds do not give equal results."""
    return (
        ("this run depends on timing: the same seed will not give the same numbers again",) if depends_on_timing else ()
    )


def _fixed_size_warnings(env: Any, seeds: list[int], options: RunOptions) -> tuple[str, ...]:
    """A warning if evaluation plays in the vector environment that trains.

    Raises :class:`UserError` if it would disturb training.
    """
    if (total := registry.fixed_num_envs(env)) is None:
        return ()
    if options.evaluate_every:
        raise UserError(
            "evaluation during training would reset the vector environment that trains: pass a function "
            "of num_envs that makes one (lambda num_envs: gymnasium.make_vec(...))"
        )
    episodes = total // len(seeds)
    if episodes == options.episodes:
        return ()
    return (f"evaluation plays {episodes} episodes per seed, one in each environment of the vector environment",)


def _logged_loop(
    components: Components, options: RunOptions, seeds: list[int], env: Any, make_envs: Any
) -> AssembledRun:
    from thespis.training.data_sources import build_dataset, resolve_spec
    from thespis.training.logged_loop import LoggedLoop

    if options.data is None:
        raise UserError("learning from a dataset needs one: --data DIR (make one with `thespis collect RUN`)")
    dataset = build_dataset(options.data, env, components.method)
    spec = resolve_spec(dataset, env)
    loop = LoggedLoop(components, spec, dataset.steps, seeds, dataset.group_size)
    held_out = None if options.eval_data is None else HeldOutData(components.method, options.eval_data, env)
    notes = dataset.notes if held_out is None else (*dataset.notes, *held_out.notes)
    return AssembledRun(components, loop, spec, make_envs if env is not None else None, notes, held_out=held_out)


def method_state_shapes(method: Method, spec: EnvSpec, seeds: list[int]) -> PyTree:
    """Shapes of a method's states, with leading axis ``[seed]``."""
    from thespis.training.components import with_array_leaves

    method = with_array_leaves(method)
    return jax.eval_shape(jax.vmap(lambda key: method.init(spec, key)), root_keys(seeds))


def schedule_from(config: dict[str, Any], interval: int) -> Schedule:
    """The intervals at which a run evaluates (every ``interval`` steps), saves checkpoints and reports metrics."""
    options = options_from(config)
    return Schedule(config["steps"], interval, options.checkpoint_seconds, options.report_every)

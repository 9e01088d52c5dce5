"""Train, resume and load runs from Python: the functions behind the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from thespis.arena.fixed_opponents import parse_opponents
from thespis.core.contracts import FitsMethod, HasSeats, Method
from thespis.core.errors import UserError
from thespis.core.spaces import contains_text
from thespis.envs.registry import make_compiled, with_env_args
from thespis.envs.registry import resolve_env as resolve_kind
from thespis.evaluation.run import Run, resolve_env
from thespis.evaluation.run import load as load
from thespis.feedback.combined import map_parts
from thespis.presets.applied import extension_warnings, with_preset
from thespis.presets.preset import AUTO
from thespis.runs.config import setting_paths, setting_texts
from thespis.runs.events import Callback, EventBus
from thespis.runs.foreign_names import option_in_python, translate
from thespis.runs.ranges import AT_LEAST_1, check_number, check_ranges
from thespis.runs.stages_directory import has_stages
from thespis.runs.state_addresses import From
from thespis.runs.store import RunDirectory, budgets, new_run_path
from thespis.runs.trust import EVERYTHING, Trust, reading, trust_in
from thespis.runtime.distributed import is_main_process, process_directory
from thespis.runtime.interrupts import has_abandoned_work
from thespis.runtime.keys import fold, seed_key
from thespis.runtime.memory_budget import require_memory, tree_bytes
from thespis.train_run import train_run
from thespis.training.assembly import (
    METHOD_STATE_PATH,
    AssembledRun,
    assemble_run,
    check_extension,
    enable_compilation_cache,
    set_cpu_threads,
)
from thespis.training.cast_file import cast_env, with_endpoint
from thespis.training.components import with_array_leaves
from thespis.training.initial_states import read_initial_states, split_sources
from thespis.training.method_setup import LMFeedback, LMMethod, prepare_feedback, prepare_method
from thespis.training.options import RunOptions, options_from
from thespis.training.run_config import make_feedback, make_method, resolve_config, run_metadata, split_settings
from thespis.training.stages import create_stages, open_stages, plan_stages, run_stages

if TYPE_CHECKING:
    from thespis.evaluation.report_card import ReportCard
    from thespis.language.endpoint import EndpointUsage


def train(
    method: str | Method,
    env: Any = None,
    *,
    steps: int | None = None,
    env_args: dict[str, Any] | None = None,
    seeds: int | list[int] = 1,
    envs: int | None = None,
    settings: list[str] | dict[str, Any] | None = None,
    preset: str | Path | None = AUTO,
    feedback: Any = None,
    curriculum: Any = None,
    init_from: str | Path | From | list[str | Path | From] | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    **options: Any,
) -> Run:
    """Train a method and return its run.

    ``method``: a name (``"sac"``), a class (``"my_module:MyMethod"``), the file of a cast (``"critic.toml"``, which
    also names the environment) or a configured method (``SAC(num_critics=5)``).
    ``env``: a name, an environment object (also a Gymnasium ``VectorEnv``), a class or a function that makes one.
    ``env_args``: keyword arguments of a named environment, recorded in its name. ``steps``: environment steps per seed
    (updates, when learning from a dataset); by default the preset's, else 100,000. ``seeds``: how many (3: seeds 0, 1,
    2) or which ([7]). ``envs``: environments per seed. ``settings``: hyperparameters of the method by name; those of
    the feedback and the curriculum as ``feedback.NAME`` and ``curriculum.NAME``. ``preset``: tuned values for what is
    not given here: ``"auto"`` (those of this method and environment, if there are any; a configured method and a
    dataset have none), ``None``, a name or a file (:func:`thespis.presets.preset.find_preset`). ``feedback`` and
    ``curriculum``: a name, ``"my_module:MyClass"`` or an object. ``init_from``: a run of the same method, whose newest
    checkpoint gives the parameters to start from (see :func:`thespis.training.initial_states.load_initial_states`), or
    a list of parts of runs, ``[From("runs/a", "method.network.body"), From("runs/rm", "feedback")]``.
    ``callbacks``: functions of events; returning ``True`` stops the run. ``options``: fields of
    :class:`thespis.training.options.RunOptions`.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    env = with_env_args(cast_env(method, env), env_args)
    enable_compilation_cache()
    # before anything looks at the environment, which initializes XLA
    set_cpu_threads(options.get("cores", 0), options.get("devices", 1))
    config = build_config(
        method,
        env,
        steps=steps,
        seeds=seeds,
        envs=envs,
        settings=settings,
        preset=preset,
        feedback=feedback,
        curriculum=curriculum,
        init_from=init_from,
        **options,
    )
    return _train_configured(config, env, out, callbacks)


def _train_configured(
    config: dict[str, Any], env: Any, out: str | Path | None, callbacks: Iterable[Callback], trust: Trust = EVERYTHING
) -> Run:
    """Train a new run of a configuration, without its metadata, and return it.

    ``trust``: modules that the configuration may name, if it was read from a file.
    """
    config = config | run_metadata()
    with reading(trust):
        assembled = assemble_run(config, env)
    config |= _facts(assembled)
    try:
        path, planned = _run_path(out, config), _check_memory(assembled, config)
        initial = read_initial_states(config, assembled)
        config |= initial.sources if initial else {}
        with process_directory(path) as own:
            run = RunDirectory.create(own, config, assembled.loop.metric_names)
            train_run(run, assembled, EventBus(callbacks), planned, initial=initial)
        return Run(RunDirectory.open(path, EVERYTHING), env)
    finally:
        _close(assembled)


@dataclasses.dataclass(frozen=True)
class CastEvaluation:
    """Evaluation of a cast: its report card, and what its endpoints have used, by seat."""

    env: str
    card: ReportCard
    usage: dict[str, EndpointUsage]


def evaluate_cast(
    cast: Any,
    env: Any = None,
    *,
    settings: list[str] | dict[str, Any] | None = None,
    episodes: int = 100,
    scripted: Sequence[str] = (),
    seed: int = 0,
    endpoint: str | None = None,
    cache: str | None = None,
) -> CastEvaluation:
    """Play conversations of a cast as it is, without training, and count what its rules define.

    ``cast``: a file (``"critic.toml"``) or a :class:`~thespis.learners.multi_agent.cast.Cast`. ``env``: the
    conversation, by default that of the file. ``settings``: such as ``critic.temperature=0.5``. ``scripted``: seats
    that the environment's demonstrator plays. ``endpoint``: the address for seats that are played by an endpoint and
    name none; ``cache``: a directory for their responses.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    from thespis.evaluation.report_card import report_card
    from thespis.learners.language.endpoint_model import EndpointModel

    enable_compilation_cache()
    env = cast_env(cast, env)
    if env is None or resolve_kind(env).kind != "compiled":
        raise UserError(f'{cast} needs the environment of a conversation: env = "text:critiqued-derivation"')
    method: Any = make_method(cast, setting_texts(settings))
    if not isinstance(method, HasSeats):
        raise UserError(f"{method.name} is no cast: only a method for each seat is evaluated without a run")
    method = prepare_method(_with_checkpoint(with_endpoint(method, endpoint, cache)), env)
    environment = make_compiled(env)
    state = jax.jit(lambda key: method.init(environment.spec, key))(fold(seed_key(seed), "method"))
    states = jax.tree.map(lambda x: x[None], state)
    card = report_card(environment, with_array_leaves(method), states, episodes, scripted, [seed])
    endpoints = {name: seat for name, seat in method.methods.items() if isinstance(seat, EndpointModel)}
    return CastEvaluation(environment.spec.name, card, {name: seat.usage for name, seat in endpoints.items()})


def train_stages(
    stages: Sequence[dict[str, Any]],
    out: str | Path | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    **shared: Any,
) -> list[Run]:
    """Train an experiment of several stages, each a run that starts with what earlier ones have learned.

    A stage is a dictionary of arguments of :func:`train`, with a ``name`` and with ``start``: a dictionary from
    addresses in the stage's state to their sources, ``{"method.network.body": "previous"}``. A source is the stage
    before (``"previous"``), an earlier one by its name, or the directory of a run, with ``:ADDRESS`` after it where the
    part has another address there. ``feedback="frozen:previous"`` scores with the feedback that the stage before has
    trained. ``shared``: arguments of all stages. ``out`` gets a run's directory for each stage, and stages.json;
    :func:`resume` continues it. Returns the runs that have begun, which are all unless it is interrupted.

    Raises:
        UserError: before the first stage begins, for what is wrong in any of them and for parts that do not fit.
    """
    enable_compilation_cache()
    arguments = [shared | stage for stage in stages]
    for options in arguments[:1]:  # before anything looks at the environment
        set_cpu_threads(options.get("cores", 0), options.get("devices", 1))
    if jax.process_count() > 1:
        raise UserError("stages are trained by one process: leave out --processes")
    planned, envs = plan_stages(arguments, lambda options: _configure(**options))
    directory = Path(out) if out else new_run_path("stages", envs[-1] if isinstance(envs[-1], str) else "experiment")
    create_stages(directory, planned)
    return _run_stages(directory, envs, callbacks, EVERYTHING, {})


def _configure(
    method: Any,
    env: Any = None,
    *,
    env_args: dict[str, Any] | None = None,
    steps: int | None = None,
    seeds: int | list[int] = 1,
    **options: Any,
) -> tuple[dict[str, Any], Any]:
    """The configuration and the environment for arguments of :func:`train`."""
    env = with_env_args(cast_env(method, env), env_args)
    return build_config(method, env, steps=steps, seeds=seeds, **options), env


def _run_stages(
    directory: Path,
    envs: list[Any],
    callbacks: Iterable[Callback],
    trust: Iterable[str] | None,
    resources: dict[str, Any],
) -> list[Run]:
    """Train the stages in a directory that have not ended. Returns the runs that have begun."""
    by_name = dict(zip((stage.name for stage in open_stages(directory)), envs, strict=True))

    def train_stage(path: Path, config: dict[str, Any] | None, listening: list[Callback]) -> Run:
        env = by_name[path.name]
        if config is None:
            return resume(path, env, **resources, callbacks=listening, trust=trust)
        changed = {name: value for name, value in resources.items() if value is not None}
        stage = RunDirectory(path, config | {"options": config["options"] | changed}, (), trust_in(trust))
        return _train_configured(stage.config, resolve_env(stage, env), path, listening, stage.trust)

    paths = run_stages(directory, train_stage, callbacks)
    return [Run(RunDirectory.open(path, trust), by_name[path.name]) for path in paths]


def build_config(
    method: str | Method,
    env: Any,
    *,
    steps: int | None,
    seeds: int | list[int],
    envs: int | None = None,
    settings: list[str] | dict[str, Any] | None = None,
    preset: str | Path | None = AUTO,
    feedback: Any = None,
    curriculum: Any = None,
    init_from: str | Path | From | list[str | Path | From] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The configuration that :func:`train` writes into run.json for these arguments, without the run's metadata.

    Nothing is built or started.

    Raises:
        UserError: for a mistake that can be detected before the components are built.
    """
    check_number("envs", envs, AT_LEAST_1)
    if preset == AUTO and options.get("data") is not None:
        preset = None  # presets are for learning in the environment
    texts, feedback_texts, curriculum_texts = split_settings(setting_texts(settings))
    start = with_preset(preset, method, env, texts, steps=steps, num_envs=envs)
    chosen: Any = start.method
    check_ranges(chosen)
    if isinstance(chosen, LMMethod | HasSeats):  # control runs import no language code
        chosen = _with_checkpoint(chosen)
    chosen = prepare_method(chosen, env)
    scoring = map_parts(make_feedback(feedback, feedback_texts), lambda part: _prepared_feedback(part, chosen, env))
    seed_list = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not seed_list or len(set(seed_list)) < len(seed_list) or start.steps < 1:
        raise UserError(
            f"a run needs at least one step and at least one seed, all different: steps={start.steps}, {seeds=} "
            "(a number of seeds; one particular seed is --seed 7, in Python seeds=[7])"
        )
    try:
        extra = RunOptions(**options)
    except TypeError:
        unknown = sorted(set(options) - set(RunOptions.__dataclass_fields__))
        raise UserError(_unknown_option(unknown[0], chosen)) from None
    check_ranges(extra)
    source = split_sources(init_from) | ({} if start.preset is None else {"preset": start.preset})
    config = resolve_config(
        chosen,
        env,
        steps=start.steps,
        num_envs=start.num_envs,
        seeds=seed_list,
        feedback=scoring,
        curriculum=curriculum,
        options=extra,
        parse_opponents=parse_opponents,
        curriculum_settings=curriculum_texts,
    )
    parts = [*config.get("init_parts", []), *source.get("init_parts", [])]  # a frozen feedback's, then the user's
    return config | source | ({"init_parts": parts} if parts else {})


def _with_checkpoint(part: Any) -> Any:
    """A method or feedback whose initial language model is a checkpoint also where it was given as a run."""
    from thespis.serving.model_io import resolve_initial_model

    return resolve_initial_model(part)


def _prepared_feedback(part: Any, method: Any, env: Any) -> Any:
    """A feedback with the settings that it leaves to the method, and with its initial language model."""
    part = part.for_method(method) if isinstance(part, FitsMethod) else part
    if not isinstance(part, LMFeedback):
        return part
    return prepare_feedback(part, method, env, _with_checkpoint)


def _unknown_option(name: str, method: Any) -> str:
    """The error for an argument that :func:`train` does not have, with what it is called here if that is known."""
    ours = translate(name, setting_paths(method))
    if ours.startswith("--"):
        return f"unknown option {name!r}: did you mean {option_in_python(ours)}?"
    if ours:
        return f"unknown option {name!r}: did you mean the setting {ours}? (settings={{{ours!r}: ...}})"
    return f"unknown option {name!r}: it is one of {', '.join(RunOptions.__dataclass_fields__)}"


def resume(
    path: str | Path,
    env: Any = None,
    *,
    steps: int | None = None,
    devices: int | None = None,
    cluster: str | None = None,
    callbacks: Iterable[Callback] = (),
    trust: Iterable[str] | None = (),
) -> Run:
    """Continue a run from its newest undamaged checkpoint to its last step, as if it had not been interrupted.

    ``env`` is needed only for an environment that was passed as an object; ``steps`` to continue to another total
    number of steps per seed; ``devices`` to continue on another number of them; ``cluster`` only for a run with workers
    whose Ray cluster has a new address. ``trust``: as in :func:`load`; ``None`` for a run that this program has made.

    With ``steps``, the run is what it would be if it had been started with that total: no part of Thespis depends on
    the total, except for the size of a replay buffer, which grows.

    Of an experiment in stages (:func:`train_stages`), it is continued from the stage that was interrupted, and the last
    stage is returned; it has no other number of ``steps``.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    enable_compilation_cache()
    if has_stages(path):
        if steps is not None:
            raise UserError(f"{path} holds stages: continue one of them to other steps, thespis resume {path}/STAGE")
        configs = [stage.config for stage in open_stages(Path(path))]
        envs = [env if str(config["env"]).startswith("object:") else None for config in configs]
        resources = {"devices": devices, "cluster": cluster}
        return _run_stages(Path(path), envs, callbacks, trust, resources)[-1]
    run = RunDirectory.open(path, trust)
    if steps is not None and steps != run.config["steps"]:
        with reading(run.trust):
            check_extension(run.config, steps, run.saved_step)
    set_cpu_threads(options_from(run.config).cores, devices or options_from(run.config).devices)
    env, config, notes = resolve_env(run, env), run.config, ()
    if steps is not None and steps != config["steps"]:
        notes = extension_warnings(config, steps)
        config = config | {"steps": steps, "budgets": [*budgets(config), {"steps": steps, "from": run.saved_step}]}
    changed = {"devices": devices, "cluster": cluster}
    config = config | {"options": config["options"] | {k: v for k, v in changed.items() if v is not None}}
    with reading(run.trust):
        assembled = assemble_run(config, env)
        assembled = dataclasses.replace(assembled, warnings=(*assembled.warnings, *notes))
    try:
        planned = _check_memory(assembled, config)
        with process_directory(run.path) as own:
            written = run if is_main_process() else RunDirectory.create(own, config, assembled.loop.metric_names)
            train_run(written, assembled, EventBus(callbacks), planned, run, steps=steps)
        return Run(run, env)
    finally:
        _close(assembled)


def _close(assembled: AssembledRun) -> None:
    """Close the loop's environments, unless an abandoned program may still use them: the process is about to end."""
    if not has_abandoned_work():
        assembled.loop.close()


def _facts(assembled: AssembledRun) -> dict[str, Any]:
    """What a step is, and the number of parameters of a language model, for run.json."""
    unit = "turns" if contains_text(assembled.spec.action_space) else "environment steps"
    facts: dict[str, Any] = {"step_unit": "updates" if assembled.loop.kind == "logged" else unit}
    method = assembled.components.method
    if isinstance(method, LMMethod):
        num_seeds, prefix = len(assembled.loop.seeds), f"{METHOD_STATE_PATH}.model"
        leaves = jax.tree_util.tree_leaves_with_path(assembled.loop.checkpoint_template())
        size = sum(leaf.size for path, leaf in leaves if jax.tree_util.keystr(path).startswith(prefix))
        facts["model_parameters"] = size // num_seeds
    return facts


def _run_path(out: str | Path | None, config: dict[str, Any]) -> Path:
    if out is None and jax.process_count() > 1:
        raise UserError("several processes train one run: give all of them the same --out DIR")
    return Path(out) if out else new_run_path(config["method_name"], config["env"] or "dataset")


def _check_memory(assembled: AssembledRun, config: dict[str, Any]) -> int:
    """Bytes that the run needs. Raises :class:`UserError` if less memory is available."""
    planned = tree_bytes(assembled.loop.shapes())
    require_memory(planned, options_from(config).devices)
    return planned

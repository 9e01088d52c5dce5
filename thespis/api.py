"""Train, resume and load runs from Python: the functions behind the command line."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.arena.fixed_opponents import parse_opponents
from thespis.arena.random_opponents import results_against_random
from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text, leaf_spaces
from thespis.envs.registry import with_env_args
from thespis.evaluation.baseline import random_baseline, untrained_baseline
from thespis.evaluation.conversation import sample_conversations
from thespis.evaluation.report import write_report
from thespis.evaluation.run import Run, resolve_env
from thespis.evaluation.run import load as load
from thespis.evaluation.score import evaluate_policy, greedy_returns
from thespis.evaluation.stagnation import describe_stagnation
from thespis.evaluation.value_range import ValueWatch
from thespis.presets.applied import extension_warnings, with_preset
from thespis.presets.preset import AUTO
from thespis.runs.config import setting_paths, setting_texts
from thespis.runs.events import Callback, EventBus
from thespis.runs.foreign_names import option_in_python, translate
from thespis.runs.ranges import AT_LEAST_1, check_number, check_ranges
from thespis.runs.store import RunDirectory, budgets, new_run_path
from thespis.runs.system_info import describe_device
from thespis.runs.trust import EVERYTHING, reading
from thespis.runtime.distributed import gather_arrays, is_main_process, process_directory
from thespis.runtime.interrupts import AbandonedError, InterruptWatch, catch_interrupts, has_abandoned_work
from thespis.runtime.memory_budget import require_memory, tree_bytes
from thespis.training.assembly import (
    METHOD_STATE_PATH,
    AssembledRun,
    assemble_run,
    check_extension,
    enable_compilation_cache,
    schedule_from,
    set_cpu_threads,
)
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import with_expert_data
from thespis.training.driver import TrainingLoop, run_loop, save_best, save_checkpoint
from thespis.training.initial_states import InitialStates, load_initial_states
from thespis.training.method_setup import LMMethod, prepare_method
from thespis.training.options import RunOptions, options_from
from thespis.training.run_config import resolve_config, run_metadata


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
    init_from: str | Path | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    **options: Any,
) -> Run:
    """Train a method and return its run.

    ``method``: a name (``"sac"``) or a configured method (``SAC(num_critics=5)``). ``env``: a name, an environment
    object (also a Gymnasium ``VectorEnv``), a class or a function that makes one. ``env_args``: keyword arguments of a
    named environment, recorded in its name. ``steps``: environment steps per seed (updates, when learning from a
    dataset); by default the preset's, else 100,000. ``seeds``: how many (3: seeds 0, 1, 2) or which ([7]). ``envs``:
    environments per seed. ``settings``: hyperparameters by name. ``preset``: tuned values for what is not given here:
    ``"auto"`` (those of this method and environment, if there are any; a configured method and a dataset have none),
    ``None``, a name or a file (:func:`thespis.presets.preset.find_preset`). ``init_from``: a run of the same method,
    whose newest checkpoint gives the parameters to start from (see
    :func:`thespis.training.initial_states.load_initial_states`). ``callbacks``: functions of events; returning ``True``
    stops the run. ``options``: fields of :class:`thespis.training.options.RunOptions`.

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    env = with_env_args(env, env_args)
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
    config |= run_metadata()
    assembled = assemble_run(config, env)
    config |= _facts(assembled)
    try:
        path, planned = _run_path(out, config), _check_memory(assembled, config)
        initial = _initial_states(assembled, config)
        with process_directory(path) as own:
            run = RunDirectory.create(own, config, assembled.loop.metric_names)
            _train_run(run, assembled, EventBus(callbacks), planned, initial=initial)
        return Run(RunDirectory.open(path, EVERYTHING), env)
    finally:
        _close(assembled)


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
    init_from: str | Path | None = None,
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
    start = with_preset(preset, method, env, setting_texts(settings), steps=steps, num_envs=envs)
    chosen: Any = start.method
    check_ranges(chosen)
    if isinstance(chosen, LMMethod):  # control runs import no language code
        from thespis.serving.model_io import resolve_initial_model

        chosen = resolve_initial_model(chosen)
    chosen = with_expert_data(prepare_method(chosen, env), env)
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
    source = {} if init_from is None else {"init_from": {"run": str(init_from)}}
    source |= {} if start.preset is None else {"preset": start.preset}
    config = resolve_config(
        chosen,
        env,
        steps=start.steps,
        num_envs=start.num_envs,
        seeds=seed_list,
        feedback=feedback,
        curriculum=curriculum,
        options=extra,
        parse_opponents=parse_opponents,
    )
    return config | source


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

    Raises:
        UserError: for whatever the user can mend, in one line.
    """
    enable_compilation_cache()
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
            _train_run(written, assembled, EventBus(callbacks), planned, run, steps=steps)
        return Run(run, env)
    finally:
        _close(assembled)


def _close(assembled: AssembledRun) -> None:
    """Close the loop's environments, unless an abandoned program may still use them: the process is about to end."""
    if not has_abandoned_work():
        assembled.loop.close()


def _is_language(spec: EnvSpec) -> bool:
    return any(isinstance(leaf, Text) for leaf in leaf_spaces(spec.action_space))


def _facts(assembled: AssembledRun) -> dict[str, Any]:
    """What a step is, and the number of parameters of a language model, for run.json."""
    unit = "turns" if _is_language(assembled.spec) else "environment steps"
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


def _train_run(
    run: RunDirectory,
    assembled: AssembledRun,
    bus: EventBus,
    planned: int,
    earlier: RunDirectory | None = None,
    *,
    steps: int | None = None,
    initial: InitialStates | None = None,
) -> None:
    """Run the loop to its end, evaluate the result and write the report.

    If there is an ``earlier`` run, it is continued, to another total number of ``steps`` if one is given. A new run
    starts from ``initial`` states of the method, if there are any.
    """
    loop, began = assembled.loop, time.perf_counter()
    method = with_array_leaves(assembled.components).method
    run.lock()
    try:
        step, carry = _start_or_restore(run, assembled, bus, planned, earlier, steps, initial)
        config, options, interval = run.config, options_from(run.config), assembled.evaluation_interval
        make_envs, log_conversations = assembled.make_envs, _conversation_logger(run, assembled, method)
        watch = ValueWatch()

        def evaluate(step: int, states: PyTree) -> bool:
            stop = _evaluate_held_out(run, assembled, bus, step, states)
            if make_envs is None:
                if assembled.held_out is None:
                    raise UserError("evaluating needs an environment (--env), or held-out data (--eval-data)")
                return stop
            if options.evaluate_every is None:
                greedy, values = greedy_returns(method, states, make_envs, config["seeds"], options.episodes)
                sampled = None
            else:
                score = evaluate_policy(method, states, make_envs, config["seeds"], options.episodes)
                greedy, sampled, values = (*(score[m]["scores"] for m in ("greedy", "sampled")), score["calibration"])
            stop |= _warn_of_values(watch, bus, step, values, greedy)
            run.append_evaluation(step, greedy, sampled)
            save_best(run, step, greedy, states)
            return stop | bus.emit("evaluation", step, greedy=greedy, sampled=sampled)

        if step == 0 and not run.conversations():
            log_conversations(step, loop.learner_state(carry).method)
            _evaluate_untrained(run, assembled, method, gather_arrays(loop.learner_state(carry).method))
        end = run_loop(loop, carry, schedule_from(config, interval), run, bus, evaluate, log_conversations)
        step, reason, trained = end.step, end.reason, time.perf_counter()
        if reason != "interrupted":
            states = gather_arrays(loop.learner_state(end.carry).method)
            _evaluate_held_out(run, assembled, bus, step, states)
            if make_envs is not None:
                score = evaluate_policy(method, states, make_envs, config["seeds"], options.episodes)
                greedy, sampled = (score[mode]["scores"] for mode in ("greedy", "sampled"))
                run.write_json("final.json", {"step": step} | score | _baselines(run, assembled))
                _warn_of_values(watch, bus, step, score["calibration"], greedy)
                if interval or run.best is not None:  # else the latest checkpoint is the only one with a score
                    save_best(run, step, greedy, states)
                log_conversations(step, states)
                bus.emit("evaluation", step, greedy=greedy, sampled=sampled)
        if reason != "interrupted" and is_main_process():
            note = describe_stagnation(run.metrics(), config["env"])
            if note:
                bus.emit("warning", step, message=note)
        ended = time.perf_counter()
        run.write_json("timing.json", loop.timing | {"evaluation": ended - trained, "total": ended - began})
        if reason != "interrupted":
            write_report([run.path], run.path / "report.html")
        bus.emit("done", step, reason=reason, seconds=ended - began)
    finally:
        run.unlock()


def _evaluate_untrained(run: RunDirectory, assembled: AssembledRun, method: Method, states: PyTree) -> None:
    """Write untrained.json where actions are texts: random ones say nothing, the model before training does."""
    options = options_from(run.config)
    if assembled.make_envs is not None:
        result = untrained_baseline(method, states, assembled.make_envs, run.config["seeds"], options.episodes)
        if result is not None:
            run.write_json("untrained.json", result)


def _baselines(run: RunDirectory, assembled: AssembledRun) -> dict[str, Any]:
    """What stands beside the final result: random or untrained play, and random opponents."""
    assert assembled.make_envs is not None
    baselines = {
        "random": random_baseline(assembled.make_envs, run.config["seeds"], options_from(run.config).episodes),
        "untrained": run.read_json("untrained.json"),
        "vs_random": results_against_random(run),
    }
    return {name: result for name, result in baselines.items() if result}


def _warn_of_values(watch: ValueWatch, bus: EventBus, step: int, values: Any, returns: list[list[float]]) -> bool:
    """Warn, once, of a critic that diverges; returns whether a callback wants to stop."""
    warning = watch.check(values, returns)
    return bool(warning) and bus.emit("warning", step, message=warning)


def _evaluate_held_out(run: RunDirectory, assembled: AssembledRun, bus: EventBus, step: int, states: PyTree) -> bool:
    """Evaluate ``states`` on the held-out data, if there is any; returns whether a callback wants to stop."""
    if assembled.held_out is None:
        return False
    metrics = assembled.held_out.evaluate(states)
    run.append_held_out(step, metrics)
    return bus.emit("held_out", step, metrics=metrics)


def _start_or_restore(
    run: RunDirectory,
    assembled: AssembledRun,
    bus: EventBus,
    planned: int,
    earlier: RunDirectory | None,
    steps: int | None,
    initial: InitialStates | None,
) -> tuple[int, Any]:
    """The step and the carry of a new run, or of the newest undamaged checkpoint of an ``earlier`` one."""
    loop = assembled.loop
    checkpoint = earlier.load_checkpoint(loop.checkpoint_template(), padded=".learner.store") if earlier else None
    step = int(checkpoint.meta["step"]) if checkpoint else 0
    final = None
    if earlier:
        if checkpoint is None and "init_from" in run.config:
            raise UserError(f"{run.path} was stopped before its initial parameters were saved: train it again")
        run.rewind(step if checkpoint else -1)
        if steps is not None and steps != run.config["steps"]:
            final = run.read_json("final.json")
            run.extend(steps, step)
    bus.emit("start", step, config=run.config, device=describe_device(), planned_bytes=planned, run=str(run.path))
    carry, restarts = loop.restore(checkpoint.tree) if checkpoint else (_init(loop), [])
    skipped = (checkpoint or initial or _NO_STATES).warnings
    for message in [*assembled.warnings, *skipped, *(f"restarted: {what}" for what in restarts)]:
        bus.emit("warning", step, message=message)
    if initial:  # saved at once: resuming needs no other run
        states = initial.fill(gather_arrays(loop.learner_state(carry).method))
        carry = loop.with_method_states(carry, states)
        save_checkpoint(loop, carry, run, bus)
    if final is not None and final["step"] == step:  # until now the latest checkpoint was the best one
        save_best(run, step, final["greedy"]["scores"], gather_arrays(loop.learner_state(carry).method))
    return step, carry


def _init(loop: TrainingLoop) -> Any:
    """A fresh carry. An interrupt raises :class:`KeyboardInterrupt` soon, also while a program is compiled."""
    with catch_interrupts() as interrupted:
        try:
            carry = loop.init(watch=InterruptWatch(interrupted))
        except AbandonedError:
            raise KeyboardInterrupt from None
    if interrupted.is_set():
        raise KeyboardInterrupt
    return carry


_NO_STATES = InitialStates((), {}, [])


def _initial_states(assembled: AssembledRun, config: dict[str, Any]) -> InitialStates | None:
    """The states that a new run starts from; ``None`` if it starts anew. Adds their source to ``config``."""
    if "init_from" not in config:
        return None
    method, seeds = assembled.components.method, config["seeds"]
    path = config["init_from"]["run"]
    initial = load_initial_states(path, method, config["method_name"], assembled.spec, seeds)
    config["init_from"] = initial.source
    return initial


def _conversation_logger(run: RunDirectory, assembled: AssembledRun, method: Method) -> Callable[[int, PyTree], None]:
    """A function of step and states that stores sample conversations, or does nothing if the actions are no text."""
    make_envs, seeds = assembled.make_envs, run.config["seeds"]
    if make_envs is None or not isinstance(assembled.spec.action_space, Text):
        return lambda step, states: None
    return lambda step, states: run.append_conversations(
        step, sample_conversations(method, gather_arrays(states), make_envs, seeds)
    )

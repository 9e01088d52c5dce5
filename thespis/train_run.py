"""One run from its first step, or its newest checkpoint, to its last evaluation and its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from thespis.arena.random_opponents import results_against_random
from thespis.core.contracts import HostEnvironment, Method
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text, contains_text
from thespis.envs.text.conversation import ConversationEnv
from thespis.evaluation.baseline import random_baseline, untrained_baseline
from thespis.evaluation.conversation import sample_conversations
from thespis.evaluation.conversations import sample_seats
from thespis.evaluation.report import write_report
from thespis.evaluation.report_card import has_report_card, report_card
from thespis.evaluation.score import evaluate_policy, greedy_returns
from thespis.evaluation.stagnation import describe_stagnation
from thespis.evaluation.value_range import ValueWatch
from thespis.runs.events import EventBus
from thespis.runs.store import RunDirectory
from thespis.runs.system_info import describe_device
from thespis.runtime.callbacks import raising_callback_errors
from thespis.runtime.distributed import gather_arrays, is_main_process
from thespis.runtime.interrupts import AbandonedError, InterruptWatch, catch_interrupts
from thespis.training.assembly import AssembledRun, schedule_from
from thespis.training.components import LearnerState, with_array_leaves
from thespis.training.driver import TrainingLoop, run_loop, save_best, save_checkpoint
from thespis.training.initial_states import INITIAL_SOURCES, InitialStates
from thespis.training.options import options_from

CARD_EPISODES = 500
"""Conversations of a report card: at most ten for each episode of an evaluation, as shares need more than returns."""

_NO_STATES = InitialStates({}, {}, [])


@raising_callback_errors()
def train_run(
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
    starts from ``initial`` states, if there are any.
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
            _evaluate_untrained(run, assembled, method, loop.learner_state(carry).method)
        end = run_loop(loop, carry, schedule_from(config, interval), run, bus, evaluate, log_conversations)
        step, reason, trained = end.step, end.reason, time.perf_counter()
        if reason != "interrupted":
            states = gather_arrays(loop.learner_state(end.carry).method)
            _evaluate_held_out(run, assembled, bus, step, states)
            if make_envs is not None:
                score = evaluate_policy(method, states, make_envs, config["seeds"], options.episodes)
                greedy, sampled = (score[mode]["scores"] for mode in ("greedy", "sampled"))
                score |= _baselines(run, make_envs, assembled.spec) | _report_card(run, assembled, method, states)
                run.write_json("final.json", {"step": step} | score)
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
    if assembled.make_envs is not None and contains_text(assembled.spec.action_space):
        seeds, episodes = run.config["seeds"], options_from(run.config).episodes
        result = untrained_baseline(method, gather_arrays(states), assembled.make_envs, seeds, episodes)
        run.write_json("untrained.json", result)


def _baselines(run: RunDirectory, make_envs: Callable[[int], HostEnvironment], spec: EnvSpec) -> dict[str, Any]:
    """What stands beside the final result: of texts the untrained model, else random play and random opponents."""
    if contains_text(spec.action_space):
        untrained = run.read_json("untrained.json")
        return {"untrained": untrained} if untrained else {}  # runs of earlier versions have none
    random = random_baseline(make_envs, run.config["seeds"], options_from(run.config).episodes)
    seats = results_against_random(run)
    return {"random": random} | ({"vs_random": seats} if seats else {})


def _report_card(run: RunDirectory, assembled: AssembledRun, method: Method, states: PyTree) -> dict[str, Any]:
    """The report card of a conversation whose rules define one; nothing for other environments."""
    env = assembled.compiled_env
    if not has_report_card(env):
        return {}
    episodes = options_from(run.config).episodes
    episodes = max(episodes, min(10 * episodes, CARD_EPISODES))
    return {"report_card": report_card(env, method, states, episodes, seeds=run.config["seeds"]).to_json()}


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
    if earlier and earlier.is_reduced:
        raise UserError(f"{run.path} belongs to a trial and holds only what was learned: it cannot be continued")
    checkpoint = earlier.load_checkpoint(loop.checkpoint_template(), padded=".learner.store") if earlier else None
    step = int(checkpoint.meta["step"]) if checkpoint else 0
    final = None
    if earlier:
        if checkpoint is None and any(name in run.config for name in INITIAL_SOURCES):
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
        learner = loop.learner_state(carry)
        states = gather_arrays((learner.method, learner.feedback, learner.curriculum))
        carry = loop.with_states(carry, initial.fill(LearnerState(*states, store=())))
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


def _conversation_logger(run: RunDirectory, assembled: AssembledRun, method: Method) -> Callable[[int, PyTree], None]:
    """A function of step and states that stores sample conversations, or does nothing if the actions are no text."""
    make_envs, seeds = assembled.make_envs, run.config["seeds"]
    env = assembled.compiled_env
    if isinstance(env, ConversationEnv):
        return lambda step, states: run.append_conversations(
            step, sample_seats(env, method, gather_arrays(states), seeds[0])
        )
    if make_envs is None or not isinstance(assembled.spec.action_space, Text):
        return lambda step, states: None
    return lambda step, states: run.append_conversations(
        step, sample_conversations(method, gather_arrays(states), make_envs, seeds)
    )

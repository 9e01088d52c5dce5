"""Checks of the installation: every method on a probe environment, and common mistakes of RL implementations."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from thespis.cli.doctor_checks import invariant_checks
from thespis.cli.doctor_checks.check import CheckFailure, CheckResult, TimeBudget, run_check, skipped_check
from thespis.cli.doctor_checks.game_checks import game_checks
from thespis.cli.doctor_checks.language_checks import language_checks
from thespis.cli.doctor_checks.probe_cases import ProbeCase, probe_cases
from thespis.cli.doctor_checks.probe_training import VALUE_TOLERANCE, ProbeResult, evaluate_on_probe, train_and_evaluate
from thespis.core.contracts import Method
from thespis.core.records import Transition, View
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import LoggedTransitions
from thespis.envs.probes.registry import PROBES
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.imitation.bc import BC
from thespis.training.components import Components
from thespis.training.logged_loop import LoggedLoop

_NUM_SEEDS = 3
_CHECKS_PER_CLEARING = 24


def check_installation(budget: TimeBudget, *, short: bool = False) -> list[CheckResult]:
    """Run invariants and probe cases within the time budget; ``short``: only the first few."""
    jobs: list[tuple[str, Callable[[], str]]] = [
        ("episodes apart", invariant_checks.check_gae_boundaries),
        ("advantages", invariant_checks.check_advantage_normalization),
        ("padding", invariant_checks.check_return_padding),
        ("divergence", invariant_checks.check_kl_gradient),
    ]
    probe_jobs = [(f"{t.method.name} on {t.probe}", lambda t=t: _check_probe_case(t)) for t in probe_cases()]
    if short:
        return _run_checks(jobs + probe_jobs[:2], budget)
    data_jobs: list[tuple[str, Callable[[], str]]] = [
        ("replay", invariant_checks.check_replay_windows),
        ("seeds", invariant_checks.check_seed_streams),
        ("ratios", invariant_checks.check_zero_learning_rate),
    ]
    jobs += [
        *probe_jobs[:2],
        *data_jobs,
        *probe_jobs[2:5],
        ("bc on match", _check_behavior_cloning),
        *probe_jobs[5:],
        *game_checks(),
        *language_checks(),
    ]
    return _run_checks(jobs, budget)


def _run_checks(jobs: list[tuple[str, Callable[[], str]]], budget: TimeBudget) -> list[CheckResult]:
    """Run checks in parallel, since compilation dominates; those that would not end in time are skipped."""
    longest, lock = 0.0, threading.Lock()

    def run_job(job: tuple[str, Callable[[], str]]) -> CheckResult:
        nonlocal longest
        name, function = job
        if budget.seconds_left <= longest:
            return skipped_check(name, "no time left")
        with _on_cpu():
            check = run_check(name, function)
        with lock:
            longest = max(longest, check.seconds)
        return check

    checks = []
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        for start in range(0, len(jobs), _CHECKS_PER_CLEARING):
            if start:
                jax.clear_caches()  # compiled programs of all checks together take gigabytes
            checks += pool.map(run_job, jobs[start : start + _CHECKS_PER_CLEARING])
    return checks


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Context on the CPU: probes are too small for an accelerator, where compilation would take all the time."""
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:  # the CPU backend is disabled
        yield
        return
    with jax.default_device(cpu):
        yield


def _check_probe_case(case: ProbeCase) -> str:
    result = train_and_evaluate(case.method, PROBES[case.probe], case.steps, num_seeds=_NUM_SEEDS)
    return describe_probe_result(case.method, case.probe, result)


def describe_probe_result(method: Method, probe: str, result: ProbeResult) -> str:
    """A probe result in words. Raises :class:`CheckFailure` if values or actions are wrong."""
    purpose = f"detects: {PROBES[probe].detects}"
    error, wrong_actions = result.median_error, result.wrong_actions
    if wrong_actions:
        raise CheckFailure(
            f"{method.name} acts wrongly at {_format_observation(wrong_actions[0].observation)}; {purpose}; report it"
        )
    if np.isnan(error):
        return f"acts correctly; {purpose}"
    if error > VALUE_TOLERANCE:
        median = np.median(result.values, axis=0)
        worst = int(np.abs(median - [expected.value for expected in result.expected]).argmax())
        expected = result.expected[worst]
        raise CheckFailure(
            f"{method.name} values {_format_observation(expected.observation)} at {median[worst]:.3g} and it is worth "
            f"{expected.value:.3g}; {purpose}; report it"
        )
    return f"values within {max(error, 0.0001):.2%} of the known ones, and correct actions; {purpose}"


def _format_observation(observation: Any) -> str:
    return " ".join(str(np.asarray(leaf).tolist())[:60] for leaf in jax.tree.leaves(observation))


def _check_behavior_cloning() -> str:
    """Check that behaviour cloning imitates the data."""
    probe, method = PROBES["match"], BC(learning_rate=1e-2, hidden_sizes=(16,), feed=LoggedTransitions(batch_size=32))
    expected = probe.known_values(0.0)
    observations = np.stack([e.observation for e in expected])
    view, ones = View(observations), np.ones(len(expected), bool)
    steps = Transition(
        view, np.stack([e.action for e in expected]), np.ones(len(expected), "float32"), ones, ~ones, view, ones
    )
    loop = LoggedLoop(
        Components(method, EnvironmentReward(), FixedCurriculum()),
        probe.environment.spec,
        steps,
        list(range(_NUM_SEEDS)),
    )
    carry = loop.advance(loop.init(), 200)
    return describe_probe_result(method, "match", evaluate_on_probe(method, probe, loop.learner_state(carry).method))

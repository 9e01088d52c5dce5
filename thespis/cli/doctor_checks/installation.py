"""What the doctor tries of this installation: every method, and every mistake that recurs in this field."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from thespis.cli.doctor_checks import laws
from thespis.cli.doctor_checks.check import Check, Clock, Failed, look, skipped
from thespis.cli.doctor_checks.learning import TOLERANCE, Learnt, examine, learn
from thespis.cli.doctor_checks.solving import solvers
from thespis.cli.doctor_checks.speaking import speakers
from thespis.cli.doctor_checks.trials import Trial, trials
from thespis.core.contracts import Method
from thespis.core.feeds import Logged
from thespis.core.records import Transition, View
from thespis.curricula.fixed import Fixed
from thespis.envs.probes.registry import PROBES
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.logged import LoggedLoop
from thespis.loops.parts import Parts
from thespis.methods.imitation.bc import BC

_SEEDS = 3


def check_installation(clock: Clock, *, short: bool = False) -> list[Check]:
    """Laws and trials, as many as there is time for; ``short``: those of the first seconds."""
    jobs: list[tuple[str, Callable[[], str]]] = [
        ("episodes apart", laws.episodes_apart),
        ("advantages", laws.one_advantage_for_any_split),
        ("padding", laws.padding_counts_nothing),
        ("divergence", laws.divergence_has_its_gradient),
    ]
    tried = [(f"{t.method.name} on {t.probe}", lambda t=t: _try(t)) for t in trials()]
    if short:
        return _in_time(jobs + tried[:2], clock)
    data: list[tuple[str, Callable[[], str]]] = [
        ("replay", laws.replay_keeps_episodes_whole),
        ("seeds", laws.seeds_share_no_stream),
        ("ratios", laws.learning_nothing_changes_nothing),
    ]
    jobs += [*tried[:2], *data, *tried[2:5], ("bc on match", _clone), *tried[5:], *solvers(), *speakers()]
    return _in_time(jobs, clock)


def _in_time(jobs: list[tuple[str, Callable[[], str]]], clock: Clock) -> list[Check]:
    """Make the checks side by side, as compiling takes the time; those that would not end in time are skipped."""
    longest, lock = 0.0, threading.Lock()

    def one(job: tuple[str, Callable[[], str]]) -> Check:
        nonlocal longest
        name, question = job
        if clock.left <= longest:
            return skipped(name, "no time left")
        with _on_cpu():
            check = look(name, question)
        with lock:
            longest = max(longest, check.seconds)
        return check

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        return list(pool.map(one, jobs))


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Probes are too small for an accelerator: compiling for it would take all the time."""
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:  # the user allows no CPU
        yield
        return
    with jax.default_device(cpu):
        yield


def _try(trial: Trial) -> str:
    learnt = learn(trial.method, PROBES[trial.probe], trial.steps, seeds=_SEEDS)
    return verdict(trial.method, trial.probe, learnt)


def verdict(method: Method, probe: str, learnt: Learnt) -> str:
    """What was learnt, in words. Raises :class:`Failed` if it is not what is known."""
    promise = f"stands against: {PROBES[probe].catches}"
    error, wrong = learnt.error, learnt.wrong
    if wrong:
        raise Failed(f"{method.name} does the wrong thing at {_shown(wrong[0].observation)}; {promise}; report it")
    if np.isnan(error):
        return f"does the right thing; {promise}"
    if error > TOLERANCE:
        middle = np.median(learnt.values, axis=0)
        at = int(np.abs(middle - [known.value for known in learnt.known]).argmax())
        known = learnt.known[at]
        raise Failed(
            f"{method.name} values {_shown(known.observation)} at {middle[at]:.3g} and it is worth "
            f"{known.value:.3g}; {promise}; report it"
        )
    return f"values within {max(error, 0.0001):.2%} of the known ones, and the right actions; {promise}"


def _shown(observation: Any) -> str:
    return " ".join(str(np.asarray(leaf).tolist())[:60] for leaf in jax.tree.leaves(observation))


def _clone() -> str:
    """Behaviour cloning does what the data does."""
    probe, method = PROBES["match"], BC(learning_rate=1e-2, hidden=(16,), feed=Logged(batch=32))
    known = probe.known(0.0)
    seen = np.stack([k.observation for k in known])
    view, yes = View(seen), np.ones(len(known), bool)
    steps = Transition(view, np.stack([k.action for k in known]), np.ones(len(known), "float32"), yes, ~yes, view, yes)
    loop = LoggedLoop(Parts(method, EnvironmentReward(), Fixed()), probe.environment.spec, steps, list(range(_SEEDS)))
    carry = loop.advance(loop.init(), 200)
    return verdict(method, "match", examine(method, probe, loop.learner(carry).method))

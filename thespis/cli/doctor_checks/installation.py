"""What the doctor tries of this installation: every method, and every mistake that recurs in this field."""

from __future__ import annotations

import contextlib
import dataclasses
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
from thespis.core.contracts import Method
from thespis.core.feeds import Logged, Replay, Rollouts
from thespis.core.records import Transition, View
from thespis.critics.matching import Matched
from thespis.critics.mixing import Monotonic
from thespis.curricula.fixed import Fixed
from thespis.envs.probes.registry import PROBES
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.contrast import Contrast
from thespis.learners.roles import ActionRoles
from thespis.learners.temperature import FixedTemperature
from thespis.loops.logged import LoggedLoop
from thespis.loops.parts import Parts
from thespis.methods.imitation.bc import BC
from thespis.methods.online.a2c import A2C
from thespis.methods.online.clam import CLAM
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.dqn import DQN
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.es import ES
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.nq import NQ
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3
from thespis.methods.teams.bayesian import Bayesian
from thespis.methods.teams.decentralized import Decentralized, Surrogate
from thespis.methods.teams.ippo import IPPO
from thespis.methods.teams.maddpg import MADDPG
from thespis.methods.teams.mappo import MAPPO
from thespis.methods.teams.masac import MASAC
from thespis.methods.teams.qmix import QMIX
from thespis.methods.teams.rode import RODE
from thespis.methods.teams.vdn import VDN
from thespis.nets.body import GRU

_SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Trial:
    """A small method that must learn a probe within ``steps`` environment steps."""

    method: Method
    probe: str
    steps: int


def trials() -> list[Trial]:
    """Every method with a critic, on worlds that together show all that may go wrong; the most telling come first."""
    base: dict[str, Any] = {"learning_rate": 1e-2, "discount": 0.9, "hidden": (16,)}
    fresh: dict[str, Any] = base | {"feed": Rollouts(length=32, envs=8)}
    short: dict[str, Any] = base | {"learning_rate": 5e-3, "feed": Rollouts(length=4, envs=8)}
    replayed = Replay(capacity=4_000, batch=64, warmup=8, envs=8)
    stored: dict[str, Any] = base | {"feed": replayed, "target_rate": 0.1}
    hard: dict[str, Any] = stored | {"temperature": FixedTemperature(0.0)}  # no bonus: values are those of the reward
    sampled: dict[str, Any] = hard | {"learning_rate": 3e-3, "feed": dataclasses.replace(replayed, batch=256)}
    dsac = DSAC(**sampled, actor_learning_rate=3e-3, reward_scale=1.0, least_deviation=0.1)
    quick: dict[str, Any] = base | {"target_every": 20, "epsilon_updates": 300.0, "feed": replayed}
    level = QMIX(**quick, mixer=Monotonic(8, (16,)), utility=Matched())
    tuned = PPO(**fresh, epochs=4)
    dqn = DQN(**quick | {"feed": dataclasses.replace(replayed, length=3)}, duelling=True)
    return [
        Trial(tuned, "late", 20_000),
        Trial(SAC(**hard), "constant-continuous", 8_000),
        Trial(dqn, "masked", 8_000),
        Trial(A2C(**fresh, trace=0.9), "constant-1000", 100_000),
        Trial(TD3(**stored), "ending-continuous", 8_000),
        Trial(DDPG(**stored), "match-continuous", 8_000),
        Trial(PPO(**fresh, epochs=4, memory=GRU(16)), "maze", 30_000),
        Trial(tuned, "bound", 30_000),
        Trial(CLAM(tuned, Contrast((16,), window=8)), "bound", 30_000),
        Trial(SAC(**hard), "signal", 8_000),
        Trial(SACV(**hard), "choice", 8_000),
        Trial(IMPALA(**short, trace=0.9, optimiser="adam"), "pair", 60_000),
        Trial(NQ(**fresh, trace=0.0, target_every=20, epsilon_updates=30.0), "choice", 30_000),
        Trial(dsac, "signal-continuous", 8_000),
        Trial(ES(learning_rate=0.05, deviation=0.1), "amount", 6_400),
        Trial(QMIX(**quick, mixer=Monotonic(8, (16,))), "two-step", 8_000),
        Trial(VDN(**quick), "shifts", 8_000),
        Trial(RODE(level, level, ActionRoles(count=2, settled=50.0), every=1), "two-step", 8_000),
        Trial(MAPPO(tuned), "shifts", 20_000),
        Trial(MASAC(SAC(**hard)), "shifts", 8_000),
        Trial(IPPO(tuned), "shifts", 20_000),
        Trial(MADDPG(DDPG(**stored)), "meeting", 8_000),
        Trial(Decentralized(Surrogate(PPO(**fresh, epochs=4, clip=1e9))), "shifts", 20_000),
        Trial(Bayesian(tuned), "shifts", 20_000),
    ]


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
    jobs += [*tried[:2], *data, *tried[2:5], ("bc on match", _clone), *tried[5:], *solvers()]
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

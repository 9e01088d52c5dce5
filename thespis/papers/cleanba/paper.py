"""Cleanba: a reproducible and efficient distributed reinforcement learning platform."""

from __future__ import annotations

from typing import Any

from thespis.core.contracts import Method
from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.benches.on_policy import BENCH
from thespis.evidence.claims import DifferentParameters, EqualParameters, NonInferiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.ppo import PPO

_PPO = PPO(learning_rate=1e-3, num_epochs=4, feed=Rollouts(num_steps=32, num_envs=8))
_IMPALA = IMPALA(learning_rate=1e-3, optimizer="adam", ent_coef=0.01, feed=Rollouts(num_steps=8, num_envs=8))
_OPTIONS = {"report_every": 5_120}  # acting and learning are synchronized at every row of metrics: here after 20 phases
_JITTER_OPTIONS = _OPTIONS | {"jitter": 0.05}
_LONG_JITTER_OPTIONS = _OPTIONS | {"jitter": 0.5}
"""For twenty seeds that train together: their phases take longer than delays of 50 ms."""


def _arms(name: str, method: Method, **options: Any) -> tuple[Arm, ...]:
    """Two arms with the same settings: undisturbed, and with acting and learning delayed at random."""
    return Arm(name, method, _OPTIONS | options), Arm(f"{name}, delayed", method, _JITTER_OPTIONS | options)


_ARMS = (
    *_arms("PPO, fixed lag", _PPO, policy_lag=1),
    *_arms("PPO, newest", _PPO, policy_lag=3, latest_policy=True),
    *_arms("PPO, synchronous", _PPO, policy_lag=0),
    Arm("IMPALA, fixed lag", _IMPALA, _JITTER_OPTIONS | {"policy_lag": 1}),
    Arm("IMPALA, newest", _IMPALA, _JITTER_OPTIONS | {"policy_lag": 3, "latest_policy": True}),
)
_FIXED: dict[str, Any] = {"policy_lag": 1}
_NEWEST: dict[str, Any] = {"policy_lag": 3, "latest_policy": True}
_SMALL_ARMS = (
    Arm("PPO, fixed lag", _PPO, _OPTIONS | _FIXED),
    Arm("PPO, fixed lag, delayed", _PPO, _LONG_JITTER_OPTIONS | _FIXED),
    Arm("PPO, newest", _PPO, _OPTIONS | _NEWEST),
    Arm("PPO, newest, delayed", _PPO, _LONG_JITTER_OPTIONS | _NEWEST),
    Arm("PPO, synchronous", _PPO, _OPTIONS | {"policy_lag": 0}),
)

PAPER = Paper(
    id="cleanba",
    name="Cleanba",
    citation=Citation(
        "Cleanba: A Reproducible and Efficient Distributed Reinforcement Learning Platform",
        "Huang et al.",
        2023,
        "arXiv:2310.00036",
    ),
    family="on-policy-ac",
    summary="Actors and learner run at the same time, but the acting policy is always a fixed number of updates old, "
    "so which policy collects which batch does not depend on their speed.",
    claim="Training is reproducible whatever the hardware's speed, with scores equal to or above those of "
    "unsynchronized IMPALA and of synchronous PPO, in less time.",
    parts=(
        "thespis.training.host_loop:HostLoop",
        "thespis.training.policy_lag:FixedLag",
        "thespis.training.policy_lag:BoundedLag",
        "thespis.methods.online.ppo:PPO",
        "thespis.methods.online.impala:IMPALA",
    ),
    command="thespis train ppo --env gymnasium:CartPole-v1 --policy-lag 1 --jitter 0.01",
    miniature=BENCH.trial(
        arms=_SMALL_ARMS,
        envs=("gymnasium:CartPole-v1",),
        steps=20_480,
        headline=EqualParameters("PPO, fixed lag", "PPO, fixed lag, delayed", 0.0),
        mechanisms=(DifferentParameters("PPO, newest", "PPO, newest, delayed", 1e-3),),
        context=(
            Comparison("PPO, fixed lag, delayed", "PPO, synchronous", final_return()),
            Comparison("PPO, fixed lag, delayed", "PPO, newest, delayed", final_return()),
        ),
        num_episodes=20,
        looks=plan_looks((20,)),
    ),
    remarks="The headline is what the fixed lag is for: the same trained parameters, bit for bit, however long acting "
    "and learning take. Random delays of up to half a second before every phase of acting and of learning replace "
    "hardware of uneven speed; the seeds of an arm train together and meet the same delays. The arms called newest act "
    "with whatever policy is ready, at most three updates old, as actor-learners with a bounded queue do. Their "
    "parameters must differ, or the delays would change nothing for anybody: on twenty tuning seeds and 5,120 steps, "
    "delays of 50 ms changed none of them and delays of half a second all, by at least 0.07. The environment is "
    "CartPole as a host environment, since a fixed lag needs a loop in which acting and learning overlap; exact claims "
    "need no headroom. Returns are context: an earlier trial by protocol 1 claimed scores within 50 of each other, for "
    "which its five seeds, with returns between 137 and 500, were too few, and here they are undecided with twenty. "
    "Time is no claim, as seeds share a clock; in that trial, where they trained one after the other, all five were "
    "faster with a fixed lag than synchronously (6 seconds instead of 9). IMPALA, which the paper also rebuilds, is in "
    "the full trial alone. A row of metrics after every phase would make acting wait for learning, so that there is "
    "one after every 20. Not tried: several devices, which are not available here.",
    fidelity=(
        Fidelity("age of the acting policy", "one update, from the second rollout on, whatever takes longer"),
        Fidelity("acting and learning", "threads with queues of length one for parameters and for rollouts"),
        Fidelity("synchronous rival", "the same code without concurrency"),
        Fidelity("actor threads", "two, each with its own environments", "one"),
        Fidelity("devices", "several, gradients averaged over them", "one processor"),
        Fidelity("epochs and minibatches of PPO", "4 and 4, lambda 0.95, values not clipped"),
        Fidelity("clip range and entropy", "0.1 and 0.01", "0.2 and 0"),
        Fidelity("normalized advantages", "per minibatch", "per rollout"),
        Fidelity("learning rate", "falls linearly to 0", "constant"),
        Fidelity("environments", "Atari games by EnvPool, 50 million steps", "CartPole-v1 by Gymnasium, 20,480 steps"),
        Fidelity(
            "uneven speed", "machines and GPUs of several kinds", "random delays of up to 0.5 s before each phase"
        ),
    ),
    full=Trial(
        arms=_ARMS,
        envs=("gymnasium:HalfCheetah-v5", "gymnasium:Hopper-v5"),
        steps=1_000_000,
        claims=(
            EqualParameters("PPO, fixed lag", "PPO, fixed lag, delayed", 0.0),
            NonInferiority("PPO, fixed lag, delayed", "PPO, newest, delayed", final_return(), 100.0),
        ),
        seeds_per_look=3,
        max_looks=1,
    ),
)

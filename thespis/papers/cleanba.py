"""Cleanba: a reproducible and efficient distributed reinforcement learning platform."""

from __future__ import annotations

from typing import Any

from thespis.core.contracts import Method
from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import Better, Different, NoWorse, Same
from thespis.evidence.measures import final_return, seconds
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.ppo import PPO

_PPO = PPO(learning_rate=1e-3, epochs=4, feed=Rollouts(length=32, envs=8))
_IMPALA = IMPALA(learning_rate=1e-3, optimiser="adam", entropy_weight=0.01, feed=Rollouts(length=8, envs=8))
_OPTIONS = {"report_every": 5_120}  # acting and learning meet at every row of metrics: here after 20 phases
_DELAYED = _OPTIONS | {"jitter": 0.05}


def _arms(name: str, method: Method, **how: Any) -> tuple[Arm, ...]:
    """The same twice: undisturbed, and with acting and learning delayed at random."""
    return Arm(name, method, _OPTIONS | how), Arm(f"{name}, delayed", method, _DELAYED | how)


_ARMS = (
    *_arms("PPO, fixed lag", _PPO, lag=1),
    *_arms("PPO, newest", _PPO, lag=3, newest=True),
    *_arms("PPO, synchronous", _PPO, lag=0),
    Arm("IMPALA, fixed lag", _IMPALA, _DELAYED | {"lag": 1}),
    Arm("IMPALA, newest", _IMPALA, _DELAYED | {"lag": 3, "newest": True}),
)
_MARGIN = 50.0

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
    does="Actors and learner run at the same time, yet the policy that acts is always a fixed number of updates old: "
    "which one made which batch does not depend on who is faster.",
    claim="Reproducible whatever the hardware's speed, with scores equal to or above those of unsynchronised IMPALA "
    "and of synchronous PPO, in less time.",
    parts=(
        "thespis.loops.host:HostLoop",
        "thespis.loops.pace:FixedLag",
        "thespis.loops.pace:NewestWithin",
        "thespis.methods.online.ppo:PPO",
        "thespis.methods.online.impala:IMPALA",
    ),
    use="thespis train ppo --env gymnasium:CartPole-v1 --lag 1 --jitter 0.01",
    miniature=Trial(
        arms=_ARMS,
        envs=("gymnasium:CartPole-v1",),
        steps=30_720,
        claims=(
            Same("PPO, fixed lag", "PPO, fixed lag, delayed", 0.0),
            Different("PPO, newest", "PPO, newest, delayed", 1e-3),
            NoWorse("PPO, fixed lag, delayed", "PPO, synchronous, delayed", final_return(), _MARGIN),
            NoWorse("PPO, fixed lag, delayed", "PPO, newest, delayed", final_return(), _MARGIN),
            NoWorse("IMPALA, fixed lag", "IMPALA, newest", final_return(), _MARGIN),
            Better("PPO, fixed lag, delayed", "PPO, synchronous, delayed", seconds()),
        ),
        looks=1,
        episodes=10,
        apart=True,
    ),
    remarks="Delays of up to 50 ms before every phase of acting and of learning stand for hardware of uneven speed. "
    "Newest acts by whatever policy is ready, at most three updates old, as actor-learners with a bounded queue do. "
    "Equal means within 50 of 500. Several devices are out of reach here. A first start with a row of metrics after "
    "every phase was stopped: there acting waits for learning at each row, and nothing can overlap. Second look: what "
    "is not shown are equal scores. With five seeds, of which one of the lagged PPO ends at 137 and those of IMPALA "
    "between 166 and 500, a margin of 50 cannot be told from chance; no arm was found to be worse. What the lag is "
    "for, equal bits under any delay and the time that overlap saves (6 seconds in place of 9), is shown.",
    full=Trial(
        arms=_ARMS,
        envs=("gymnasium:HalfCheetah-v5", "gymnasium:Hopper-v5"),
        steps=1_000_000,
        claims=(
            Same("PPO, fixed lag", "PPO, fixed lag, delayed", 0.0),
            NoWorse("PPO, fixed lag, delayed", "PPO, newest, delayed", final_return(), 100.0),
        ),
        batch=3,
        looks=1,
    ),
)

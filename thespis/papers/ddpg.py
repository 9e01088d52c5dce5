"""Continuous control with deep reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.evidence.claims import AtLeast, Better
from thespis.evidence.control import LONG, ROBOTS, WORLDS
from thespis.evidence.measures import final_return, planned_share
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.ddpg import DDPG

_SMALL = DDPG(hidden=(64, 64), noise=0.2, noise_pull=0.15, feed=Replay(batch=64, warmup=1_000))
_LARGE = dataclasses.replace(
    _SMALL, hidden=(400, 300), actor_learning_rate=1e-4, target_rate=0.001, feed=Replay(batch=64, warmup=10_000)
)


def _arms(base: DDPG) -> tuple[Arm, ...]:
    newest = dataclasses.replace(base.feed, capacity=base.feed.batch)
    return (
        Arm("DDPG", base),
        Arm("no target nets", dataclasses.replace(base, target_rate=1.0)),
        Arm("no replay", dataclasses.replace(base, feed=newest)),
    )


_ABLATED = tuple(Better("DDPG", arm, final_return()) for arm in ("no target nets", "no replay"))

PAPER = Paper(
    id="ddpg",
    name="DDPG",
    citation=Citation(
        "Continuous control with deep reinforcement learning", "Lillicrap et al.", 2016, "arXiv:1509.02971"
    ),
    family="off-policy-ac",
    does="Off-policy deterministic policy gradient with deep networks: an action value learnt from replay with slowly "
    "moving targets, an actor that climbs it, and exploration by temporally correlated noise.",
    claim="One algorithm, network and hyperparameter set solves many physics tasks, competitive with a planner given "
    "the dynamics.",
    parts=(
        "thespis.methods.online.ddpg:DDPG",
        "thespis.actors.deterministic:DeterministicActor",
        "thespis.actors.deterministic:NoisyPolicy",
        "thespis.critics.values:PairValue",
    ),
    use="thespis train ddpg --env Pendulum-v1 --set noise=0.2 noise_pull=0.15",
    miniature=Trial(
        arms=_arms(_SMALL),
        envs=(*WORLDS, "gymnax:Reacher-misc"),
        steps=20_000,
        claims=(AtLeast("DDPG", planned_share(), 0.8), *_ABLATED),
    ),
    remarks="Competitive is read as four fifths of the way from random play to a cross-entropy planner (the paper's "
    "is iLQG) that simulates with the true dynamics, in every world. Without target nets the target moves with the "
    "net; without replay only the last 64 transitions are kept. Mountain car is left out: it is not among the paper's "
    "tasks, and whether noise finds its one distant reward is another question. Not here: learning from pixels, batch "
    "normalisation, weight decay, small last layers; the step size of the actor is 1e-3 as that of the critic, and "
    "the targets' rate 0.005, for the budget is a hundredth of the paper's. Second look: pendulum and swing-up come "
    "within 3% of the planner, reacher to 0.39 of the way, and that is budget and noise: after 100,000 steps it "
    "stands at 0.57 (5 seeds), and with white noise of 0.1 and a discount of 0.95 at 0.82.",
    full=Trial(arms=_arms(_LARGE), envs=ROBOTS, steps=LONG, claims=_ABLATED, looks=1),
)

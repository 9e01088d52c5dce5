"""Mirror descent policy optimisation, on and off policy."""

from __future__ import annotations

import dataclasses

from thespis.core.feeds import Rollouts
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.control import LARGE, LARGE_PPO, LARGE_SAC, LONG, ROBOTS, SMALL, SMALL_SAC, STEPS, WORLDS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.anchors import Proximal
from thespis.learners.held import Steps
from thespis.learners.normalisers import ReturnScale, RunningScale
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.mdpo import MDPO
from thespis.methods.online.mdpo_off import OffPolicyMDPO
from thespis.methods.online.ppo import PPO

_LONGER = 10 * STEPS
_FEED = Rollouts(length=128, envs=8)
_ON = MDPO(discount=0.97, anchor=Proximal(updates=_LONGER / 1024), minibatch=256, feed=_FEED)
_PPO = PPO(discount=0.97, observations=RunningScale(), rewards=ReturnScale(), minibatch=256, feed=_FEED)
_OFF = OffPolicyMDPO(**SMALL, temperature=FixedTemperature(0.05), hold=Steps(weight=0.25, every=250))

PAPER = Paper(
    id="mdpo",
    name="MDPO",
    citation=MDPO.citations[0],
    family="on-policy-ac",
    does="Each update solves a trust-region problem by some gradient steps, with the divergence from the policy before "
    "as a penalty whose weight grows; off policy, a soft actor-critic held to an actor of some updates ago.",
    claim="On policy no worse than PPO, off policy no worse than SAC, on continuous control; and several gradient "
    "steps to a problem are what it takes.",
    parts=(
        "thespis.methods.online.mdpo:MDPO",
        "thespis.methods.online.mdpo_off:OffPolicyMDPO",
        "thespis.learners.anchors:Proximal",
        "thespis.learners.held:Steps",
    ),
    use="thespis train mdpo --env Pendulum-v1 --set anchor.updates=100",
    miniature=Trial(
        arms=(
            Arm("on policy", _ON, steps=_LONGER),
            Arm("on policy, one pass", dataclasses.replace(_ON, epochs=1), steps=_LONGER),
            Arm("PPO", _PPO, steps=_LONGER),
            Arm("off policy", _OFF),
            Arm("SAC", SMALL_SAC),
        ),
        envs=WORLDS,
        steps=STEPS,
        claims=(
            NoWorse("on policy", "PPO", final_return(), margin=10.0),
            Better("on policy", "on policy, one pass", final_return()),
            NoWorse("off policy", "SAC", final_return(), margin=10.0),
        ),
    ),
    remarks="Two compiled worlds stand for those of MuJoCo. PPO has the scaling and the minibatches of MDPO. A return"
    " of 10 is the margin of what is no worse: less than a tenth of what separates a trained actor from an "
    "untrained one. Weights of entropy and divergence off policy are a quarter of the authors', as in the "
    "trial of SAC as first published. TRPO and Tsallis entropies are not tried. On the swing-up PPO comes out"
    " ahead of MDPO by six, which the margin allows.",
    full=Trial(
        arms=(
            Arm("on policy", MDPO(anchor=Proximal(updates=LONG / 2048))),
            Arm("PPO", LARGE_PPO),
            Arm("off policy", OffPolicyMDPO(**LARGE)),
            Arm("SAC", LARGE_SAC),
        ),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("on policy", "PPO", final_return()), Better("off policy", "SAC", final_return())),
        looks=1,
    ),
)

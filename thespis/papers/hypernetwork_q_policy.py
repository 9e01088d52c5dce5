"""Critics whose weights on the action are made from the observation."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.critics.hyper import Hypernetwork, Joined
from thespis.evidence.claims import Better
from thespis.evidence.control import LARGE, LONG, ROBOTS, SMALL, SMALL_SAC, STEPS, WORLDS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.slopes import slope_agreement
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3

_MADE, _PLAIN = Hypernetwork((32, 64), 64), Joined((195, 195))
_TD3 = TD3(**SMALL)


def _pair(name: str, method: TD3 | SAC, made: Hypernetwork, plain: Joined) -> tuple[Arm, Arm]:
    return (
        Arm(f"{name}, hypernetwork", dataclasses.replace(method, critic=made)),
        Arm(name, dataclasses.replace(method, critic=plain)),
    )


PAPER = Paper(
    id="hypernetwork-q-policy",
    name="Hypernetwork Q/policy",
    citation=Citation(
        "Recomposing the Reinforcement Learning Building Blocks with Hypernetworks",
        "Sarafian et al.",
        2021,
        "arXiv:2106.06842",
    ),
    family="architecture",
    does="A critic in which the observation makes the weights of a small net that values the action, instead of "
    "both entering one net side by side.",
    claim="TD3 and SAC learn more with it in locomotion, because the critic's slope along the action is closer to "
    "that of the true returns.",
    parts=("thespis.critics.hyper:Hypernetwork", "thespis.critics.hyper:HyperValue"),
    use="thespis train td3 --env Pendulum-v1 --set critic=Hypernetwork",
    miniature=Trial(
        arms=(*_pair("TD3", _TD3, _MADE, _PLAIN), *_pair("SAC", SMALL_SAC, _MADE, _PLAIN)),
        envs=(*WORLDS[1:], "thespis.envs.compiled.reacher:Reacher"),
        steps=STEPS,
        claims=(
            Better("TD3, hypernetwork", "TD3", final_return()),
            Better("SAC, hypernetwork", "SAC", final_return()),
            Better("TD3, hypernetwork", "TD3", slope_agreement()),
        ),
    ),
    remarks="A compiled world of one action and one of two stand for those of MuJoCo. Both kinds of critic have about"
    " forty thousand weights on the swing-up: (32, 64) units in residual blocks and 64 in the net that is "
    "made, or two layers of 195; the authors' have many millions, their rivals' far fewer. Slopes are "
    "compared with finite differences of what greedy play earned, in states of greedy play. Meta-policies "
    "(MAML, PEARL) are not tried: there is no meta-learning of policies here. In ten seeds all arms end "
    "alike. The slope of the critic that is made agrees better with that of returns in both worlds and both "
    "methods, as is claimed, but differences between seeds are as large. A likely cause is that nothing is "
    "left to gain: with two numbers of an action or one, and about forty thousand weights, a plain net's "
    "slope is good enough to reach what can be reached, while locomotion has more. The critic's code was read"
    " once more and stands.",
    full=Trial(
        arms=(
            *_pair("TD3", TD3(**LARGE), Hypernetwork(), Joined()),
            *_pair("SAC", SAC(**LARGE), Hypernetwork(), Joined()),
        ),
        envs=ROBOTS,
        steps=LONG,
        claims=(
            Better("TD3, hypernetwork", "TD3", final_return()),
            Better("SAC, hypernetwork", "SAC", final_return()),
        ),
        looks=1,
    ),
)

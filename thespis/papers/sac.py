"""Soft actor-critic with a temperature that tunes itself."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.claims import Better, Steadier
from thespis.evidence.control import (
    LARGE,
    LARGE_DDPG,
    LARGE_PPO,
    LARGE_SAC,
    LONG,
    ROBOTS,
    SMALL,
    SMALL_DDPG,
    SMALL_PPO,
    SMALL_SAC,
    STEPS,
    WORLDS,
)
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3

_SCALED = {"feedback": EnvironmentReward(0.01)}


def _arms(tuned: SAC, *others: Arm) -> tuple[Arm, ...]:
    fixed = dataclasses.replace(tuned, temperature=FixedTemperature(0.2))
    return (
        Arm("SAC", tuned),
        *others,
        Arm("fixed temperature", fixed),
        Arm("SAC, rewards by 100", tuned, _SCALED),
        Arm("fixed temperature, rewards by 100", fixed, _SCALED),
    )


_CLAIMS = (
    *(
        Better("SAC", other, measure)
        for other in ("DDPG", "TD3", "PPO")
        for measure in (final_return(), learning_area())
    ),
    Steadier("SAC", "DDPG", final_return()),
    Better("SAC, rewards by 100", "fixed temperature, rewards by 100", final_return()),
)

PAPER = Paper(
    id="sac",
    name="SAC (auto-temperature)",
    citation=Citation("Soft Actor-Critic Algorithms and Applications", "Haarnoja et al.", 2018, "arXiv:1812.05905"),
    family="off-policy-ac",
    does="Maximum-entropy off-policy actor-critic: a squashed Gaussian actor, twin soft critics, and a temperature "
    "that is tuned to hold a target entropy.",
    claim="Beats earlier on- and off-policy methods in sample efficiency and final return, with little variation "
    "across seeds; the tuned temperature needs no setting for each scale of rewards.",
    parts=(
        "thespis.methods.online.sac:SAC",
        "thespis.actors.soft:SoftActor",
        "thespis.learners.soft:SoftActorCritic",
        "thespis.learners.temperature:TunedTemperature",
    ),
    use="thespis train sac --env Pendulum-v1",
    miniature=Trial(
        arms=_arms(SMALL_SAC, Arm("DDPG", SMALL_DDPG), Arm("PPO", SMALL_PPO), Arm("TD3", TD3(**SMALL))),
        envs=WORLDS,
        steps=STEPS,
        claims=_CLAIMS,
    ),
    remarks="All arms have the same number of environment steps. A temperature is fixed at 0.2; rewards divided by "
    "100 ask what happens where nobody adapts it. The paper's tasks are harder than these two, and it finds the "
    "methods comparable on the easy ones. Robots of steel are out of reach. Second look: in a first run the "
    "temperature moved at 3e-4 beside nets at 1e-3, where the paper has one step size; from 1 it could not fall to "
    "what rewards divided by 100 ask for in 14,000 steps, and that claim was not shown (0.64). With equal step sizes "
    "it is. Not shown remains the lead over DDPG: on the pendulum every method but PPO comes to the same, on the "
    "swing-up four of ten seeds of DDPG stay below 110 and none of SAC, but ten seeds do not tell it apart.",
    full=Trial(
        arms=_arms(LARGE_SAC, Arm("DDPG", LARGE_DDPG), Arm("PPO", LARGE_PPO), Arm("TD3", TD3(**LARGE))),
        envs=ROBOTS,
        steps=LONG,
        claims=_CLAIMS,
        looks=1,
    ),
)

"""Soft actor-critic whose target values vary slowly with the action."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.claims import Better, Steadier
from thespis.evidence.control import LARGE_SAC, LONG, ROBOTS, SMALL_SAC, STEPS, WORLDS
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.bands import LowPass
from thespis.methods.online.sac import SAC


def _arms(sac: SAC) -> tuple[Arm, ...]:
    return Arm("band-limited", dataclasses.replace(sac, band=LowPass(0.2))), Arm("SAC", sac)


PAPER = Paper(
    id="band-limited-sac",
    name="Band-limited SAC",
    citation=Citation("Band-limited Soft Actor Critic Model", "Campo et al.", 2020, "arXiv:2006.11431"),
    family="off-policy-ac",
    does="Soft actor-critic whose target critics are filtered along the action, so that only what varies slowly "
    "with it reaches a target and the critics learn low frequencies first.",
    claim="Larger and steadier returns than SAC with twin critics in a number of Gym environments.",
    parts=("thespis.learners.bands:LowPass", "thespis.methods.online.sac:SAC"),
    use="thespis train sac --env Pendulum-v1 --set band=LowPass",
    miniature=Trial(
        arms=_arms(SMALL_SAC),
        envs=(*WORLDS, "thespis.envs.compiled.reacher:Reacher"),
        steps=STEPS,
        claims=(
            Better("band-limited", "SAC", final_return()),
            Better("band-limited", "SAC", learning_area()),
            Steadier("band-limited", "SAC", final_return()),
        ),
    ),
    remarks="Only the abstract and the beginning of the introduction could be read; the filter's shape and width (a "
    "normal of deviation 0.2, where actions reach from -1 to 1, by eight draws) are this project's, and so is what "
    "happens at the bounds. Compiled worlds stand for Gym's. What the paper derives for linear critics is a test: "
    "components of a value are damped by their frequency and nothing else. Robustness to noise is not tried. Ten "
    "seeds of each arm end alike in all three worlds, in return and in spread. A likely cause is that there is "
    "nothing to leave out: values of torques vary slowly in these worlds, and small nets fit slow things first by "
    "themselves, so the filter, which halves what has three to four half waves between the bounds, finds little "
    "there. A second reading of the filter against its closed form found nothing to mend.",
    full=Trial(
        arms=_arms(LARGE_SAC),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("band-limited", "SAC", final_return()), Steadier("band-limited", "SAC", final_return())),
        looks=1,
    ),
)

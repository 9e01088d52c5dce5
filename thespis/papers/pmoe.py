"""Mixtures of experts as actors of soft actor-critic."""

from __future__ import annotations

import dataclasses

from thespis.actors.experts import Experts
from thespis.core.records import Citation
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.control import LARGE_SAC, LONG, ROBOTS, SMALL_SAC, STEPS, WORLDS
from thespis.evidence.goals import WORLD, goals_visited
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.sac import SAC


def _arms(sac: SAC) -> tuple[Arm, ...]:
    return (
        Arm("mixture of experts", dataclasses.replace(sac, head=Experts())),
        Arm("mixture by its own gradient", dataclasses.replace(sac, head=Experts(routing="exact"))),
        Arm("SAC", sac),
    )


def _among_goals(sac: SAC) -> tuple[Arm, ...]:
    experts, _, one = _arms(sac)
    return tuple(dataclasses.replace(arm, name=f"{arm.name}, among goals", env=WORLD) for arm in (experts, one))


PAPER = Paper(
    id="pmoe",
    name="PMOE",
    citation=Citation(
        "Probabilistic Mixture-of-Experts for Efficient Deep Reinforcement Learning",
        "Ren et al.",
        2021,
        "arXiv:2104.09122",
    ),
    family="architecture",
    does="An actor that is a mixture of normals. Each climbs action values on its own; the chance of each follows "
    "how often its draw is the best.",
    claim="More return than unimodal actors and than other ways to learn a mixture, on six MuJoCo tasks, by experts "
    "that can be told apart.",
    parts=(
        "thespis.actors.experts:Experts",
        "thespis.actors.experts:SquashedMixture",
        "thespis.methods.online.sac:SAC",
    ),
    use="thespis train sac --env Pendulum-v1 --set head=Experts",
    miniature=Trial(
        arms=(*_arms(SMALL_SAC), *_among_goals(SMALL_SAC)),
        envs=WORLDS[1:],
        steps=STEPS,
        claims=(
            Better("mixture of experts", "SAC", final_return()),
            Better("mixture of experts", "mixture by its own gradient", final_return()),
            Better("mixture of experts, among goals", "SAC, among goals", goals_visited()),
            NoWorse("mixture of experts", "SAC", final_return(), margin=10.0),
        ),
    ),
    remarks="Abstract, introduction and a co-author's code for PPO could be read, the code for SAC could not: that "
    "all experts climb (not the best one alone) and that the entropy is that of the whole mixture is as in "
    "that code. In a first run, stopped before anything was compared, each expert's draw counted alike for "
    "entropy as for values; this has no largest value, experts fled from each other and temperatures rose a "
    "million fold. Since then draws count for entropy by their chances. The paper's rivals are Gumbel-softmax"
    " and score-ratio gradients; here it is the expectation over experts itself, differentiated exactly. A "
    "plane with four goals that are all alike is added, in which one normal cannot go to all. Mixtures in "
    "PPO, options and other mixtures are not tried. In ten seeds nothing is told apart, and among goals both "
    "arms go to one in every seed: temperatures are tuned to an entropy that a policy has which goes one way,"
    " and an expert that was the best by chance is routed to until it is the only one, as the others' draws "
    "no longer count for entropy. Nothing in the method keeps experts apart where what they reach is worth "
    "the same, except entropy, for which four goals are worth ln 4.",
    full=Trial(
        arms=_arms(LARGE_SAC),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("mixture of experts", "SAC", final_return()),),
        looks=1,
    ),
)

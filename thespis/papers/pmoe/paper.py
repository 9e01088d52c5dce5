"""Mixtures of experts as actors of soft actor-critic."""

from __future__ import annotations

import dataclasses

from thespis.actors.mixture_of_experts import MixtureOfExperts
from thespis.core.records import Citation
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS, SMALL_ENVS, SMALL_SAC, SMALL_STEPS
from thespis.evidence.measures import final_return
from thespis.evidence.multi_goal import MULTI_GOAL_ENV, num_goals_visited
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.sac import SAC


def _arms(sac: SAC) -> tuple[Arm, ...]:
    return (
        Arm("mixture of experts", dataclasses.replace(sac, policy_head=MixtureOfExperts())),
        Arm("mixture by its own gradient", dataclasses.replace(sac, policy_head=MixtureOfExperts(routing="exact"))),
        Arm("SAC", sac),
    )


def _multi_goal_arms(sac: SAC) -> tuple[Arm, ...]:
    experts, _, one = _arms(sac)
    return tuple(
        dataclasses.replace(arm, name=f"{arm.name}, among goals", env=MULTI_GOAL_ENV) for arm in (experts, one)
    )


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
    summary="The actor is a mixture of squashed normals. Each expert maximizes the action value of its own sample, and "
    "its weight follows how often its sample has the highest value.",
    claim="Higher return than unimodal actors and than other ways to train a mixture, on six MuJoCo tasks, with "
    "experts that are distinguishable.",
    parts=(
        "thespis.actors.mixture_of_experts:MixtureOfExperts",
        "thespis.actors.mixture_of_experts:SquashedNormalMixture",
        "thespis.methods.online.sac:SAC",
    ),
    command="thespis train sac --env Pendulum-v1 --set policy_head=MixtureOfExperts",
    miniature=Trial(
        arms=(*_arms(SMALL_SAC), *_multi_goal_arms(SMALL_SAC)),
        envs=SMALL_ENVS[1:],
        steps=SMALL_STEPS,
        claims=(
            Superiority("mixture of experts", "SAC", final_return()),
            Superiority("mixture of experts", "mixture by its own gradient", final_return()),
            Superiority("mixture of experts, among goals", "SAC, among goals", num_goals_visited()),
            NonInferiority("mixture of experts", "SAC", final_return(), margin=10.0),
        ),
    ),
    remarks="The abstract, the introduction and a co-author's code for PPO were available, the code for SAC was not. "
    "As in that code, all experts are trained (not only the best one), and the entropy is that of the whole mixture. "
    "In a first run, stopped before anything was compared, the experts' samples had equal weight in the entropy term, "
    "as in the value term. This objective has no maximum: experts moved away from each other, and temperatures rose a "
    "millionfold. Since then the entropy term weights samples by their experts' probabilities. The paper compares with "
    "Gumbel-softmax and score-ratio gradients; here the comparison is the exact gradient of the expectation over "
    "experts (the arm mixture by its own gradient). A plane with four equally good goals is added, where one normal "
    "cannot go to all. Mixtures in PPO, options and other mixtures are not tested. Not shown: any difference between "
    "the arms, in ten seeds. In the plane, both arms go to only one goal in every seed. Likely cause: the temperature "
    "is tuned to an entropy that a policy toward one goal reaches, and an expert that was the best by chance is chosen "
    "until it is the only one, because the samples of the others no longer count for the entropy. Where goals are "
    "equally good, nothing in the method keeps experts apart except the entropy, for which four goals are worth ln 4.",
    full=Trial(
        arms=_arms(LARGE_SAC),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("mixture of experts", "SAC", final_return()),),
        max_looks=1,
    ),
)

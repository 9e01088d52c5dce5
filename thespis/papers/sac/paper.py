"""Soft actor-critic with a tuned temperature."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.claims import LowerVariance, Superiority
from thespis.evidence.continuous_control import (
    LARGE_DDPG,
    LARGE_PPO,
    LARGE_SAC,
    LARGE_SETTINGS,
    LARGE_STEPS,
    MUJOCO_ENVS,
    SMALL_DDPG,
    SMALL_ENVS,
    SMALL_PPO,
    SMALL_SAC,
    SMALL_SETTINGS,
    SMALL_STEPS,
)
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3

_SCALED_REWARD_OPTIONS = {"feedback": EnvironmentReward(0.01)}


def _arms(sac: SAC, *baselines: Arm) -> tuple[Arm, ...]:
    fixed = dataclasses.replace(sac, temperature=FixedTemperature(0.2))
    return (
        Arm("SAC", sac),
        *baselines,
        Arm("fixed temperature", fixed),
        Arm("SAC, rewards by 100", sac, _SCALED_REWARD_OPTIONS),
        Arm("fixed temperature, rewards by 100", fixed, _SCALED_REWARD_OPTIONS),
    )


_CLAIMS = (
    *(
        Superiority("SAC", other, measure)
        for other in ("DDPG", "TD3", "PPO")
        for measure in (final_return(), learning_curve_auc())
    ),
    LowerVariance("SAC", "DDPG", final_return()),
    Superiority("SAC, rewards by 100", "fixed temperature, rewards by 100", final_return()),
)

PAPER = Paper(
    id="sac",
    name="SAC (auto-temperature)",
    citation=Citation("Soft Actor-Critic Algorithms and Applications", "Haarnoja et al.", 2018, "arXiv:1812.05905"),
    family="off-policy-ac",
    summary="Maximum-entropy off-policy actor-critic: a squashed Gaussian actor, twin soft critics, and a temperature "
    "that is tuned to reach a target entropy.",
    claim="Beats earlier on- and off-policy methods in sample efficiency and final return, with little variation "
    "across seeds; the tuned temperature needs no setting for each reward scale.",
    parts=(
        "thespis.methods.online.sac:SAC",
        "thespis.actors.stochastic:SoftActor",
        "thespis.learners.off_policy.soft_actor_critic:SoftActorCritic",
        "thespis.learners.off_policy.temperature:TunedTemperature",
    ),
    command="thespis train sac --env Pendulum-v1",
    miniature=Trial(
        arms=_arms(SMALL_SAC, Arm("DDPG", SMALL_DDPG), Arm("PPO", SMALL_PPO), Arm("TD3", TD3(**SMALL_SETTINGS))),
        envs=SMALL_ENVS,
        steps=SMALL_STEPS,
        claims=_CLAIMS,
    ),
    remarks="All arms have the same number of environment steps. The fixed temperature is 0.2. The arms with rewards "
    "divided by 100 test what happens if the setting is not adapted to the reward scale. The paper's tasks are harder "
    "than these two, and it finds the methods comparable on the easy ones. Real robots are out of reach. Not shown: "
    "the lead over DDPG. On the pendulum every method but PPO reaches about the same return. On the swing-up four of "
    "ten seeds of DDPG stay below 110 and none of SAC, but ten seeds do not decide it. Checked again: in a first run "
    "the temperature's learning rate was 3e-4 and the networks' 1e-3, where the paper has the same for both. The "
    "temperature could not fall from 1 to the level that rewards divided by 100 need within 14,000 steps, and that "
    "claim was not shown (0.64). With equal learning rates it is.",
    full=Trial(
        arms=_arms(LARGE_SAC, Arm("DDPG", LARGE_DDPG), Arm("PPO", LARGE_PPO), Arm("TD3", TD3(**LARGE_SETTINGS))),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=_CLAIMS,
        max_looks=1,
    ),
)

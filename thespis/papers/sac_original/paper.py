"""Soft actor-critic as first published, with a state value."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.claims import LowerVariance, Superiority
from thespis.evidence.continuous_control import (
    LARGE_DDPG,
    LARGE_PPO,
    LARGE_SETTINGS,
    LARGE_STEPS,
    MUJOCO_ENVS,
    SMALL_DDPG,
    SMALL_ENVS,
    SMALL_PPO,
    SMALL_SETTINGS,
    SMALL_STEPS,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3


def _arms(sac: SACV, ddpg: DDPG, ppo: PPO, td3: TD3) -> tuple[Arm, ...]:
    deterministic = dataclasses.replace(td3, target_policy_noise=0.0, policy_delay=1)
    return Arm("SAC", sac), Arm("DDPG", ddpg), Arm("PPO", ppo), Arm("deterministic", deterministic)


_CLAIMS = (
    Superiority("SAC", "DDPG", final_return()),
    Superiority("SAC", "PPO", final_return()),
    LowerVariance("SAC", "deterministic", final_return()),
)

PAPER = Paper(
    id="sac-original",
    name="SAC",
    citation=Citation(
        "Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL", "Haarnoja et al.", 2018, "arXiv:1801.01290"
    ),
    family="off-policy-ac",
    summary="The first version of soft actor-critic: a stochastic actor that maximizes return and entropy, twin soft "
    "critics, and a state value with a target network.",
    claim="Beats prior on- and off-policy methods on continuous control, with very similar results across seeds.",
    parts=(
        "thespis.methods.online.sac_v:SACV",
        "thespis.critics.value_functions:StateValue",
        "thespis.learners.off_policy.temperature:FixedTemperature",
    ),
    command="thespis train sac-v --env Pendulum-v1",
    miniature=Trial(
        arms=_arms(
            SACV(**SMALL_SETTINGS, temperature=FixedTemperature(0.05)), SMALL_DDPG, SMALL_PPO, TD3(**SMALL_SETTINGS)
        ),
        envs=SMALL_ENVS,
        steps=SMALL_STEPS,
        claims=_CLAIMS,
    ),
    remarks="The deterministic arm stands for the paper's ablation (section 5.2): two critics, no entropy, Gaussian "
    "exploration noise. Unlike there, its target networks are updated slowly, and its actor has one too. The entropy "
    "coefficient is 0.05 in both environments (a reward scale of 20); the paper tunes the scale for some of its tasks. "
    "Not shown: the lead over DDPG and the smaller spread across seeds. Checked again: at equal steps PPO is far "
    "behind; DDPG and the deterministic arm are not, because on the pendulum all three reach about the same return. On "
    "the swing-up nine of ten seeds of SAC end between 163 and 170, those of the deterministic arm between 31 and 169, "
    "and those of DDPG between 26 and 172. This agrees with the paper, but over both environments ten seeds leave the "
    "lower bound of the claim on spread at 0.499.",
    full=Trial(
        arms=_arms(SACV(**LARGE_SETTINGS), LARGE_DDPG, LARGE_PPO, TD3(**LARGE_SETTINGS)),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=_CLAIMS,
        max_looks=1,
    ),
)

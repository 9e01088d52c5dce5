"""Mirror descent policy optimization, on-policy and off-policy."""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Rollouts
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.continuous_control import (
    LARGE_PPO,
    LARGE_SAC,
    LARGE_SETTINGS,
    LARGE_STEPS,
    MUJOCO_ENVS,
    SMALL_ENVS,
    SMALL_SAC,
    SMALL_SETTINGS,
    SMALL_STEPS,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.learners.off_policy.trust_region import MirrorDescentStep
from thespis.learners.on_policy.policy_regularizers import MirrorDescentKL
from thespis.learners.optim.normalizers import ReturnNormalizer, RunningMeanStd
from thespis.methods.online.ppo import PPO
from thespis.papers.mdpo.method import MDPO, OffPolicyMDPO

_ON_POLICY_STEPS = 10 * SMALL_STEPS
_FEED = Rollouts(num_steps=128, num_envs=8)
_ON_POLICY_MDPO = MDPO(
    discount=0.97,
    policy_regularizer=MirrorDescentKL(num_updates=_ON_POLICY_STEPS / 1024),
    minibatch_size=256,
    feed=_FEED,
)
_PPO = PPO(
    discount=0.97, obs_normalizer=RunningMeanStd(), reward_normalizer=ReturnNormalizer(), minibatch_size=256, feed=_FEED
)
_OFF_POLICY_MDPO = OffPolicyMDPO(
    **SMALL_SETTINGS,
    temperature=FixedTemperature(0.05),
    trust_region=MirrorDescentStep(kl_coef=0.25, update_interval=250),
)

PAPER = Paper(
    id="mdpo",
    name="MDPO",
    citation=MDPO.citations[0],
    family="on-policy-ac",
    summary="Each update solves a trust-region problem by several gradient steps, with the KL divergence from the "
    "previous policy as a penalty whose weight grows. Off-policy it is a soft actor-critic with a KL penalty to an "
    "earlier actor.",
    claim="On continuous control MDPO is no worse than PPO on-policy and no worse than SAC off-policy, and several "
    "gradient steps per problem are needed.",
    parts=(
        "thespis.papers.mdpo.method:MDPO",
        "thespis.papers.mdpo.method:OffPolicyMDPO",
        "thespis.learners.on_policy.policy_regularizers:MirrorDescentKL",
        "thespis.learners.off_policy.trust_region:MirrorDescentStep",
    ),
    command="thespis train mdpo --env Pendulum-v1 --set policy_regularizer.num_updates=100",
    miniature=Trial(
        arms=(
            Arm("on policy", _ON_POLICY_MDPO, steps=_ON_POLICY_STEPS),
            Arm("on policy, one pass", dataclasses.replace(_ON_POLICY_MDPO, num_epochs=1), steps=_ON_POLICY_STEPS),
            Arm("PPO", _PPO, steps=_ON_POLICY_STEPS),
            Arm("off policy", _OFF_POLICY_MDPO),
            Arm("SAC", SMALL_SAC),
        ),
        envs=SMALL_ENVS,
        steps=SMALL_STEPS,
        claims=(
            NonInferiority("on policy", "PPO", final_return(), margin=10.0),
            Superiority("on policy", "on policy, one pass", final_return()),
            NonInferiority("off policy", "SAC", final_return(), margin=10.0),
        ),
    ),
    remarks="Two compiled environments replace MuJoCo. PPO has the normalization and the minibatches of MDPO. The "
    "margin is a return of 10, less than a tenth of the difference between a trained and an untrained actor. "
    "Off-policy, the weights of entropy and divergence are a quarter of the authors', as in the trial of the first "
    "SAC (sac-original). TRPO and Tsallis entropies are not tested. On the swing-up PPO is ahead of MDPO by six, "
    "which the margin allows.",
    full=Trial(
        arms=(
            Arm("on policy", MDPO(policy_regularizer=MirrorDescentKL(num_updates=LARGE_STEPS / 2048))),
            Arm("PPO", LARGE_PPO),
            Arm("off policy", OffPolicyMDPO(**LARGE_SETTINGS)),
            Arm("SAC", LARGE_SAC),
        ),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("on policy", "PPO", final_return()), Superiority("off policy", "SAC", final_return())),
        max_looks=1,
    ),
)

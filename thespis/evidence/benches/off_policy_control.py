"""Bench of off-policy methods for continuous control whose critics over-estimate.

The cart-pole swing-up and the reacher, with ten and eight action dimensions without effect and normal noise on every
reward. There a maximum over a critic's errors is too large (Thrun and Schwartz 1993), as in the MuJoCo tasks of
Fujimoto et al. 2018, and 40,000 steps take a few seconds per seed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay, Rollouts
from thespis.envs.compiled.dummy_actions import DummyActions
from thespis.envs.compiled.noisy_reward import NoisyReward
from thespis.envs.compiled.reacher import Reacher
from thespis.envs.compiled.swing_up import SwingUp
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, relative_overestimation
from thespis.evidence.paired_verdict import DEFAULT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.optim.normalizers import ReturnNormalizer, RunningMeanStd
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.methods.online.td3 import TD3

NOISY_SWING_UP = NoisyReward(DummyActions(SwingUp(), 10), 0.5)
NOISY_REACHER = NoisyReward(DummyActions(Reacher(time_limit=200)), 0.5)
SWING_UP_ENV, REACHER_ENV = (f"{__name__}:{name}" for name in ("NOISY_SWING_UP", "NOISY_REACHER"))
STEPS = 40_000
SETTINGS: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "discount": 0.97,
    "feed": Replay(batch_size=64, learning_starts=1_000),
}
"""Settings of all methods. With this discount rewards 152 steps ahead have a weight below 1%."""

BASELINE = DDPG(**SETTINGS, critic_learning_rate=1e-3, actor_learning_rate=1e-3)
TUNED_TD3 = TD3(**SETTINGS, learning_rate=3e-3)
TUNED_SAC = SAC(**SETTINGS, learning_rate=1e-3)
TUNED_PPO = PPO(
    learning_rate=1e-3,
    discount=0.97,
    obs_normalizer=RunningMeanStd(),
    reward_normalizer=ReturnNormalizer(),
    minibatch_size=256,
    feed=Rollouts(num_steps=128, num_envs=8),
)
PPO_STEPS = 40_960
"""Steps of PPO: whole rollouts."""
_COPY = dataclasses.replace(BASELINE, actor_learning_rate=1.000001e-3)
_NO_TARGETS = dataclasses.replace(BASELINE, tau=1.0)

BENCH = Bench(
    name="off-policy-control",
    version=1,
    summary="Swing-up and reacher with dummy actions and noisy rewards: off-policy actor-critics, and methods against "
    "over-estimation.",
    envs=(SWING_UP_ENV, REACHER_ENV),
    steps=STEPS,
    arms=(
        Arm("DDPG", BASELINE),
        Arm("DDPG again", _COPY),
        Arm("DDPG without target networks", _NO_TARGETS),
        Arm("SAC, twice as long", TUNED_SAC, steps=2 * STEPS),
    ),
    positive=Comparison("DDPG", "DDPG without target networks", final_return()),
    negative=Comparison("DDPG", "DDPG again", final_return()),
    headroom=Headroom("DDPG", "SAC, twice as long", final_return()),
    symptoms=(
        Symptom("DDPG", relative_overestimation(), 0.2, envs=(REACHER_ENV,)),
        Symptom("DDPG", relative_overestimation(), 0.1, envs=(SWING_UP_ENV,)),
    ),
    tuning="Learning rates of DDPG, TD3, SAC and PPO: four values each (3e-4, 1e-3, 3e-3, 1e-2), on seeds 1,100 to "
    "1,109 of the swing-up and 1,100 to 1,104 of the reacher (PPO: to 1,109), by the return of greedy play after "
    "40,000 steps. Dummy actions of the swing-up, for headroom and symptom of DDPG: 8, 10, 11, 12 and 16; "
    "with 11 and more it has come less than 30% of the way from random play to SAC.",
    looks=DEFAULT_LOOKS,
)

"""Tuned methods for probes: every method with a critic, small, with settings that learn the values within 2%."""

import dataclasses
from typing import Any

from thespis.critics.mixers import MonotonicMixer
from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.critics.role_matching import DotProductUtility
from thespis.data.feeds import Replay, Rollouts
from thespis.data.sequence_replay import SequenceReplay
from thespis.learners.multi_agent.role_contrast import RoleContrast
from thespis.learners.off_policy.discrete_q import IteratedTargets
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.learners.optim.optimizers import LinearSchedule
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.multi_agent.maddpg import MADDPG
from thespis.methods.multi_agent.mappo import MAPPO
from thespis.methods.multi_agent.masac import MASAC
from thespis.methods.multi_agent.qmix import QMIX
from thespis.methods.multi_agent.vdn import VDN
from thespis.methods.online.a2c import A2C
from thespis.methods.online.c51 import C51
from thespis.methods.online.crossq import CrossQ
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.dqn import DQN
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.n_step_q import NStepQ, Sarsa
from thespis.methods.online.ppo import PPO
from thespis.methods.online.r2d2 import R2D2
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU
from thespis.papers.acorm.method import ACORM
from thespis.papers.bayesian_joint_policy.method import BayesianNetworkPPO
from thespis.papers.decentralized_policy_optimization.method import AdaptiveKLPPO, DecentralizedPolicyOptimization
from thespis.papers.ensemble_categorical_rl.method import EnsembleC51
from thespis.papers.i_qn.method import IDQN
from thespis.papers.revalued.method import DecQN, REValueD
from thespis.papers.rode.action_roles import ActionRoles
from thespis.papers.rode.method import RODE

ROLLOUTS = Rollouts(num_steps=32, num_envs=8)
REPLAY = Replay(buffer_size=4_000, batch_size=64, learning_starts=64, num_envs=8)
WINDOWS = dataclasses.replace(REPLAY, sequence_length=3)

_BASE = {"learning_rate": 1e-2, "discount": 0.9, "hidden_sizes": (16,)}
_ON = _BASE | {"feed": ROLLOUTS}
_OFF = _BASE | {"feed": REPLAY}


def _with_critic_rate(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings for methods with a separate critic learning rate."""
    return {"critic_learning_rate" if name == "learning_rate" else name: value for name, value in settings.items()}


_SLOWER = {"learning_rate": 3e-3, "tau": 0.1}
_FINER = {
    "learning_rate": 1e-3,
    "feed": Rollouts(num_steps=4, num_envs=8),
}  # RMSProp's steps do not shrink with the error
_QUICK = {"target_update_interval": 20, "epsilon_decay_updates": 300.0}
_ENDS = {"v_min": -2.0, "v_max": 12.0, "adam_epsilon": 1e-8}
_LEVEL = QMIX(**_OFF, **_QUICK, mixer=MonotonicMixer(8, (16,)), utility_network=DotProductUtility())

METHODS = {
    "a2c": A2C(**_ON | {"learning_rate": 2e-3}, gae_lambda=0.9),
    "impala": IMPALA(**_ON | {"learning_rate": 2e-3}, gae_lambda=0.9),
    "ppo": PPO(**_ON | {"learning_rate": 1e-3}, num_epochs=4),
    "ppo-gru": PPO(**_ON | {"learning_rate": 3e-3}, num_epochs=4, memory=GRU(16)),
    "nq": NStepQ(**_BASE | _QUICK | _FINER, td_lambda=0.0),
    "nq-sarsa": NStepQ(**_BASE | _QUICK | _FINER, td_lambda=0.9, bootstrap=Sarsa()),
    "dqn": DQN(**_OFF, **_QUICK),
    "dqn-3-step": DQN(**_BASE, **_QUICK, feed=WINDOWS),
    "dqn-dueling": DQN(**_OFF, **_QUICK, dueling=True),
    "r2d2": R2D2(
        **_BASE | _QUICK | {"learning_rate": 3e-3},
        memory=GRU(16),
        n_step=1,
        adam_epsilon=1e-8,
        value_rescaling=None,
        feed=SequenceReplay(
            buffer_size=4_000,
            batch_size=32,
            learning_starts=64,
            update_interval=1,
            sequence_length=4,
            burn_in=2,
            num_envs=8,
        ),
    ),
    "i-dqn": IDQN(  # without double Q-learning, noise of large steps is overestimated
        **_OFF | _QUICK | {"learning_rate": 3e-3}, target_network=IteratedTargets(3, 4), double_q=True, huber_delta=1.0
    ),
    "c51": C51(**_OFF, **_QUICK, **_ENDS),
    "ensemble-c51": EnsembleC51(
        **_BASE, **_QUICK, **_ENDS, ensemble_size=2, feed=dataclasses.replace(REPLAY, batch_size=128)
    ),
    "decqn": DecQN(**_OFF, tau=0.1, epsilon_decay_updates=300.0),
    "revalued": REValueD(**_OFF, tau=0.1, epsilon_decay_updates=300.0, ensemble_size=3),
    "ddpg": DDPG(**_with_critic_rate(_OFF | _SLOWER)),
    "td3": TD3(**_OFF | _SLOWER),
    "crossq": CrossQ(  # statistics of batches are noise in its values, which smaller and smaller steps average
        **_BASE | {"learning_rate": LinearSchedule(5e-3, 8_000.0)},
        critic_hidden_sizes=(32, 32),
        temperature=FixedTemperature(0.0),
        feed=dataclasses.replace(REPLAY, batch_size=256),
    ),
    "sac": SAC(**_OFF | _SLOWER, temperature=FixedTemperature(0.0)),
    "sac-v": SACV(**_OFF | _SLOWER, temperature=FixedTemperature(0.0)),
    "dsac": DSAC(  # its targets are samples: the minimum deviation of the paper is too large for such small values
        **_with_critic_rate(_BASE | _SLOWER),
        actor_learning_rate=3e-3,
        temperature=FixedTemperature(0.0),
        reward_scale=1.0,
        min_std=0.1,
        feed=dataclasses.replace(REPLAY, batch_size=256),
    ),
    "ippo": IPPO(PPO(**_ON, num_epochs=4)),
    "decentralized": DecentralizedPolicyOptimization(AdaptiveKLPPO(PPO(**_ON, num_epochs=4, clip_range=1e9))),
    "bayesian": BayesianNetworkPPO(PPO(**_ON, num_epochs=4)),
    "mappo": MAPPO(PPO(**_ON, num_epochs=4)),
    "vdn": VDN(**_OFF, **_QUICK),
    "qmix": QMIX(**_OFF, **_QUICK, mixer=MonotonicMixer(8, (16,))),
    "rode": RODE(_LEVEL, _LEVEL, ActionRoles(num_roles=2, num_pretrain_updates=50.0), high_level_interval=1),
    "acorm": ACORM(
        **_BASE,
        **_QUICK,
        memory=None,
        utility_network=RoleUtility(4, 8),
        auxiliary_loss=RoleContrast(update_interval=5, num_clusters=2),
        mixer=AttentionMixer(MonotonicMixer(8, (16,)), query_size=4, num_heads=2, attention_size=8, output_size=4),
        feed=dataclasses.replace(REPLAY, sequence_length=2),
    ),
    "maddpg": MADDPG(DDPG(**_with_critic_rate(_OFF), tau=0.1)),
    "masac": MASAC(SAC(**_OFF, tau=0.1, temperature=FixedTemperature(0.0))),
}
"""Methods by their names in the tests."""

STEPS = {
    "a2c": 400_000,
    "impala": 400_000,
    "nq": 128_000,
    "nq-sarsa": 128_000,
    "ppo": 160_000,
    "ppo-gru": 40_000,
    "bayesian": 20_000,
    "decentralized": 20_000,
    "ippo": 20_000,
    "mappo": 20_000,
    "ddpg": 32_000,
    "td3": 32_000,
    "crossq": 64_000,
    "sac": 32_000,
    "sac-v": 32_000,
    "dsac": 32_000,
}
"""Environment steps per seed; 16,000 for the others."""

ON_COIN = {
    "a2c": ({"learning_rate": 3e-4}, 400_000),
    "impala": ({"learning_rate": 3e-4}, 400_000),
    "nq": ({"feed": ROLLOUTS}, 400_000),
    "nq-sarsa": ({"feed": ROLLOUTS}, 400_000),
    "ppo": ({"learning_rate": 1e-4, "minibatch_size": 256}, 400_000),
    "ppo-gru": ({"learning_rate": 3e-4, "minibatch_size": 256, "num_epochs": 2}, 200_000),
}
"""Settings and steps for the random coin probe: small step sizes average the noise."""

ON_1000 = {
    "a2c": ({}, 1_000_000),
    "impala": ({}, 1_000_000),
    "ppo": ({}, 300_000),
    "nq": ({"learning_rate": 5e-4, "td_lambda": 0.9}, 500_000),  # all actions earn the same: long returns are unbiased
    "nq-sarsa": ({"learning_rate": 5e-4}, 500_000),
    "c51": ({"v_min": 0.0, "v_max": 120.0, "target_update_interval": 5}, 32_000),
    "ensemble-c51": ({"v_min": 0.0, "v_max": 120.0, "target_update_interval": 5}, 32_000),
    # target smoothing needs data at the smoothed actions
    "td3": ({"exploration_noise": 0.5}, 128_000),
}
"""Settings and steps for values far from 0, with discount 0.99."""


def _for(method: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings under the names that the method uses."""
    return _with_critic_rate(settings) if hasattr(method, "critic_learning_rate") else settings


def tuned(method: str, probe: str):
    """The tuned method for a probe, and its number of steps."""
    chosen, steps = METHODS[method], STEPS.get(method, 16_000)
    special: dict = {}
    if probe.startswith("coin"):
        large_feed = (
            dataclasses.replace(chosen.feed, batch_size=256, buffer_size=100_000) if method not in ON_COIN else None
        )
        special, steps = ON_COIN.get(method, ({"learning_rate": 1e-4, "feed": large_feed}, 100_000))
        if method == "dqn-3-step":  # three-step returns spread by more than 1, asymmetrically
            special |= {"huber_delta": 10.0}
        if method == "ddpg":  # after 100,000 steps its error is just 2%
            steps = 160_000
        if method == "sac-v":  # its value network follows a noisy critic: smaller and more steps
            special, steps = special | {"learning_rate": 5e-5}, 160_000
    elif probe == "picture":  # convolutions are slow, and this probe is easy
        special, steps = {"learning_rate": 1e-3}, 10_000
        if method in ("a2c", "impala", "nq"):  # one gradient step per rollout: short rollouts give more of them
            special, steps = special | {"feed": Rollouts(num_steps=4, num_envs=8)}, 60_000
        if method == "nq":  # RMSProp takes large steps where gradients are tiny: smaller step size
            special, steps = special | {"learning_rate": 1e-4}, 100_000
    elif probe.startswith("constant-1000"):
        special, steps = ON_1000.get(method, ({}, 128_000))
        special = special | {"discount": 0.99}
    elif method in ("sac", "sac-v") and probe == "amount":
        special = {"feed": dataclasses.replace(chosen.feed, batch_size=256)}
    elif (method, probe) == ("ppo-gru", "maze"):  # a turn learned before the sign is remembered is never unlearned
        special, steps = {"ent_coef": 0.03, "learning_rate": 1e-3}, 160_000
    elif (method, probe) == ("dqn-dueling", "late"):
        special, steps = {"learning_rate": 3e-3}, 24_000
    return dataclasses.replace(chosen, **_for(chosen, special)), steps

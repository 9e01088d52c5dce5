"""Probe cases of the doctor: every method on a small probe with known values or best actions."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.contracts import Method
from thespis.critics.mixers import MonotonicMixer
from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.critics.role_matching import DotProductUtility
from thespis.data.feeds import Episodes, Replay, Rollouts
from thespis.data.sequence_replay import SequenceReplay
from thespis.learners.model_based.dynamics import DynamicsModel
from thespis.learners.model_based.model_based_learner import ModelBasedLearner
from thespis.learners.multi_agent.role_contrast import RoleContrast
from thespis.learners.off_policy.discrete_q import IteratedTargets
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.learners.off_policy.trust_region import MirrorDescentStep
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
from thespis.methods.online.drq_v2 import DrQv2
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.dyna import Dyna
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.mbpo import MBPO
from thespis.methods.online.n_step_q import NStepQ
from thespis.methods.online.ppo import PPO
from thespis.methods.online.r2d2 import R2D2
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM
from thespis.papers.acorm.method import ACORM
from thespis.papers.action_sequence_critic_rl.method import CQN, CQNAS
from thespis.papers.adversarial_cheap_talk.method import ES
from thespis.papers.aro_ddpg.method import ARODDPG
from thespis.papers.bayesian_joint_policy.method import BayesianNetworkPPO
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.method import CLAM
from thespis.papers.convex_scoring_risk_sensitive_ac.method import ConvexScoring
from thespis.papers.convex_scoring_risk_sensitive_ac.risk_measures import MeanCost
from thespis.papers.decentralized_policy_optimization.method import AdaptiveKLPPO, DecentralizedPolicyOptimization
from thespis.papers.ensemble_categorical_rl.method import EnsembleC51
from thespis.papers.gmah.method import GMAH
from thespis.papers.gmah.subgoals import SubgoalSpace, TaskReward
from thespis.papers.i_qn.method import IDQN
from thespis.papers.mac.method import MAC, MultiLevelMonteCarlo
from thespis.papers.mdpo.method import MDPO, OffPolicyMDPO
from thespis.papers.meow.method import MEow
from thespis.papers.mra.method import MRA, LatentModePPO
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C
from thespis.papers.revalued.method import DecQN, REValueD
from thespis.papers.rode.action_roles import ActionRoles
from thespis.papers.rode.method import RODE
from thespis.papers.rtrl_actor_critic.method import R2AC
from thespis.papers.srl.method import SRL
from thespis.papers.subpo.method import SubPO

_BASE: dict[str, Any] = {"learning_rate": 1e-2, "discount": 0.9, "hidden_sizes": (16,)}
_ON_POLICY: dict[str, Any] = _BASE | {"feed": Rollouts(num_steps=32, num_envs=8)}
_REPLAY = Replay(buffer_size=4_000, batch_size=64, learning_starts=8, num_envs=8)
_OFF_POLICY: dict[str, Any] = _BASE | {"feed": _REPLAY, "tau": 0.1}
# without an entropy bonus, values are those of the reward
_ZERO_TEMPERATURE: dict[str, Any] = _OFF_POLICY | {"temperature": FixedTemperature(0.0)}
_Q_LEARNING: dict[str, Any] = _BASE | {"target_update_interval": 20, "epsilon_decay_updates": 300.0, "feed": _REPLAY}


@dataclasses.dataclass(frozen=True)
class ProbeCase:
    """A small configuration of a method that must learn a probe within ``steps`` environment steps."""

    method: Method
    probe: str
    steps: int


def probe_cases() -> list[ProbeCase]:
    """Cases of all methods, on probes that together cover the known mistakes; the most informative come first."""
    return [
        *_single_agent_cases(),
        *_mirror_descent_cases(),
        *_visual_cases(),
        *_value_based_cases(),
        *_average_reward_cases(),
        *_flow_cases(),
        *_model_based_cases(),
        *_meta_gradient_cases(),
        *_episodic_cases(),
        *_recurrent_cases(),
        *_action_sequence_cases(),
        *_multi_agent_cases(),
    ]


def _with_critic_learning_rate(settings: dict[str, Any]) -> dict[str, Any]:
    """The same settings for methods whose critic has its own learning rate."""
    return {"critic_learning_rate" if name == "learning_rate" else name: value for name, value in settings.items()}


def _single_agent_cases() -> list[ProbeCase]:
    short: dict[str, Any] = _BASE | {"learning_rate": 5e-3, "feed": Rollouts(num_steps=4, num_envs=8)}
    sampled: dict[str, Any] = _ZERO_TEMPERATURE | {
        "learning_rate": 3e-3,
        "feed": dataclasses.replace(_REPLAY, batch_size=256),
    }
    stepped: dict[str, Any] = _Q_LEARNING | {"feed": dataclasses.replace(_REPLAY, sequence_length=3)}
    dsac = DSAC(**_with_critic_learning_rate(sampled), actor_learning_rate=3e-3, reward_scale=1.0, min_std=0.1)
    wide_batches: dict[str, Any] = {name: value for name, value in sampled.items() if name != "tau"}
    wide_batches["learning_rate"] = LinearSchedule(5e-3, 4_000.0)  # statistics of batches are noise in its values
    crossq = CrossQ(**wide_batches, critic_hidden_sizes=(32, 32))
    ppo = PPO(**_ON_POLICY, num_epochs=4)
    return [
        ProbeCase(ppo, "late", 20_000),
        ProbeCase(SAC(**_ZERO_TEMPERATURE), "constant-continuous", 8_000),
        ProbeCase(DQN(**stepped, dueling=True), "masked", 8_000),
        ProbeCase(A2C(**_ON_POLICY, gae_lambda=0.9), "constant-1000", 100_000),
        ProbeCase(TD3(**_OFF_POLICY), "ending-continuous", 8_000),
        ProbeCase(DDPG(**_with_critic_learning_rate(_OFF_POLICY)), "match-continuous", 8_000),
        ProbeCase(PPO(**_ON_POLICY, num_epochs=4, memory=GRU(16)), "maze", 30_000),
        ProbeCase(ppo, "bound", 30_000),
        ProbeCase(CLAM(ppo, ContrastiveEncoder(hidden_sizes=(16,), window_length=8)), "bound", 30_000),
        ProbeCase(SAC(**_ZERO_TEMPERATURE), "signal", 8_000),
        ProbeCase(SACV(**_ZERO_TEMPERATURE), "choice", 8_000),
        ProbeCase(IMPALA(**short, gae_lambda=0.9, optimizer="adam"), "pair", 60_000),
        ProbeCase(
            NStepQ(**_ON_POLICY, td_lambda=0.0, target_update_interval=20, epsilon_decay_updates=30.0), "choice", 30_000
        ),
        ProbeCase(dsac, "signal-continuous", 8_000),
        ProbeCase(crossq, "constant-continuous", 32_000),
        ProbeCase(ES(learning_rate=0.05, noise_std=0.1), "amount", 6_400),
    ]


def _mirror_descent_cases() -> list[ProbeCase]:
    mdpo = MDPO(**_ON_POLICY, num_epochs=4, minibatch_size=64, obs_normalizer=None, reward_normalizer=None)
    return [
        ProbeCase(mdpo, "late", 20_000),
        ProbeCase(
            OffPolicyMDPO(**_ZERO_TEMPERATURE, trust_region=MirrorDescentStep(kl_coef=0.1, update_interval=50)),
            "match-continuous",
            8_000,
        ),
    ]


def _visual_cases() -> list[ProbeCase]:
    slower: dict[str, Any] = _OFF_POLICY | {"learning_rate": 3e-3}
    return [
        ProbeCase(
            DrQv2(**slower, feature_size=8, initial_exploration_noise=0.5, noise_decay_updates=300.0),
            "match-continuous",
            8_000,
        )
    ]


def _value_based_cases() -> list[ProbeCase]:
    ends: dict[str, Any] = _Q_LEARNING | {"v_min": -2.0, "v_max": 12.0, "adam_epsilon": 1e-8}
    spread: dict[str, Any] = _OFF_POLICY | {"epsilon_decay_updates": 300.0}
    chained: dict[str, Any] = _Q_LEARNING | {"double_q": True, "huber_delta": 1.0}
    return [
        ProbeCase(C51(**ends), "choice", 8_000),
        ProbeCase(EnsembleC51(**ends, ensemble_size=2), "masked", 8_000),
        ProbeCase(IDQN(**chained, target_network=IteratedTargets(3, 4)), "masked", 8_000),
        ProbeCase(REValueD(**spread, ensemble_size=2), "signal-continuous", 8_000),
        ProbeCase(DecQN(**spread), "ending-continuous", 8_000),
    ]


def _average_reward_cases() -> list[ProbeCase]:
    aro = ARODDPG(learning_rate=1e-2, average_reward_learning_rate=1e-2, tau=0.1, hidden_sizes=(16,), feed=_REPLAY)
    return [ProbeCase(aro, "match-continuous", 8_000)]


def _meta_gradient_cases() -> list[ProbeCase]:
    rates: dict[str, Any] = {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1, "hidden_sizes": (16,)}
    short: dict[str, Any] = _ON_POLICY | {
        "learning_rate": 5e-3,
        "discount": 0.7,
        "feed": Rollouts(num_steps=4, num_envs=8),
    }
    meta = MetaA2C(A2C(**short, gae_lambda=0.9, optimizer="adam"), outer_discount=0.9, outer_gae_lambda=0.9)
    return [
        ProbeCase(
            MAC(**rates, trajectory_length=MultiLevelMonteCarlo(3), feed=Rollouts(num_steps=1, num_envs=8)),
            "late",
            20_000,
        ),
        ProbeCase(meta, "late", 60_000),
    ]


def _episodic_cases() -> list[ProbeCase]:
    episodes = Episodes(5, num_envs=8)
    whole: dict[str, Any] = _BASE | {"discount": 1.0}
    return [
        ProbeCase(SubPO(**_BASE, feed=episodes), "late", 20_000),
        ProbeCase(ConvexScoring(PPO(**whole, num_epochs=4), MeanCost(), feed=episodes), "late", 20_000),
    ]


def _recurrent_cases() -> list[ProbeCase]:
    """Rollouts of one and a half episodes: in every other one the sign was observed in the rollout before the turn."""
    base: dict[str, Any] = _BASE | {"learning_rate": 5e-3, "feed": Rollouts(num_steps=6, num_envs=8)}
    r2ac = R2AC(**base, memory=ELSTM(16, forget_bias=1.0), gae_lambda=0.9, ent_coef=0.03, optimizer="adam")
    replay = SequenceReplay(
        buffer_size=4_000,
        batch_size=32,
        learning_starts=64,
        update_interval=1,
        sequence_length=4,
        burn_in=2,
        num_envs=8,
    )
    r2d2 = R2D2(
        **_Q_LEARNING | {"learning_rate": 3e-3, "feed": replay},
        memory=GRU(16),
        n_step=1,
        adam_epsilon=1e-8,
        value_rescaling=None,
    )
    return [ProbeCase(r2ac, "maze", 60_000), ProbeCase(r2d2, "maze", 8_000)]


def _action_sequence_cases() -> list[ProbeCase]:
    base: dict[str, Any] = _BASE | {"learning_rate": 3e-3, "weight_decay": 0.0, "target_update_interval": 20}
    rows = CQNAS(**base, action_sequence_length=2, n_step=2, feed=dataclasses.replace(_REPLAY, sequence_length=2))
    return [
        ProbeCase(
            SRL(**_ZERO_TEMPERATURE, model_hidden_sizes=(16,), action_sequence_length=1), "match-continuous", 8_000
        ),
        ProbeCase(CQN(**base, n_step=1, feed=_REPLAY), "match-continuous", 8_000),
        ProbeCase(rows, "delayed-continuous", 8_000),
    ]


def _flow_cases() -> list[ProbeCase]:
    meow = MEow(**_OFF_POLICY, temperature=0.01, log_std_range=(-3.0, 0.5), shift_hidden_sizes=(16,))
    return [ProbeCase(meow, "signal-continuous", 8_000)]


def _model_based_cases() -> list[ProbeCase]:
    """Half of the steps are imagined: a wrong model would teach wrong values."""
    slower: dict[str, Any] = _ZERO_TEMPERATURE | {"learning_rate": 3e-3}
    small: dict[str, Any] = {"hidden_sizes": (32,), "weight_decay": (0.0, 0.0), "ensemble_size": 3, "num_elites": 2}
    model = DynamicsModel(**small, learning_rate=5e-3, batch_size=64, max_epochs=50)
    learner = ModelBasedLearner(model, real_ratio=0.5, model_interval=50, num_rollouts=500)
    return [
        ProbeCase(MBPO(SAC(**slower), learner), "match-continuous", 24_000),
        ProbeCase(Dyna(DQN(**_Q_LEARNING), learner), "choice", 8_000),
    ]


def _multi_agent_cases() -> list[ProbeCase]:
    mixer = MonotonicMixer(8, (16,))
    qmix, dot_product_qmix = (
        QMIX(**_Q_LEARNING, mixer=mixer),
        QMIX(**_Q_LEARNING, mixer=mixer, utility_network=DotProductUtility()),
    )
    sequence_settings: dict[str, Any] = _Q_LEARNING | {
        "feed": dataclasses.replace(_REPLAY, sequence_length=2),
        "memory": None,
    }
    role_settings: dict[str, Any] = {
        "utility_network": RoleUtility(4, 8),
        "auxiliary_loss": RoleContrast(update_interval=5, num_clusters=2),
    }
    attention_mixer = AttentionMixer(mixer, query_size=4, num_heads=2, attention_size=8, output_size=4)
    ppo, surrogate = PPO(**_ON_POLICY, num_epochs=4), AdaptiveKLPPO(PPO(**_ON_POLICY, num_epochs=4, clip_range=1e9))
    return [
        ProbeCase(qmix, "two-step", 8_000),
        ProbeCase(VDN(**_Q_LEARNING), "shifts", 8_000),
        ProbeCase(
            RODE(
                dot_product_qmix,
                dot_product_qmix,
                ActionRoles(num_roles=2, num_pretrain_updates=50.0),
                high_level_interval=1,
            ),
            "two-step",
            8_000,
        ),
        ProbeCase(GMAH(qmix, qmix, SubgoalSpace((1, 2), TaskReward()), high_level_interval=1), "two-step", 8_000),
        ProbeCase(ACORM(**sequence_settings, **role_settings, mixer=attention_mixer), "two-step", 8_000),
        ProbeCase(MAPPO(ppo), "shifts", 20_000),
        ProbeCase(MASAC(SAC(**_ZERO_TEMPERATURE)), "shifts", 8_000),
        ProbeCase(IPPO(ppo), "shifts", 20_000),
        ProbeCase(MRA(LatentModePPO(ppo, FixedTemperature(0.0), 2)), "shifts", 20_000),
        ProbeCase(MADDPG(DDPG(**_with_critic_learning_rate(_OFF_POLICY))), "meeting", 8_000),
        ProbeCase(DecentralizedPolicyOptimization(surrogate), "shifts", 20_000),
        ProbeCase(BayesianNetworkPPO(ppo), "shifts", 20_000),
    ]

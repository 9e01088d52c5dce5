"""Test cases: every method at a size that compiles in seconds, with an environment that uses all it supports."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from small_envs import BOX, TREE, TREE_ACTION, Crew, Walk

from thespis.actors.mixture_of_experts import MixtureOfExperts
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.hypernetwork import HypernetworkCritic
from thespis.critics.mixers import MonotonicMixer, SumMixer
from thespis.critics.role_encoding import AttentionMixer, RoleUtility
from thespis.critics.role_matching import DotProductUtility
from thespis.data.feeds import (
    Episodes,
    HindsightFuture,
    LoggedEpisodes,
    LoggedTransitions,
    PreferencePairs,
    PrioritizedSampler,
    Replay,
    Rollouts,
)
from thespis.data.sequence_replay import SequenceReplay
from thespis.envs.compiled.point_goal import PointGoal
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.correction import Correction
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.maze import Maze
from thespis.envs.text.questions import Questions
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.learners.language.advantage_estimators import GroupMean, NoBaseline, RewardToGo, TrajectoryReturn, TurnGAE
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.language.implicit_reward import ImplicitReward
from thespis.learners.language.lm_agent import LoRA
from thespis.learners.language.loss_masks import EnvTokensFirst
from thespis.learners.language.preference_losses import IPOLoss, NashMDLoss
from thespis.learners.language.response_critics import ReferenceCritic, SoftValueCritic, SuccessCritic
from thespis.learners.language.response_filters import RankFilter
from thespis.learners.language.revisions import TrajectoryRevision
from thespis.learners.language.rollout_transforms import SuccessReplay
from thespis.learners.language.turn_critic import OffPolicyTurnCritic
from thespis.learners.model_based.dynamics import DynamicsModel
from thespis.learners.model_based.imagination import FixedRolloutLength, LinearRolloutLength
from thespis.learners.model_based.model_based_learner import ModelBasedLearner
from thespis.learners.model_based.termination import HealthyRange, LearnedTermination
from thespis.learners.multi_agent.cast import Cast
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.learners.multi_agent.parameter_sharing import Independent, PeriodicReset
from thespis.learners.multi_agent.role_contrast import RoleContrast
from thespis.learners.off_policy.causal_entropy import CausalEntropy
from thespis.learners.off_policy.discrete_q import IteratedTargets
from thespis.learners.off_policy.dormant_reset import DormantReset
from thespis.learners.off_policy.replay_ratio import Adaptive
from thespis.learners.off_policy.target_filters import LowPassFilter
from thespis.learners.off_policy.temperature import TunedTemperature
from thespis.learners.off_policy.trust_region import MirrorDescentStep
from thespis.learners.offline.behavior_cloning import BehaviorCloning
from thespis.learners.on_policy.policy_regularizers import MagnetKL
from thespis.learners.optim.normalizers import ReturnNormalizer, RunningMeanStd
from thespis.methods.games.alphazero import AlphaZero
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.methods.games.mmd import MMD
from thespis.methods.games.nfsp import NFSP
from thespis.methods.imitation.bc import BC
from thespis.methods.language.archer import ArCHer
from thespis.methods.language.dpo import DPO
from thespis.methods.language.glam import GLAM
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.rm import RM
from thespis.methods.language.rto import RTO
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN
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
from thespis.methods.online.drq_v2 import DrQv2, RandomShift
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.dyna import Dyna
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.mbpo import MBPO
from thespis.methods.online.n_step_q import NStepQ, Sarsa
from thespis.methods.online.ppo import PPO
from thespis.methods.online.r2d2 import R2D2
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM
from thespis.nets.lstm import LSTM
from thespis.nets.noisy import NoisyNetwork
from thespis.nets.resnet import ResNet
from thespis.nets.set_attention import SetAttention
from thespis.papers.a_lol.method import ALoL
from thespis.papers.acorm.method import ACORM
from thespis.papers.action_sequence_critic_rl.method import CQN, CQNAS
from thespis.papers.adversarial_cheap_talk.method import ES
from thespis.papers.agent_r.envs import UndoTask
from thespis.papers.agentprm.method import AgentPRM
from thespis.papers.aro_ddpg.method import ARODDPG
from thespis.papers.bayesian_joint_policy.method import BayesianNetworkPPO, LinearEdgeDecay
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.method import CLAM
from thespis.papers.convex_scoring_risk_sensitive_ac.method import ConvexScoring
from thespis.papers.convex_scoring_risk_sensitive_ac.risk_measures import EntropicVaR, MeanCost
from thespis.papers.criticcontrol.method import CriticControl
from thespis.papers.decentralized_policy_optimization.method import AdaptiveKLPPO, DecentralizedPolicyOptimization
from thespis.papers.direct_advantage_policy_optimization.method import DirectAdvantagePolicyOptimization
from thespis.papers.ensemble_categorical_rl.method import EnsembleC51
from thespis.papers.ensemble_categorical_rl.own_replay import MemberReplay
from thespis.papers.gmah.method import GMAH
from thespis.papers.gmah.subgoals import SubgoalSpace
from thespis.papers.i_qn.method import IDQN
from thespis.papers.mac.method import MAC, FixedTrajectoryLength, MultiLevelMonteCarlo
from thespis.papers.mdpo.method import MDPO, OffPolicyMDPO
from thespis.papers.meow.method import MEow
from thespis.papers.mra.method import MRA, LatentModePPO
from thespis.papers.oreo.method import OREO
from thespis.papers.outer_value_function_meta_gradient.meta_gradient import SharedCritic
from thespis.papers.outer_value_function_meta_gradient.method import MetaA2C
from thespis.papers.revalued.method import DecQN, REValueD
from thespis.papers.rode.action_roles import ActionRoles
from thespis.papers.rode.method import RODE
from thespis.papers.rtrl_actor_critic.method import R2AC
from thespis.papers.sac_glam.method import SACGLAM
from thespis.papers.score.method import SCoRe
from thespis.papers.spiral.method import SPIRAL
from thespis.papers.srl.method import SRL
from thespis.papers.subpo.method import SubPO, TotalGain
from thespis.papers.sweet_rl.method import SWEET


class Case(NamedTuple):
    """A method and the environment it is tested in."""

    method: object
    env: Walk | Crew | PointGoal


SMALL = (8,)
CHOICE = Walk(Discrete(4), legal=True)
EVERY_OBSERVATION = Walk(Discrete(4), TREE, legal=True)
EVERY_SPACE = Walk(TREE_ACTION, TREE, legal=True)
CREW, PUSHING = Crew(), Crew(action=BOX, legal=False)
KUHN, TIC_TAC_TOE = (SelfPlayEnv(Pgx(name)) for name in ("kuhn_poker", "tic_tac_toe"))


SHORT_REPLAY = {
    "buffer_size": 30,
    "batch_size": 6,
    "learning_starts": 9,
    "update_interval": 2,
    "num_updates": 2,
    "num_envs": 3,
}


def replay(**settings) -> Replay:
    return Replay(**(SHORT_REPLAY | settings))


def sequences(**settings) -> SequenceReplay:
    base = dict(buffer_size=45, batch_size=6, learning_starts=9, update_interval=2, num_updates=2, num_envs=3)
    return SequenceReplay(**(base | {"sequence_length": 3} | settings))


def ppo(**settings) -> PPO:
    return PPO(**(dict(hidden_sizes=SMALL, num_epochs=2, minibatch_size=12, feed=Rollouts(8, num_envs=3)) | settings))


LEARNED_END, ONE_STEP, TWO_STEPS = LearnedTermination(), FixedRolloutLength(), FixedRolloutLength(2)


def small_model(termination=LEARNED_END, rollout_length=TWO_STEPS) -> ModelBasedLearner:
    model = DynamicsModel(
        termination,
        weight_decay=(1e-4, 2e-4),
        ensemble_size=3,
        num_elites=2,
        hidden_sizes=SMALL,
        batch_size=4,
        patience=1,
    )
    return ModelBasedLearner(model, rollout_length, 0.34, model_interval=2, num_rollouts=5, num_retained_fits=2)


LM = {"model": "blank", "num_layers": 2, "hidden_size": 32, "minibatch_size": 2, "num_epochs": 2}
OFFLINE_LM = {"model": "blank", "num_layers": 2, "hidden_size": 32}

PPO_WITH_MEMORY = PPO(
    hidden_sizes=SMALL,
    num_epochs=2,
    minibatch_size=16,
    memory=GRU(4),
    obs_normalizer=RunningMeanStd(),
    reward_normalizer=ReturnNormalizer(across_rollouts=True),
    feed=Rollouts(8, num_envs=3),
)

CASES = {
    "a2c": Case(A2C(hidden_sizes=SMALL, feed=Rollouts(5, num_envs=3)), CHOICE),
    "ppo": Case(PPO(hidden_sizes=SMALL, num_epochs=2, minibatch_size=6, feed=Rollouts(8, num_envs=3)), Walk()),
    "ppo with memory": Case(
        PPO_WITH_MEMORY,
        EVERY_SPACE,
    ),
    "ppo with a shared body": Case(ppo(memory=LSTM(4), share_body=True), CHOICE),
    "clam": Case(CLAM(ppo(), ContrastiveEncoder(hidden_sizes=SMALL, embedding_size=2, window_length=4)), CHOICE),
    "clam with memory": Case(
        CLAM(
            ppo(memory=GRU(4), obs_normalizer=RunningMeanStd()), ContrastiveEncoder(hidden_sizes=SMALL, window_length=3)
        ),
        EVERY_SPACE,
    ),
    "impala": Case(
        IMPALA(hidden_sizes=SMALL, memory=GRU(4), rho_bar=2.0, feed=Rollouts(5, num_envs=3, policy_lag=1)), EVERY_SPACE
    ),
    "dqn": Case(
        DQN(hidden_sizes=SMALL, dueling=True, target_update_interval=3, feed=replay(sequence_length=3)), CHOICE
    ),
    "dqn with priorities": Case(
        DQN(
            hidden_sizes=SMALL,
            target_update_interval=3,
            feed=replay(sequence_length=3, sampler=PrioritizedSampler(beta_updates=20)),
        ),
        CHOICE,
    ),
    "dqn with noise": Case(
        DQN(hidden_sizes=SMALL, dueling=True, noisy=NoisyNetwork(), target_update_interval=3, feed=replay()), CHOICE
    ),
    "rainbow": Case(
        C51(
            hidden_sizes=SMALL,
            dueling=True,
            double_q=True,
            noisy=NoisyNetwork(),
            target_update_interval=3,
            feed=replay(sequence_length=3, sampler=PrioritizedSampler(beta_updates=20)),
        ),
        CHOICE,
    ),
    "c51": Case(C51(hidden_sizes=SMALL, target_update_interval=3, feed=replay(sequence_length=3)), CHOICE),
    "r2d2": Case(
        R2D2(hidden_sizes=SMALL, memory=GRU(4), n_step=2, target_update_interval=3, feed=sequences(burn_in=2)), CHOICE
    ),
    "r2d2 with priorities": Case(
        R2D2(
            hidden_sizes=SMALL,
            memory=GRU(4),
            dueling=True,
            value_rescaling=None,
            target_update_interval=3,
            feed=sequences(burn_in=1, stored_memory=False, sampler=PrioritizedSampler(beta_updates=20)),
        ),
        EVERY_OBSERVATION,
    ),
    "ensemble-c51": Case(
        EnsembleC51(
            hidden_sizes=SMALL,
            ensemble_size=3,
            target_update_interval=3,
            feed=MemberReplay(**(SHORT_REPLAY | {"sequence_length": 2}), num_members=3),
        ),
        CHOICE,
    ),
    "r2ac": Case(R2AC(hidden_sizes=SMALL, memory=ELSTM(4), feed=Rollouts(5, num_envs=3, policy_lag=1)), EVERY_SPACE),
    "i-dqn": Case(
        IDQN(
            hidden_sizes=SMALL,
            target_network=IteratedTargets(3, 2),
            target_update_interval=3,
            feed=replay(sequence_length=2),
        ),
        CHOICE,
    ),
    "decqn": Case(DecQN(hidden_sizes=SMALL, feed=replay(sequence_length=3)), Walk(MultiDiscrete((2, 4)), legal=True)),
    "revalued": Case(REValueD(hidden_sizes=SMALL, ensemble_size=3, feed=replay(sequence_length=2)), Walk()),
    "nq": Case(
        NStepQ(hidden_sizes=SMALL, target_update_interval=3, epsilon_decay_updates=4.0, feed=Rollouts(5, num_envs=3)),
        CHOICE,
    ),
    "nq with sarsa": Case(
        NStepQ(hidden_sizes=SMALL, dueling=True, bootstrap=Sarsa(), td_lambda=0.5, feed=Rollouts(5, num_envs=3)), CHOICE
    ),
    "ddpg": Case(DDPG(hidden_sizes=SMALL, feed=replay()), Walk()),
    "ddpg with choices": Case(DDPG(hidden_sizes=SMALL, feed=replay()), CHOICE),
    "td3": Case(TD3(hidden_sizes=SMALL, feed=replay(sequence_length=2)), Walk()),
    "aro-ddpg": Case(ARODDPG(hidden_sizes=SMALL, feed=replay(sequence_length=2)), Walk()),
    "mdpo": Case(MDPO(hidden_sizes=SMALL, num_epochs=2, minibatch_size=6, feed=Rollouts(8, num_envs=3)), EVERY_SPACE),
    "mdpo with critic steps": Case(
        MDPO(
            hidden_sizes=SMALL, minibatch_size=6, critic_epochs=1, critic_minibatch_size=6, feed=Rollouts(8, num_envs=3)
        ),
        CHOICE,
    ),
    "mdpo-off": Case(
        OffPolicyMDPO(
            hidden_sizes=SMALL, trust_region=MirrorDescentStep(update_interval=2), feed=replay(sequence_length=2)
        ),
        Walk(),
    ),
    "mdpo-off with choices": Case(OffPolicyMDPO(hidden_sizes=SMALL, feed=replay()), CHOICE),
    "convex-scoring": Case(ConvexScoring(ppo(discount=1.0), feed=Episodes(5, num_envs=3)), Walk()),
    "convex-scoring with mean cost": Case(ConvexScoring(ppo(), MeanCost(), feed=Episodes(5, num_envs=3)), CHOICE),
    "convex-scoring with entropic VaR": Case(
        ConvexScoring(ppo(memory=GRU(4), obs_normalizer=RunningMeanStd()), EntropicVaR(), feed=Episodes(5, num_envs=3)),
        EVERY_SPACE,
    ),
    "subpo": Case(SubPO(hidden_sizes=SMALL, feed=Episodes(5, num_envs=3)), CHOICE),
    "subpo with memory": Case(
        SubPO(
            hidden_sizes=SMALL,
            memory=GRU(4),
            obs_normalizer=RunningMeanStd(),
            advantage_estimator=TotalGain(),
            feed=Episodes(5, num_envs=3),
        ),
        EVERY_SPACE,
    ),
    "meow": Case(
        MEow(
            hidden_sizes=SMALL,
            shift_hidden_sizes=SMALL,
            obs_normalizer=RunningMeanStd(),
            feed=replay(sequence_length=2),
        ),
        Walk(),
    ),
    "crossq": Case(
        CrossQ(
            hidden_sizes=SMALL,
            critic_hidden_sizes=SMALL,
            num_warmup_batches=2,
            obs_normalizer=RunningMeanStd(),
            feed=replay(sequence_length=3, update_interval=1),
        ),
        Walk(),
    ),
    "sac": Case(
        SAC(hidden_sizes=SMALL, obs_normalizer=RunningMeanStd(), feed=replay(sequence_length=3, update_interval=1)),
        Walk(),
    ),
    "sac with a hypernetwork": Case(
        SAC(hidden_sizes=SMALL, critic=HypernetworkCritic((8, 6), 5), feed=replay()), Walk()
    ),
    "sac with many parts": Case(
        SAC(
            hidden_sizes=SMALL,
            policy_head=MixtureOfExperts(2),
            entropy=CausalEntropy(update_interval=2, num_samples=10),
            target_filter=LowPassFilter(num_samples=2),
            network_reset=DormantReset(reset_interval=3),
            feed=replay(),
        ),
        Walk(),
    ),
    "sac with hindsight": Case(
        SAC(hidden_sizes=SMALL, feed=replay(sequence_length=2, relabel=HindsightFuture())),
        PointGoal(goal_radius=0.4, terminates=True, time_limit=5),
    ),
    "sac with choices": Case(SAC(hidden_sizes=SMALL, feed=replay()), CHOICE),
    "dyna": Case(
        Dyna(DQN(hidden_sizes=SMALL, target_update_interval=3, feed=replay()), small_model(rollout_length=ONE_STEP)),
        Walk(Discrete(4)),
    ),
    "mbpo": Case(MBPO(SAC(hidden_sizes=SMALL, feed=replay()), small_model()), Walk()),
    "mbpo with a known end": Case(
        MBPO(
            SAC(hidden_sizes=SMALL, obs_normalizer=RunningMeanStd(), feed=replay(update_interval=1)),
            small_model(rollout_length=LinearRolloutLength(1, 3, 1, 4), termination=HealthyRange(-1.0)),
        ),
        Walk(),
    ),
    "mbpo with choices": Case(
        MBPO(SAC(hidden_sizes=SMALL, feed=replay()), small_model(termination=None)), Walk(Discrete(4))
    ),
    "sac-v": Case(SACV(hidden_sizes=SMALL, feed=replay(sequence_length=2)), Walk()),
    "sac-v with choices": Case(SACV(hidden_sizes=SMALL, temperature=TunedTemperature(), feed=replay()), CHOICE),
    "drq-v2": Case(
        DrQv2(
            hidden_sizes=SMALL,
            feature_size=4,
            augmentation=RandomShift(1),
            replay_ratio=Adaptive(2, check_interval=4, check_window=2, tolerance=1.0),
            feed=replay(sequence_length=2),
        ),
        Walk(observation=TREE),
    ),
    "dsac": Case(DSAC(hidden_sizes=(8, 8, 8), obs_normalizer=RunningMeanStd(), feed=replay(sequence_length=2)), Walk()),
    "mac": Case(
        MAC(hidden_sizes=SMALL, trajectory_length=MultiLevelMonteCarlo(2), feed=Rollouts(1, num_envs=3)), EVERY_SPACE
    ),
    "mac with fixed length": Case(
        MAC(
            hidden_sizes=SMALL,
            trajectory_length=FixedTrajectoryLength(2),
            optimizer="adagrad-norm",
            feed=Rollouts(3, num_envs=3),
        ),
        CHOICE,
    ),
    "srl": Case(
        SRL(
            hidden_sizes=SMALL,
            model_hidden_sizes=SMALL,
            action_sequence_length=3,
            obs_normalizer=RunningMeanStd(),
            feed=replay(),
        ),
        Walk(),
    ),
    "cqn": Case(
        CQN(hidden_sizes=SMALL, num_levels=2, num_bins=3, target_update_interval=3, feed=replay(sequence_length=3)),
        Walk(),
    ),
    "cqn-as": Case(
        CQNAS(
            hidden_sizes=SMALL,
            num_levels=2,
            num_bins=3,
            n_step=2,
            target_update_interval=3,
            feed=replay(sequence_length=4),
        ),
        Walk(),
    ),
    "meta-a2c": Case(
        MetaA2C(A2C(hidden_sizes=SMALL, discount=0.8, obs_normalizer=RunningMeanStd(), feed=Rollouts(5, num_envs=3))),
        EVERY_SPACE,
    ),
    "meta-a2c with a shared critic": Case(
        MetaA2C(A2C(hidden_sizes=SMALL, discount=0.8, feed=Rollouts(5, num_envs=3)), SharedCritic()), CHOICE
    ),
    "es": Case(ES(feed=Rollouts(2, num_envs=3)), Walk()),
    "ippo in a team": Case(IPPO(ppo()), CREW),
    "mra": Case(
        MRA(LatentModePPO(ppo(set_encoder=SetAttention(4), memory=GRU(4), minibatch_size=16), num_modes=3)), CREW
    ),
    "bayesian": Case(
        BayesianNetworkPPO(ppo(obs_normalizer=RunningMeanStd()), edge_schedule=LinearEdgeDecay(1.0, 4.0)), CREW
    ),
    "decentralized": Case(DecentralizedPolicyOptimization(AdaptiveKLPPO(ppo())), CREW),
    "mappo": Case(MAPPO(ppo(obs_normalizer=RunningMeanStd())), CREW),
    "independent mappo with memory": Case(MAPPO(ppo(memory=GRU(4), minibatch_size=16), Independent()), PUSHING),
    "vdn": Case(VDN(hidden_sizes=SMALL, target_update_interval=3, feed=replay()), CREW),
    "qmix with memory": Case(
        QMIX(
            mixer=MonotonicMixer(4, (8,)),
            hidden_sizes=SMALL,
            memory=GRU(4),
            target_update_interval=3,
            feed=replay(sequence_length=3),
        ),
        CREW,
    ),
    "rode": Case(
        RODE(
            QMIX(
                mixer=MonotonicMixer(4, (8,)),
                utility_network=DotProductUtility(),
                hidden_sizes=SMALL,
                target_update_interval=3,
            ),
            QMIX(
                mixer=MonotonicMixer(4, (8,)),
                utility_network=DotProductUtility(),
                hidden_sizes=SMALL,
                target_update_interval=3,
                feed=replay(sequence_length=3),
            ),
            ActionRoles(num_pretrain_updates=2.0, embedding_size=3, hidden_size=4),
            high_level_interval=2,
        ),
        CREW,
    ),
    "gmah": Case(
        GMAH(
            QMIX(mixer=MonotonicMixer(4, (8,)), hidden_sizes=SMALL, target_update_interval=3),
            QMIX(mixer=SumMixer(), hidden_sizes=SMALL, target_update_interval=3, feed=replay(sequence_length=3)),
            SubgoalSpace((0, -1)),
            high_level_interval=2,
        ),
        CREW,
    ),
    "acorm": Case(
        ACORM(
            mixer=AttentionMixer(MonotonicMixer(4, (8,)), query_size=3, num_heads=2, attention_size=4, output_size=2),
            utility_network=RoleUtility(3, 4),
            auxiliary_loss=RoleContrast(update_interval=2, num_clusters=2),
            hidden_sizes=SMALL,
            memory=GRU(4),
            target_update_interval=3,
            feed=replay(sequence_length=3),
        ),
        CREW,
    ),
    "maddpg": Case(MADDPG(DDPG(hidden_sizes=SMALL, feed=replay(sequence_length=2))), PUSHING),
    "independent maddpg with choices": Case(MADDPG(DDPG(hidden_sizes=SMALL, feed=replay()), Independent()), CREW),
    "ppo with periodic reset": Case(
        IndependentLearners(ppo(memory=GRU(4), minibatch_size=16), PeriodicReset(24, (0, 1))), KUHN
    ),
    "masac": Case(MASAC(SAC(hidden_sizes=SMALL, feed=replay())), PUSHING),
    "independent masac with choices": Case(MASAC(SAC(hidden_sizes=SMALL, feed=replay()), Independent()), CREW),
    "ippo": Case(IPPO(PPO(hidden_sizes=SMALL, num_epochs=2, minibatch_size=12, feed=Rollouts(8, num_envs=3))), KUHN),
    "ippo with memory": Case(
        IPPO(
            PPO_WITH_MEMORY,
            Independent(),
        ),
        KUHN,
    ),
    "alphazero": Case(
        AlphaZero(
            hidden_sizes=SMALL,
            board_encoder=ResNet(4, 1, 2),
            num_sampling_moves=2,
            num_simulations=3,
            num_eval_simulations=3,
            num_epochs=2,
            minibatch_size=8,
            feed=Rollouts(6, num_envs=3),
        ),
        TIC_TAC_TOE,
    ),
    "cfr": Case(CFR(), KUHN),
    "cfr-plus": Case(CFRPlus(num_iterations=2), KUHN),
    "mmd": Case(
        IndependentLearners(
            MMD(
                PPO(
                    hidden_sizes=SMALL,
                    num_epochs=2,
                    minibatch_size=12,
                    policy_regularizer=MagnetKL(),
                    feed=Rollouts(8, num_envs=3),
                ),
                ema_decay=0.5,
            )
        ),
        KUHN,
    ),
    "nfsp": Case(
        IndependentLearners(
            NFSP(
                ppo(),
                BehaviorCloning(hidden_sizes=SMALL),
                anticipatory_param=0.5,
                reservoir_size=20,
                average_batch_size=6,
                num_average_updates=2,
            )
        ),
        KUHN,
    ),
    "spiral": Case(
        IndependentLearners(SPIRAL(num_players=2, feed=Episodes(3, num_envs=3), **LM)), make_text_env("kuhn-duel")
    ),
    "cast": Case(
        Cast(
            {
                "solver": FrozenModel(model="blank", num_layers=1, hidden_size=32),
                "critic": GRPO(feed=Episodes(3, group_size=3, num_envs=3), **LM),
            }
        ),
        ConversationEnv(CritiqueConversation(Derivation(num_steps=1))),
    ),
    "archer": Case(
        ArCHer(critic=OffPolicyTurnCritic(8, 2, 4, num_warmup_batches=1), feed=Episodes(3, num_envs=3), **LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "archer at replayed turns": Case(
        ArCHer(
            critic=OffPolicyTurnCritic(8, 2, 4, num_warmup_batches=1),
            num_replayed_turns=4,
            feed=Episodes(3, num_envs=3),
            **LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "agent-prm": Case(
        AgentPRM(
            num_model_steps=2,
            model_batch_size=2,
            num_policy_steps=2,
            policy_batch_size=2,
            feed=Episodes(3, group_size=3, num_envs=3),
            **OFFLINE_LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "glam": Case(
        GLAM(
            method=PPO(hidden_sizes=SMALL, num_epochs=2, minibatch_size=6, feed=Rollouts(5, num_envs=3)), **OFFLINE_LM
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "sac-glam": Case(
        SACGLAM(
            method=SAC(hidden_sizes=SMALL, feed=replay(sequence_length=3)),
            n_step=2,
            critic_warmup_updates=1,
            **OFFLINE_LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "grpo": Case(GRPO(feed=Episodes(3, group_size=3, num_envs=3), **LM), TextEnv(Maze(size=2, max_turns=3))),
    "reinforce": Case(REINFORCE(feed=Episodes(3, num_envs=3), **LM), TextEnv(Maze(size=2, max_turns=3))),
    "ppo-lm": Case(LanguagePPO(feed=Episodes(3, num_envs=3), **LM), TextEnv(Maze(size=2, max_turns=3))),
    "ppo-lm with turn GAE": Case(
        LanguagePPO(advantage_estimator=TurnGAE(), feed=Episodes(3, num_envs=3), **LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "rloo": Case(
        RLOO(
            trainable=LoRA(2),
            advantage_estimator=RewardToGo(GroupMean()),
            kl_penalty=None,
            feed=Episodes(3, group_size=3, num_envs=3),
            **LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "rto": Case(
        RTO(num_preference_updates=1, feed=Episodes(3, group_size=2, num_envs=4), **LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "score": Case(
        SCoRe(feed=Episodes(2, group_size=3, num_envs=3), **LM), TextEnv(Correction(num_digits=1, first_reward=1.0))
    ),
    "grpo with success replay": Case(
        GRPO(rollout_transform=SuccessReplay(8), feed=Episodes(3, group_size=3, num_envs=3), **LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "grpo with rank filter": Case(
        GRPO(rollout_transform=RankFilter(), feed=Episodes(3, group_size=3, num_envs=3), **LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "reinforce with trajectory revision": Case(
        REINFORCE(
            advantage_estimator=TrajectoryReturn(NoBaseline()),
            rollout_transform=TrajectoryRevision(),
            feed=Episodes(6, group_size=3, num_envs=3),
            **LM,
        ),
        TextEnv(UndoTask(Maze(size=2, max_turns=3), extra_turns=3)),
    ),
    "sft on environment tokens": Case(
        SFT(loss_mask=EnvTokensFirst(2), feed=LoggedEpisodes(3, 4), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))
    ),
    "sweet-rl with a critic of turns": Case(
        SWEET(
            critic=OffPolicyTurnCritic(16, 2, 4, num_warmup_batches=1),
            num_candidates=3,
            feed=PreferencePairs(3, 2),
            **OFFLINE_LM,
        ),
        TextEnv(Questions(max_turns=3, num_animals=4), use_privileged=True),
    ),
    "critic-control": Case(CriticControl(feed=Episodes(1, num_envs=3), **OFFLINE_LM), TextEnv(Review(num_clauses=1))),
    "critic-control over turns": Case(
        CriticControl(feed=Episodes(3, num_envs=3), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))
    ),
    "sft": Case(SFT(min_return=-0.5, feed=LoggedEpisodes(3, 4), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))),
    "dpo": Case(DPO(feed=PreferencePairs(3, 2), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))),
    "dpo with reference sync": Case(
        DPO(loss_type=IPOLoss(), ref_sync_interval=2, feed=PreferencePairs(3, 2), **OFFLINE_LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "online-dpo": Case(
        OnlineDPO(feed=Episodes(3, group_size=2, num_envs=4), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))
    ),
    "online-dpo with an opponent": Case(
        OnlineDPO(
            loss_type=NashMDLoss(),
            opponent_weight=0.5,
            behavior_weight=0.3,
            ref_sync_interval=2,
            feed=Episodes(3, group_size=2, num_envs=4),
            **OFFLINE_LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "rm": Case(RM(feed=PreferencePairs(3, 2), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))),
    "rm with an ensemble": Case(
        RM(
            num_members=2,
            num_candidates=2,
            trainable=LoRA(2, 4.0, ("v", "up")),
            feed=PreferencePairs(3, 2),
            **OFFLINE_LM,
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "kto": Case(
        KTO(trainable=LoRA(2, 4.0, ("v", "up")), feed=LoggedEpisodes(3, 4), **OFFLINE_LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "a-lol": Case(
        ALoL(critic=ReferenceCritic(num_critic_pretrain_updates=1), feed=LoggedEpisodes(3, 4), **OFFLINE_LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "oreo": Case(OREO(feed=LoggedEpisodes(3, 4), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))),
    "oreo at turn level": Case(
        OREO(critic=SoftValueCritic(turn_level=True), feed=LoggedEpisodes(3, 4), **OFFLINE_LM),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "direct-advantage": Case(
        DirectAdvantagePolicyOptimization(
            critic=SuccessCritic(num_critic_pretrain_updates=1), feed=LoggedEpisodes(3, 4), **OFFLINE_LM
        ),
        TextEnv(Maze(size=2, max_turns=3)),
    ),
    "spin": Case(
        SPIN(ref_sync_interval=2, feed=LoggedEpisodes(3, 4), **OFFLINE_LM), TextEnv(Maze(size=2, max_turns=3))
    ),
    "sweet-rl": Case(
        SWEET(
            critic=ImplicitReward(num_critic_pretrain_updates=1),
            num_candidates=3,
            feed=PreferencePairs(3, 2),
            **OFFLINE_LM,
        ),
        TextEnv(Questions(max_turns=3, num_animals=4), use_privileged=True),
    ),
    "bc": Case(BC(hidden_sizes=SMALL, obs_normalizer=RunningMeanStd(), feed=LoggedTransitions(6, 3)), EVERY_SPACE),
}
FAST = {"bc", "dqn", "ppo", "sac"}
"""Cases whose contract checks are in the default tier: logged and replayed data, rollouts, continuous actions."""

FAST_IN_LOOPS = {"dqn", "dqn with priorities"}
"""The same for the training loops, where a case costs two compiled runs."""


def marked(names, fast=frozenset(FAST)):
    """Names of cases as pytest parameters; those that are not fast are marked `laws`."""
    return [pytest.param(name, marks=[] if name in fast else [pytest.mark.laws]) for name in names]


ONLINE = [
    name
    for name, case in CASES.items()
    if not isinstance(case.method.feed, LoggedTransitions | LoggedEpisodes | PreferencePairs)
]

"""Slots, the abstract classes of exchangeable parts, with the parts of Thespis that derive from them.

A field of a method whose annotation is one of these classes takes any part that derives from it: one of those below, by
the name of its class; one that an installed distribution has registered (:mod:`thespis.core.parts`); or the user's own,
``--set critic=my_module:MyCritic``. The table makes all parts known before their modules are imported.
"""

from __future__ import annotations

import importlib

from thespis.core.parts import Part, PartRegistry

_TABLE = {
    "thespis.actors.continuous_heads:OnPolicyHead": """
        thespis.actors.policy_heads:Gaussian
        thespis.actors.state_dependent_noise:StateDependentNoise
        """,
    "thespis.actors.continuous_heads:SoftActorHead": """
        thespis.actors.policy_heads:SquashedGaussian
        thespis.actors.mixture_of_experts:MixtureOfExperts
        thespis.actors.state_dependent_noise:SquashedStateDependentNoise
        """,
    "thespis.core.feeds:Feed": """
        thespis.data.feeds:Episodes
        thespis.data.feeds:LoggedEpisodes
        thespis.data.feeds:PreferencePairs
        """,
    "thespis.core.feeds:ReplaySampler": "thespis.data.prioritized:PrioritizedSampler",
    "thespis.core.feeds:RolloutFeed": "thespis.data.feeds:Rollouts",
    "thespis.core.feeds:SequenceFeed": "thespis.data.sequence_replay:SequenceReplay",
    "thespis.core.feeds:WindowFeed": (
        "thespis.data.feeds:Replay thespis.data.feeds:LoggedTransitions thespis.data.mix:Mix "
        "thespis.data.reservoir:Reservoir thespis.data.task_replay:TaskReplay "
        "thespis.papers.ensemble_categorical_rl.own_replay:MemberReplay "
        "thespis.papers.action_sequence_critic_rl.demonstrations:DemonstratedReplay"
    ),
    "thespis.curricula.level_scores:LevelScore": "MaxMonteCarlo PositiveValueLoss",
    "thespis.feedback.preference_queries:Labeller": """
        SyntheticTeacher
        thespis.feedback.labellers:CyclicTeacher
        thespis.feedback.labellers:RegretTeacher
        thespis.feedback.labellers:UserTypes
        thespis.feedback.preference_labels:RecordedLabels
    """,
    "thespis.feedback.labellers:StateValue": "ZeroValue",
    "thespis.feedback.win_rate:PairJudge": """
        ChoiceJudge
        PlaceBiasedJudge
        RewardJudge
        thespis.feedback.writing_judges:QualitiesJudge
        thespis.feedback.writing_judges:WritingJudge
    """,
    "thespis.feedback.preference_queries:QuerySelection": "UniformQueries DisagreementQueries",
    "thespis.data.hindsight:GoalStrategy": "HindsightFuture HindsightFinal",
    "thespis.critics.critic_inputs:CriticInput": "LocalObs GlobalState GlobalStateAction",
    "thespis.critics.hypernetwork:CriticArchitecture": "ConcatCritic HypernetworkCritic",
    "thespis.critics.mixers:Mixer": "SumMixer MonotonicMixer thespis.critics.role_encoding:AttentionMixer",
    "thespis.critics.mixers:Utility": """
        LinearUtility
        thespis.critics.role_encoding:RoleUtility
        thespis.critics.role_matching:DotProductUtility
        """,
    "thespis.learners.games.tabular_cfr:UpdateOrder": "SimultaneousUpdates AlternatingUpdates",
    "thespis.learners.language.advantage_estimators:AdvantageEstimator": (
        "TrajectoryReturn RewardToGo TurnGAE TokenGAE thespis.papers.dvpo.method:FrozenValueGAE"
    ),
    "thespis.learners.language.advantage_estimators:GroupBaseline": "NoBaseline GroupMean LeaveOneOut GroupNormalized",
    "thespis.learners.language.lm_agent:TrainableParams": "All LoRA",
    "thespis.learners.language.loss_masks:LossMask": "ResponseTokens EnvTokensFirst",
    "thespis.learners.language.nft:PromptWeight": "FailureWeight OddsWeight",
    "thespis.learners.language.policy_losses:ImportanceLevel": "TokenLevelRatio TurnLevelRatio DialogueLevelRatio",
    "thespis.learners.language.policy_losses:KLPenalty": "ReverseKL K3 FirstTurnKL",
    "thespis.learners.language.policy_losses:LossReduction": "TokenMean SequenceMean FixedLength",
    "thespis.learners.language.policy_losses:PolicyLoss": """
        PolicyGradient
        ClippedSurrogate
        thespis.learners.language.nft:NegativeAwareLoss
        thespis.papers.critique_grpo.refinements:ShapedRefinements
        """,
    "thespis.learners.language.preference_losses:DivergenceLink": (
        "ReverseKLLink ForwardKLLink JensenShannonLink AlphaLink"
    ),
    "thespis.learners.language.preference_losses:PreferenceLoss": (
        "SigmoidLoss IPOLoss HingeLoss RobustLoss EXOLoss SPPOLoss RegressionLoss DNOLoss NashMDLoss "
        "RPOLoss SimPOLoss ORPOLoss CPLLoss thespis.papers.irepo.losses:IREPOLoss "
        "thespis.papers.copg.losses:OffPolicyGradientLoss thespis.papers.copg.losses:ValueBaselineLoss "
        "thespis.papers.on_policy_negative_gradient_study.parts:LikelihoodLoss"
    ),
    "thespis.learners.language.response_critics:PathConsistencyCritic": "SoftValueCritic",
    "thespis.learners.language.response_critics:ResponseCritic": "NoCritic",
    "thespis.learners.language.response_critics:StateValueCritic": "ReferenceCritic SuccessCritic",
    "thespis.learners.language.response_critics:TurnAdvantageCritic": """
        thespis.learners.language.turn_critic:OffPolicyTurnCritic
        thespis.learners.language.implicit_reward:ImplicitReward
        """,
    "thespis.learners.language.rollout_transforms:RolloutTransform": """
        MovingAverageBaseline
        PlayerBaseline
        SuccessReplay
        thespis.learners.language.response_filters:RankFilter
        thespis.learners.language.revisions:RejectionSampling
        thespis.learners.language.revisions:TrajectoryRevision
        thespis.learners.language.revisions:SecondAttempts
        thespis.papers.reflect_retry_reward.reflections:ReflectionCredit
        thespis.papers.pit.references:LastResponses
        thespis.papers.critique_grpo.refinements:RefinementsInGroup
        thespis.papers.critique_grpo.refinements:DemonstrationsInGroup
        """,
    "thespis.learners.multi_agent.role_contrast:AuxiliaryLoss": "RoleContrast",
    "thespis.learners.model_based.imagination:RolloutLength": "FixedRolloutLength LinearRolloutLength",
    "thespis.learners.model_based.termination:Termination": "LearnedTermination HealthyRange",
    "thespis.learners.multi_agent.parameter_sharing:ParameterSharing": "SharedParameters Independent PeriodicReset",
    "thespis.learners.off_policy.actor_regularizers:ActorRegularizer": "BehaviorCloning",
    "thespis.learners.off_policy.categorical_q:TargetDistribution": "MemberDistribution MixtureDistribution",
    "thespis.learners.off_policy.causal_entropy:EntropyBonus": "CausalEntropy",
    "thespis.learners.off_policy.discrete_q:MemberExploration": """
        PerStep
        PerEpisode
        thespis.papers.ensemble_categorical_rl.own_replay:PerEnvironment
        """,
    "thespis.learners.off_policy.discrete_q:TargetUpdate": "PeriodicCopy IteratedTargets",
    "thespis.learners.off_policy.hindsight:HindsightRelabeling": "HindsightFuture HindsightFinal",
    "thespis.learners.off_policy.dormant_reset:NetworkReset": "DormantReset",
    "thespis.learners.off_policy.recurrent_q:ValueTransform": "ValueRescaling",
    "thespis.learners.off_policy.replay_ratio:ReplayRatio": "Fixed Adaptive",
    "thespis.learners.off_policy.target_filters:TargetFilter": "LowPassFilter",
    "thespis.learners.off_policy.temperature:Temperature": "FixedTemperature TunedTemperature",
    "thespis.learners.off_policy.trust_region:TrustRegion": "MirrorDescentStep",
    "thespis.learners.on_policy.method:AdvantageNormalizer": "BatchNormalizer MinibatchNormalizer",
    "thespis.learners.on_policy.policy_regularizers:PolicyRegularizer": "MagnetKL SqrtKL MirrorDescentKL",
    "thespis.learners.optim.normalizers:ObsNormalizer": "RunningMeanStd",
    "thespis.learners.optim.normalizers:RewardNormalizer": "ReturnNormalizer RewardCentering",
    "thespis.learners.optim.optimizers:LearningRateSchedule": "InverseSqrtSchedule LinearSchedule OptaxSchedule",
    "thespis.learners.optim.optimizers:OptimizerFactory": "OptaxOptimizer",
    "thespis.methods.online.drq_v2:Augmentation": "RandomShift",
    "thespis.methods.online.n_step_q:Bootstrap": "QLearning Sarsa",
    "thespis.nets.recurrent:RecurrentCore": "thespis.nets.body:GRU thespis.nets.lstm:LSTM thespis.nets.elstm:ELSTM",
    "thespis.nets.noisy:NetworkNoise": "NoisyNetwork",
    "thespis.nets.set_attention:SetEncoder": "SetAttention",
    "thespis.nets.cnn:ImageEncoder": "NatureCNN MinAtarCNN ImpalaCNN thespis.nets.resnet:ResNet",
    "thespis.papers.a_lol.method:ImportanceRatio": "SequenceRatio TokenRatio",
    "thespis.papers.bayesian_joint_policy.graph_policy:AgentGraph": "LearnedGraph CompleteGraph",
    "thespis.papers.coach.trainers:Trainer": "TaskFeedback ActionFeedback AdvantageFeedback ImprovementFeedback",
    "thespis.papers.convex_scoring_risk_sensitive_ac.risk_measures:RiskMeasure": (
        "MeanCost MeanVariance ExpectedShortfall EntropicVaR"
    ),
    "thespis.papers.gmah.subgoals:LowLevelReward": "SubgoalReward TaskReward",
    "thespis.papers.mac.method:TrajectoryLength": "FixedTrajectoryLength MultiLevelMonteCarlo",
    "thespis.papers.outer_value_function_meta_gradient.meta_gradient:OuterCritic": "SharedCritic SeparateCritic",
    "thespis.papers.prelude_cipher.method:StyleRule": (
        "PlainStyle NearestPreferences RetrievedEdits RecentPreference FirstPreference"
    ),
    "thespis.papers.regret_preference_model.method:SegmentLearner": """
        PreferencePlanner
        thespis.papers.cpl.method:SegmentCPL
        thespis.papers.cpl.method:SegmentPIQL
        thespis.papers.oppo.method:OPPO
        thespis.papers.oppo.method:ReturnConditionedImitation
        thespis.papers.oppo.method:SegmentIQL
        """,
    "thespis.papers.revalued.decoupled_q:UtilityTarget": "MemberTarget EnsembleMeanTarget",
    "thespis.papers.rode.action_roles:ActionClustering": "EffectClustering RandomAssignment",
    "thespis.papers.subpo.method:GainEstimator": "GainToGo TotalGain GainSoFar",
}
"""Parts by slot, a class of the slot's own module by its name and others as ``module:Class``."""

SLOTS: dict[str, tuple[str, ...]] = {
    slot: tuple(part if ":" in part else f"{slot.partition(':')[0]}:{part}" for part in parts.split())
    for slot, parts in _TABLE.items()
}
"""Paths of parts by the path of their abstract class, both ``module:Class``."""


def slot_parts() -> list[Part]:
    """The parts of Thespis in the table, each with the name of its slot's class as its kind."""
    return [
        Part(slot.partition(":")[2], path.partition(":")[2], path) for slot, paths in SLOTS.items() for path in paths
    ]


def import_members(slot: str) -> dict[str, type]:
    """The parts of Thespis that derive from ``slot`` (``module:Class``) by name, imported; none for other classes."""
    parts = [part.partition(":") for part in SLOTS.get(slot, ())]
    return {name: getattr(importlib.import_module(module), name) for module, _, name in parts}


def slot_registry(slot: str, kinds: frozenset[str]) -> PartRegistry:
    """The parts of installed distributions for the class called ``slot``; ``kinds``: names of classes that may fit."""
    return PartRegistry(slot, {}, "thespis list parts", kinds.__contains__)

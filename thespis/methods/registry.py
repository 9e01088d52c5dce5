"""Method registry: loads method classes by name or as ``module:Class``, and imports each only on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thespis.core.parts import METHOD, PartRegistry  # and nothing heavy: names are listed without JAX
from thespis.core.renames import notice

FAMILIES = {
    "online": {
        "a2c": "thespis.methods.online.a2c:A2C",
        "aro-ddpg": "thespis.papers.aro_ddpg.method:ARODDPG",
        "c51": "thespis.methods.online.c51:C51",
        "clam": "thespis.papers.clam.method:CLAM",
        "crossq": "thespis.methods.online.crossq:CrossQ",
        "convex-scoring": "thespis.papers.convex_scoring_risk_sensitive_ac.method:ConvexScoring",
        "cqn": "thespis.papers.action_sequence_critic_rl.method:CQN",
        "cqn-as": "thespis.papers.action_sequence_critic_rl.method:CQNAS",
        "ddpg": "thespis.methods.online.ddpg:DDPG",
        "decqn": "thespis.papers.revalued.method:DecQN",
        "dqn": "thespis.methods.online.dqn:DQN",
        "drq-v2": "thespis.methods.online.drq_v2:DrQv2",
        "dsac": "thespis.methods.online.dsac:DSAC",
        "dyna": "thespis.methods.online.dyna:Dyna",
        "ensemble-c51": "thespis.papers.ensemble_categorical_rl.method:EnsembleC51",
        "es": "thespis.papers.adversarial_cheap_talk.method:ES",
        "i-dqn": "thespis.papers.i_qn.method:IDQN",
        "impala": "thespis.methods.online.impala:IMPALA",
        "mac": "thespis.papers.mac.method:MAC",
        "mbpo": "thespis.methods.online.mbpo:MBPO",
        "mdpo": "thespis.papers.mdpo.method:MDPO",
        "mdpo-off": "thespis.papers.mdpo.method:OffPolicyMDPO",
        "meow": "thespis.papers.meow.method:MEow",
        "meta-a2c": "thespis.papers.outer_value_function_meta_gradient.method:MetaA2C",
        "n-step-q": "thespis.methods.online.n_step_q:NStepQ",
        "ppo": "thespis.methods.online.ppo:PPO",
        "r2ac": "thespis.papers.rtrl_actor_critic.method:R2AC",
        "r2d2": "thespis.methods.online.r2d2:R2D2",
        "revalued": "thespis.papers.revalued.method:REValueD",
        "sac": "thespis.methods.online.sac:SAC",
        "sac-v": "thespis.methods.online.sac_v:SACV",
        "subpo": "thespis.papers.subpo.method:SubPO",
        "srl": "thespis.papers.srl.method:SRL",
        "td3": "thespis.methods.online.td3:TD3",
    },
    "imitation": {
        "bc": "thespis.methods.imitation.bc:BC",
    },
    "multi_agent": {
        "acorm": "thespis.papers.acorm.method:ACORM",
        "bayesian": "thespis.papers.bayesian_joint_policy.method:BayesianNetworkPPO",
        "decentralized": "thespis.papers.decentralized_policy_optimization.method:DecentralizedPolicyOptimization",
        "gmah": "thespis.papers.gmah.method:GMAH",
        "ippo": "thespis.methods.multi_agent.ippo:IPPO",
        "maddpg": "thespis.methods.multi_agent.maddpg:MADDPG",
        "mappo": "thespis.methods.multi_agent.mappo:MAPPO",
        "masac": "thespis.methods.multi_agent.masac:MASAC",
        "mra": "thespis.papers.mra.method:MRA",
        "qmix": "thespis.methods.multi_agent.qmix:QMIX",
        "rode": "thespis.papers.rode.method:RODE",
        "vdn": "thespis.methods.multi_agent.vdn:VDN",
    },
    "games": {
        "alphazero": "thespis.methods.games.alphazero:AlphaZero",
        "cfr": "thespis.methods.games.cfr:CFR",
        "cfr-plus": "thespis.methods.games.cfr_plus:CFRPlus",
        "mmd": "thespis.methods.games.mmd:MMD",
        "nfsp": "thespis.methods.games.nfsp:NFSP",
    },
    "language": {
        "a-lol": "thespis.papers.a_lol.method:ALoL",
        "agent-prm": "thespis.papers.agentprm.method:AgentPRM",
        "archer": "thespis.methods.language.archer:ArCHer",
        "critic-control": "thespis.papers.criticcontrol.method:CriticControl",
        "direct-advantage": "thespis.papers.direct_advantage_policy_optimization.method:"
        "DirectAdvantagePolicyOptimization",
        "dpo": "thespis.methods.language.dpo:DPO",
        "glam": "thespis.methods.language.glam:GLAM",
        "grpo": "thespis.methods.language.grpo:GRPO",
        "kto": "thespis.methods.language.kto:KTO",
        "online-dpo": "thespis.methods.language.online_dpo:OnlineDPO",
        "oreo": "thespis.papers.oreo.method:OREO",
        "ppo-lm": "thespis.methods.language.ppo_lm:LanguagePPO",
        "reinforce": "thespis.methods.language.reinforce:REINFORCE",
        "rm": "thespis.methods.language.rm:RM",
        "rloo": "thespis.methods.language.rloo:RLOO",
        "rto": "thespis.methods.language.rto:RTO",
        "sac-glam": "thespis.papers.sac_glam.method:SACGLAM",
        "score": "thespis.papers.score.method:SCoRe",
        "sft": "thespis.methods.language.sft:SFT",
        "spin": "thespis.methods.language.spin:SPIN",
        "spiral": "thespis.papers.spiral.method:SPIRAL",
        "sweet-rl": "thespis.papers.sweet_rl.method:SWEET",
    },
}
"""Methods by family; a method of one paper stands in the folder of its paper."""

METHODS = dict(sorted((name, path) for methods in FAMILIES.values() for name, path in methods.items()))

RENAMED_METHODS = {"nq": "n-step-q"}
"""Names that methods had in earlier versions."""


REGISTRY = PartRegistry(METHOD, METHODS, "thespis list methods")
"""The methods above, and those of installed distributions (entry points ``thespis.methods``)."""


def current_name(name: str) -> str:
    """Today's name of a method; a name of an earlier version is accepted with a warning."""
    if name not in RENAMED_METHODS:
        return name
    notice(f"method {name} is now called {RENAMED_METHODS[name]}")
    return RENAMED_METHODS[name]


def load_method(name: str) -> Callable[..., Any]:
    """Import and return the class of a method: a name, also that of an earlier version, or ``module:Class``.

    Raises:
        UserError: for an unknown name, with the nearest ones, and for a class that cannot be imported.
    """
    return REGISTRY.load(current_name(name))

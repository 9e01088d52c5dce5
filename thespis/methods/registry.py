"""Methods by name. Nothing is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from thespis.core.contracts import Method
from thespis.core.errors import UserError

NAMES = {
    "a2c": "thespis.methods.online.a2c:A2C",
    "a-lol": "thespis.methods.language.alol:ALoL",
    "acorm": "thespis.methods.teams.acorm:ACORM",
    "alphazero": "thespis.methods.games.alphazero:AlphaZero",
    "archer": "thespis.methods.language.archer:ArCHer",
    "aro-ddpg": "thespis.methods.online.aro_ddpg:ARODDPG",
    "bayesian": "thespis.methods.teams.bayesian:Bayesian",
    "bc": "thespis.methods.imitation.bc:BC",
    "c51": "thespis.methods.online.c51:C51",
    "cfr": "thespis.methods.games.cfr:CFR",
    "cfr-plus": "thespis.methods.games.cfr_plus:CFRPlus",
    "clam": "thespis.methods.online.clam:CLAM",
    "convex-scoring": "thespis.methods.online.convex_scoring:ConvexScoring",
    "cqn": "thespis.methods.online.cqn:CQN",
    "cqn-as": "thespis.methods.online.cqn_as:CQNAS",
    "critic-control": "thespis.methods.language.critic_control:CriticControl",
    "ddpg": "thespis.methods.online.ddpg:DDPG",
    "decentralized": "thespis.methods.teams.decentralized:Decentralized",
    "decqn": "thespis.methods.online.decqn:DecQN",
    "direct-advantage": "thespis.methods.language.direct_advantage:DirectAdvantage",
    "dpo": "thespis.methods.language.dpo:DPO",
    "dqn": "thespis.methods.online.dqn:DQN",
    "drq-v2": "thespis.methods.online.drq:DrQ",
    "dsac": "thespis.methods.online.dsac:DSAC",
    "ensemble-c51": "thespis.methods.online.ensemble_c51:EnsembleC51",
    "es": "thespis.methods.online.es:ES",
    "glam": "thespis.methods.language.glam:GLAM",
    "gmah": "thespis.methods.teams.gmah:GMAH",
    "grpo": "thespis.methods.language.grpo:GRPO",
    "i-dqn": "thespis.methods.online.i_dqn:IDQN",
    "impala": "thespis.methods.online.impala:IMPALA",
    "ippo": "thespis.methods.teams.ippo:IPPO",
    "kto": "thespis.methods.language.kto:KTO",
    "mac": "thespis.methods.online.mac:MAC",
    "maddpg": "thespis.methods.teams.maddpg:MADDPG",
    "mappo": "thespis.methods.teams.mappo:MAPPO",
    "masac": "thespis.methods.teams.masac:MASAC",
    "mdpo": "thespis.methods.online.mdpo:MDPO",
    "mdpo-off": "thespis.methods.online.mdpo_off:OffPolicyMDPO",
    "meow": "thespis.methods.online.meow:MEow",
    "meta-a2c": "thespis.methods.online.meta_a2c:MetaA2C",
    "mmd": "thespis.methods.games.mmd:MMD",
    "mra": "thespis.methods.teams.mra:MRA",
    "nfsp": "thespis.methods.games.nfsp:NFSP",
    "nq": "thespis.methods.online.nq:NQ",
    "oreo": "thespis.methods.language.oreo:OREO",
    "ppo": "thespis.methods.online.ppo:PPO",
    "ppo-lm": "thespis.methods.language.ppo_lm:LanguagePPO",
    "qmix": "thespis.methods.teams.qmix:QMIX",
    "r2ac": "thespis.methods.online.r2ac:R2AC",
    "reinforce": "thespis.methods.language.reinforce:REINFORCE",
    "revalued": "thespis.methods.online.revalued:REValueD",
    "rloo": "thespis.methods.language.rloo:RLOO",
    "rode": "thespis.methods.teams.rode:RODE",
    "sac": "thespis.methods.online.sac:SAC",
    "sac-glam": "thespis.methods.language.sac_glam:SACGLAM",
    "sac-v": "thespis.methods.online.sac_v:SACV",
    "score": "thespis.methods.language.score:SCoRe",
    "sft": "thespis.methods.language.sft:SFT",
    "spin": "thespis.methods.language.spin:SPIN",
    "spiral": "thespis.methods.language.spiral:Spiral",
    "subpo": "thespis.methods.online.subpo:SubPO",
    "srl": "thespis.methods.online.srl:SRL",
    "sweet-rl": "thespis.methods.language.sweet:SWEET",
    "td3": "thespis.methods.online.td3:TD3",
    "vdn": "thespis.methods.teams.vdn:VDN",
}


def load(name: str) -> Callable[..., Method]:
    """The class of a method. Raises ``UserError`` with the nearest names for an unknown one."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=3) or sorted(NAMES)
        raise UserError(f"unknown method {name!r}; did you mean {', '.join(near)}? (thespis list methods)")
    module, cls = NAMES[name].split(":")
    return getattr(importlib.import_module(module), cls)

"""What the doctor lets every method learn: a small probe, whose values or best actions are known."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.contracts import Method
from thespis.core.feeds import Episodes, Replay, Rollouts
from thespis.critics.attending import Attending
from thespis.critics.embedding import Embedded
from thespis.critics.matching import Matched
from thespis.critics.mixing import Monotonic
from thespis.learners.contrast import Contrast
from thespis.learners.held import Steps
from thespis.learners.likeness import RoleContrast
from thespis.learners.normalisers import AsTheyAre, RawReward
from thespis.learners.risks import Mean
from thespis.learners.roles import ActionRoles
from thespis.learners.subgoals import Subgoals, WorldsReward
from thespis.learners.targets import Chain
from thespis.learners.temperature import FixedTemperature
from thespis.learners.trajectories import MultiLevel
from thespis.methods.online.a2c import A2C
from thespis.methods.online.aro_ddpg import ARODDPG
from thespis.methods.online.c51 import C51
from thespis.methods.online.clam import CLAM
from thespis.methods.online.convex_scoring import ConvexScoring
from thespis.methods.online.cqn import CQN
from thespis.methods.online.cqn_as import CQNAS
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.decqn import DecQN
from thespis.methods.online.dqn import DQN
from thespis.methods.online.drq import DrQ
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.ensemble_c51 import EnsembleC51
from thespis.methods.online.es import ES
from thespis.methods.online.i_dqn import IDQN
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.mac import MAC
from thespis.methods.online.mdpo import MDPO
from thespis.methods.online.mdpo_off import OffPolicyMDPO
from thespis.methods.online.meow import MEow
from thespis.methods.online.meta_a2c import MetaA2C
from thespis.methods.online.nq import NQ
from thespis.methods.online.ppo import PPO
from thespis.methods.online.r2ac import R2AC
from thespis.methods.online.revalued import REValueD
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.srl import SRL
from thespis.methods.online.subpo import SubPO
from thespis.methods.online.td3 import TD3
from thespis.methods.teams.acorm import ACORM
from thespis.methods.teams.bayesian import Bayesian
from thespis.methods.teams.decentralized import Decentralized, Surrogate
from thespis.methods.teams.gmah import GMAH
from thespis.methods.teams.ippo import IPPO
from thespis.methods.teams.maddpg import MADDPG
from thespis.methods.teams.mappo import MAPPO
from thespis.methods.teams.masac import MASAC
from thespis.methods.teams.mra import MRA, Modes
from thespis.methods.teams.qmix import QMIX
from thespis.methods.teams.rode import RODE
from thespis.methods.teams.vdn import VDN
from thespis.nets.body import GRU
from thespis.nets.elstm import ELSTM

_BASE: dict[str, Any] = {"learning_rate": 1e-2, "discount": 0.9, "hidden": (16,)}
_FRESH: dict[str, Any] = _BASE | {"feed": Rollouts(length=32, envs=8)}
_REPLAY = Replay(capacity=4_000, batch=64, warmup=8, envs=8)
_STORED: dict[str, Any] = _BASE | {"feed": _REPLAY, "target_rate": 0.1}
_HARD: dict[str, Any] = _STORED | {"temperature": FixedTemperature(0.0)}  # no bonus: values are those of the reward
_QUICK: dict[str, Any] = _BASE | {"target_every": 20, "epsilon_updates": 300.0, "feed": _REPLAY}


@dataclasses.dataclass(frozen=True)
class Trial:
    """A small method that must learn a probe within ``steps`` environment steps."""

    method: Method
    probe: str
    steps: int


def trials() -> list[Trial]:
    """Every method with a critic, on worlds that together show all that may go wrong; the most telling come first."""
    return [
        *_alone(),
        *_descended(),
        *_seen(),
        *_of_values(),
        *_lasting(),
        *_flowing(),
        *_averaged(),
        *_of_whole_episodes(),
        *_recalling(),
        *_sequenced(),
        *_together(),
    ]


def _alone() -> list[Trial]:
    short: dict[str, Any] = _BASE | {"learning_rate": 5e-3, "feed": Rollouts(length=4, envs=8)}
    sampled: dict[str, Any] = _HARD | {"learning_rate": 3e-3, "feed": dataclasses.replace(_REPLAY, batch=256)}
    stepped: dict[str, Any] = _QUICK | {"feed": dataclasses.replace(_REPLAY, length=3)}
    dsac = DSAC(**sampled, actor_learning_rate=3e-3, reward_scale=1.0, least_deviation=0.1)
    ppo = PPO(**_FRESH, epochs=4)
    return [
        Trial(ppo, "late", 20_000),
        Trial(SAC(**_HARD), "constant-continuous", 8_000),
        Trial(DQN(**stepped, duelling=True), "masked", 8_000),
        Trial(A2C(**_FRESH, trace=0.9), "constant-1000", 100_000),
        Trial(TD3(**_STORED), "ending-continuous", 8_000),
        Trial(DDPG(**_STORED), "match-continuous", 8_000),
        Trial(PPO(**_FRESH, epochs=4, memory=GRU(16)), "maze", 30_000),
        Trial(ppo, "bound", 30_000),
        Trial(CLAM(ppo, Contrast(hidden=(16,), window=8)), "bound", 30_000),
        Trial(SAC(**_HARD), "signal", 8_000),
        Trial(SACV(**_HARD), "choice", 8_000),
        Trial(IMPALA(**short, trace=0.9, optimiser="adam"), "pair", 60_000),
        Trial(NQ(**_FRESH, trace=0.0, target_every=20, epsilon_updates=30.0), "choice", 30_000),
        Trial(dsac, "signal-continuous", 8_000),
        Trial(ES(learning_rate=0.05, deviation=0.1), "amount", 6_400),
    ]


def _descended() -> list[Trial]:
    mdpo = MDPO(**_FRESH, epochs=4, minibatch=64, observations=AsTheyAre(), rewards=RawReward())
    return [
        Trial(mdpo, "late", 20_000),
        Trial(OffPolicyMDPO(**_HARD, hold=Steps(weight=0.1, every=50)), "match-continuous", 8_000),
    ]


def _seen() -> list[Trial]:
    slower: dict[str, Any] = _STORED | {"learning_rate": 3e-3}
    return [Trial(DrQ(**slower, trunk=8, first_noise=0.5, noise_updates=300.0), "match-continuous", 8_000)]


def _of_values() -> list[Trial]:
    ends: dict[str, Any] = _QUICK | {"lowest": -2.0, "highest": 12.0, "adam_epsilon": 1e-8}
    spread: dict[str, Any] = _STORED | {"epsilon_updates": 300.0}
    chained: dict[str, Any] = _QUICK | {"double": True, "huber": 1.0}
    return [
        Trial(C51(**ends), "choice", 8_000),
        Trial(EnsembleC51(**ends, members=2), "masked", 8_000),
        Trial(IDQN(**chained, targets=Chain(3, 4)), "masked", 8_000),
        Trial(REValueD(**spread, members=2), "signal-continuous", 8_000),
        Trial(DecQN(**spread), "ending-continuous", 8_000),
    ]


def _lasting() -> list[Trial]:
    aro = ARODDPG(learning_rate=1e-2, average_rate=1e-2, target_rate=0.1, hidden=(16,), feed=_REPLAY)
    return [Trial(aro, "match-continuous", 8_000)]


def _averaged() -> list[Trial]:
    rates: dict[str, Any] = {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1, "hidden": (16,)}
    short: dict[str, Any] = _FRESH | {"learning_rate": 5e-3, "discount": 0.7, "feed": Rollouts(length=4, envs=8)}
    meta = MetaA2C(A2C(**short, trace=0.9, optimiser="adam"), discount=0.9, outer_trace=0.9)
    return [
        Trial(MAC(**rates, length=MultiLevel(3), feed=Rollouts(length=1, envs=8)), "late", 20_000),
        Trial(meta, "late", 60_000),
    ]


def _of_whole_episodes() -> list[Trial]:
    episodes = Episodes(5, envs=8)
    whole: dict[str, Any] = _BASE | {"discount": 1.0}
    return [
        Trial(SubPO(**_BASE, feed=episodes), "late", 20_000),
        Trial(ConvexScoring(PPO(**whole, epochs=4), Mean(), feed=episodes), "late", 20_000),
    ]


def _recalling() -> list[Trial]:
    """Rollouts of one and a half episodes: of every other one the sign was seen a rollout before the turn."""
    settings: dict[str, Any] = _BASE | {"learning_rate": 5e-3, "feed": Rollouts(length=6, envs=8)}
    r2ac = R2AC(**settings, memory=ELSTM(16, forget=1.0), trace=0.9, entropy_weight=0.03, optimiser="adam")
    return [Trial(r2ac, "maze", 60_000)]


def _sequenced() -> list[Trial]:
    base: dict[str, Any] = _BASE | {"learning_rate": 3e-3, "weight_decay": 0.0, "target_every": 20}
    rows = CQNAS(**base, sequence=2, returns=2, feed=dataclasses.replace(_REPLAY, length=2))
    return [
        Trial(SRL(**_HARD, model=(16,), length=1), "match-continuous", 8_000),
        Trial(CQN(**base, returns=1, feed=_REPLAY), "match-continuous", 8_000),
        Trial(rows, "delayed-continuous", 8_000),
    ]


def _flowing() -> list[Trial]:
    meow = MEow(**_STORED, alpha=0.01, log_std=(-3.0, 0.5), shift_hidden=(16,))
    return [Trial(meow, "signal-continuous", 8_000)]


def _together() -> list[Trial]:
    mixer = Monotonic(8, (16,))
    plain, level = QMIX(**_QUICK, mixer=mixer), QMIX(**_QUICK, mixer=mixer, utility=Matched())
    stepped: dict[str, Any] = _QUICK | {"feed": dataclasses.replace(_REPLAY, length=2), "memory": None}
    roles: dict[str, Any] = {"utility": Embedded(4, 8), "auxiliary": RoleContrast(every=5, clusters=2)}
    attending = Attending(mixer, query=4, heads=2, units=8, out=4)
    ppo, surrogate = PPO(**_FRESH, epochs=4), Surrogate(PPO(**_FRESH, epochs=4, clip=1e9))
    return [
        Trial(plain, "two-step", 8_000),
        Trial(VDN(**_QUICK), "shifts", 8_000),
        Trial(RODE(level, level, ActionRoles(count=2, settled=50.0), every=1), "two-step", 8_000),
        Trial(GMAH(plain, plain, Subgoals((1, 2), WorldsReward()), every=1), "two-step", 8_000),
        Trial(ACORM(**stepped, **roles, mixer=attending), "two-step", 8_000),
        Trial(MAPPO(ppo), "shifts", 20_000),
        Trial(MASAC(SAC(**_HARD)), "shifts", 8_000),
        Trial(IPPO(ppo), "shifts", 20_000),
        Trial(MRA(Modes(ppo, FixedTemperature(0.0), 2)), "shifts", 20_000),
        Trial(MADDPG(DDPG(**_STORED)), "meeting", 8_000),
        Trial(Decentralized(surrogate), "shifts", 20_000),
        Trial(Bayesian(ppo), "shifts", 20_000),
    ]

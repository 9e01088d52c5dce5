"""Every method at a size that compiles in seconds, with worlds that use all it can serve."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from worlds import BOX, TREE, TREE_ACTION, Crew, Walk

from thespis.actors.experts import Experts
from thespis.core.feeds import Episodes, Logged, LoggedEpisodes, Pairs, Replay, Rollouts
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.attending import Attending
from thespis.critics.embedding import Embedded
from thespis.critics.hyper import Hypernetwork
from thespis.critics.matching import Matched
from thespis.critics.mixing import Monotonic, Sum
from thespis.envs.games.everyone import Everyone
from thespis.envs.games.pgx import Pgx
from thespis.envs.text.correction import Correction
from thespis.envs.text.maze import Maze
from thespis.envs.text.naming import world as text_world
from thespis.envs.text.questions import Questions
from thespis.envs.text.review import Review
from thespis.envs.text.take_back import TakeBack
from thespis.envs.text.task import Spoken
from thespis.learners.anchors import Magnet
from thespis.learners.appraising import Onlooker, SoftReturn, Success
from thespis.learners.augmentation import RandomShift
from thespis.learners.bands import LowPass
from thespis.learners.baselines import Alone, Mean
from thespis.learners.cloning import Cloning
from thespis.learners.contrast import Contrast
from thespis.learners.credit import ToGo, TurnCritic, Whole
from thespis.learners.crowd import EachAlone
from thespis.learners.entropies import CausalEntropy
from thespis.learners.experience import Successes
from thespis.learners.following import Sarsa
from thespis.learners.gains import Whole as WholeGains
from thespis.learners.held import Steps
from thespis.learners.likeness import RoleContrast
from thespis.learners.merits import Merits
from thespis.learners.meta_gradient import OneHead
from thespis.learners.normalisers import ReturnScale, RunningScale
from thespis.learners.paces import Adaptive
from thespis.learners.preferring import Squared
from thespis.learners.process import Attribution
from thespis.learners.process_reward import ProcessReward
from thespis.learners.pupils import AnswersFirst
from thespis.learners.resets import Dormancy
from thespis.learners.revisions import Revisions
from thespis.learners.risks import EntropicValue
from thespis.learners.risks import Mean as MeanCost
from thespis.learners.roles import ActionRoles
from thespis.learners.sharing import Renewed, Separate
from thespis.learners.subgoals import Subgoals
from thespis.learners.targets import Chain
from thespis.learners.temperature import TunedTemperature
from thespis.learners.trajectories import FixedLength, MultiLevel
from thespis.learners.tuning import Adapters
from thespis.learners.utterance_critic import UtteranceCritic
from thespis.learners.utterances import Unheld
from thespis.methods.games.alphazero import AlphaZero
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.methods.games.mmd import MMD
from thespis.methods.games.nfsp import NFSP
from thespis.methods.imitation.bc import BC
from thespis.methods.language.alol import ALoL
from thespis.methods.language.archer import ArCHer
from thespis.methods.language.critic_control import CriticControl
from thespis.methods.language.direct_advantage import DirectAdvantage
from thespis.methods.language.dpo import DPO
from thespis.methods.language.glam import GLAM
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.oreo import OREO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.sac_glam import SACGLAM
from thespis.methods.language.score import SCoRe
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN
from thespis.methods.language.spiral import Spiral
from thespis.methods.language.sweet import SWEET
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
from thespis.methods.teams.bayesian import Bayesian, Fading
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
from thespis.nets.relations import Attention
from thespis.nets.residual import Residual


class Case(NamedTuple):
    """A method and the world it is tried in."""

    method: object
    world: Walk | Crew


SMALL = (8,)
CHOICE = Walk(Discrete(4), legal=True)
EVERYTHING = Walk(TREE_ACTION, TREE, legal=True)
CREW, PUSHING = Crew(), Crew(action=BOX, legal=False)
KUHN, NOUGHTS = (Everyone(Pgx(name)) for name in ("kuhn_poker", "tic_tac_toe"))


def replay(**settings) -> Replay:
    return Replay(**(dict(capacity=30, batch=6, warmup=9, every=2, updates=2, envs=3) | settings))


def ppo(**settings) -> PPO:
    return PPO(**(dict(hidden=SMALL, epochs=2, minibatch=12, feed=Rollouts(8, envs=3)) | settings))


TALKER = {"model": "blank", "layers": 2, "width": 32, "minibatch": 2, "epochs": 2}
PUPIL = {"model": "blank", "layers": 2, "width": 32}

CASES = {
    "a2c": Case(A2C(hidden=SMALL, feed=Rollouts(5, envs=3)), CHOICE),
    "ppo": Case(PPO(hidden=SMALL, epochs=2, minibatch=6, feed=Rollouts(8, envs=3)), Walk()),
    "ppo with memory": Case(
        PPO(hidden=SMALL, epochs=2, minibatch=16, memory=GRU(4), observations=RunningScale(), rewards=ReturnScale(),
            feed=Rollouts(8, envs=3)),
        EVERYTHING,
    ),
    "clam": Case(CLAM(ppo(), Contrast(hidden=SMALL, size=2, window=4)), CHOICE),
    "clam with memory": Case(
        CLAM(ppo(memory=GRU(4), observations=RunningScale()), Contrast(hidden=SMALL, window=3)), EVERYTHING
    ),
    "impala": Case(IMPALA(hidden=SMALL, memory=GRU(4), rho_bar=2.0, feed=Rollouts(5, envs=3, lag=1)), EVERYTHING),
    "dqn": Case(DQN(hidden=SMALL, duelling=True, target_every=3, feed=replay(length=3)), CHOICE),
    "c51": Case(C51(hidden=SMALL, target_every=3, feed=replay(length=3)), CHOICE),
    "ensemble-c51": Case(EnsembleC51(hidden=SMALL, members=3, target_every=3, feed=replay(length=2)), CHOICE),
    "r2ac": Case(R2AC(hidden=SMALL, memory=ELSTM(4), feed=Rollouts(5, envs=3, lag=1)), EVERYTHING),
    "i-dqn": Case(IDQN(hidden=SMALL, targets=Chain(3, 2), target_every=3, feed=replay(length=2)), CHOICE),
    "decqn": Case(DecQN(hidden=SMALL, feed=replay(length=3)), Walk(MultiDiscrete((2, 4)), legal=True)),
    "revalued": Case(REValueD(hidden=SMALL, members=3, feed=replay(length=2)), Walk()),
    "nq": Case(NQ(hidden=SMALL, target_every=3, epsilon_updates=4.0, feed=Rollouts(5, envs=3)), CHOICE),
    "nq with sarsa": Case(
        NQ(hidden=SMALL, duelling=True, following=Sarsa(), trace=0.5, feed=Rollouts(5, envs=3)), CHOICE
    ),
    "ddpg": Case(DDPG(hidden=SMALL, feed=replay()), Walk()),
    "ddpg with choices": Case(DDPG(hidden=SMALL, feed=replay()), CHOICE),
    "td3": Case(TD3(hidden=SMALL, feed=replay(length=2)), Walk()),
    "aro-ddpg": Case(ARODDPG(hidden=SMALL, feed=replay(length=2)), Walk()),
    "mdpo": Case(MDPO(hidden=SMALL, epochs=2, minibatch=6, feed=Rollouts(8, envs=3)), EVERYTHING),
    "mdpo-off": Case(OffPolicyMDPO(hidden=SMALL, hold=Steps(every=2), feed=replay(length=2)), Walk()),
    "mdpo-off with choices": Case(OffPolicyMDPO(hidden=SMALL, feed=replay()), CHOICE),
    "convex-scoring": Case(ConvexScoring(ppo(discount=1.0), feed=Episodes(5, envs=3)), Walk()),
    "convex-scoring of the mean": Case(ConvexScoring(ppo(), MeanCost(), feed=Episodes(5, envs=3)), CHOICE),
    "convex-scoring of entropic value": Case(
        ConvexScoring(ppo(memory=GRU(4), observations=RunningScale()), EntropicValue(), feed=Episodes(5, envs=3)),
        EVERYTHING,
    ),
    "subpo": Case(SubPO(hidden=SMALL, feed=Episodes(5, envs=3)), CHOICE),
    "subpo with memory": Case(
        SubPO(hidden=SMALL, memory=GRU(4), observations=RunningScale(), gains=WholeGains(), feed=Episodes(5, envs=3)),
        EVERYTHING,
    ),
    "meow": Case(MEow(hidden=SMALL, shift_hidden=SMALL, observations=RunningScale(), feed=replay(length=2)), Walk()),
    "sac": Case(SAC(hidden=SMALL, observations=RunningScale(), feed=replay(length=3, every=1)), Walk()),
    "sac with a hypernetwork": Case(SAC(hidden=SMALL, critic=Hypernetwork((8, 6), 5), feed=replay()), Walk()),
    "sac of many parts": Case(
        SAC(
            hidden=SMALL, head=Experts(2), entropy=CausalEntropy(every=2, samples=10), band=LowPass(samples=2),
            reset=Dormancy(every=3), feed=replay(),
        ),
        Walk(),
    ),
    "sac with choices": Case(SAC(hidden=SMALL, feed=replay()), CHOICE),
    "sac-v": Case(SACV(hidden=SMALL, feed=replay(length=2)), Walk()),
    "sac-v with choices": Case(SACV(hidden=SMALL, temperature=TunedTemperature(), feed=replay()), CHOICE),
    "drq-v2": Case(
        DrQ(hidden=SMALL, trunk=4, augmentation=RandomShift(1), pace=Adaptive(2, every=4, over=2, gap=1.0),
            feed=replay(length=2)),
        Walk(observation=TREE),
    ),
    "dsac": Case(DSAC(hidden=(8, 8, 8), observations=RunningScale(), feed=replay(length=2)), Walk()),
    "mac": Case(MAC(hidden=SMALL, length=MultiLevel(2), feed=Rollouts(1, envs=3)), EVERYTHING),
    "mac of fixed length": Case(
        MAC(hidden=SMALL, length=FixedLength(2), descent="adagrad-norm", feed=Rollouts(3, envs=3)), CHOICE
    ),
    "srl": Case(SRL(hidden=SMALL, model=SMALL, length=3, observations=RunningScale(), feed=replay()), Walk()),
    "cqn": Case(CQN(hidden=SMALL, levels=2, bins=3, target_every=3, feed=replay(length=3)), Walk()),
    "cqn-as": Case(CQNAS(hidden=SMALL, levels=2, bins=3, returns=2, target_every=3, feed=replay(length=4)), Walk()),
    "meta-a2c": Case(
        MetaA2C(A2C(hidden=SMALL, discount=0.8, observations=RunningScale(), feed=Rollouts(5, envs=3))), EVERYTHING
    ),
    "meta-a2c with one head": Case(
        MetaA2C(A2C(hidden=SMALL, discount=0.8, feed=Rollouts(5, envs=3)), OneHead()), CHOICE
    ),
    "es": Case(ES(feed=Rollouts(2, envs=3)), Walk()),
    "ippo in a crew": Case(IPPO(ppo()), CREW),
    "mra": Case(MRA(Modes(ppo(others=Attention(4), memory=GRU(4), minibatch=16), modes=3)), CREW),
    "bayesian": Case(Bayesian(ppo(observations=RunningScale()), edges=Fading(1.0, 4.0)), CREW),
    "decentralized": Case(Decentralized(Surrogate(ppo())), CREW),
    "mappo": Case(MAPPO(ppo(observations=RunningScale())), CREW),
    "mappo apart with memory": Case(MAPPO(ppo(memory=GRU(4), minibatch=16), Separate()), PUSHING),
    "vdn": Case(VDN(hidden=SMALL, target_every=3, feed=replay()), CREW),
    "qmix with memory": Case(
        QMIX(mixer=Monotonic(4, (8,)), hidden=SMALL, memory=GRU(4), target_every=3, feed=replay(length=3)), CREW
    ),
    "rode": Case(
        RODE(
            QMIX(mixer=Monotonic(4, (8,)), utility=Matched(), hidden=SMALL, target_every=3),
            QMIX(mixer=Monotonic(4, (8,)), utility=Matched(), hidden=SMALL, target_every=3, feed=replay(length=3)),
            ActionRoles(settled=2.0, latent=3, units=4),
            every=2,
        ),
        CREW,
    ),
    "gmah": Case(
        GMAH(
            QMIX(mixer=Monotonic(4, (8,)), hidden=SMALL, target_every=3),
            QMIX(mixer=Sum(), hidden=SMALL, target_every=3, feed=replay(length=3)),
            Subgoals((0, -1)),
            every=2,
        ),
        CREW,
    ),
    "acorm": Case(
        ACORM(
            mixer=Attending(Monotonic(4, (8,)), query=3, heads=2, units=4, out=2), utility=Embedded(3, 4),
            auxiliary=RoleContrast(every=2, clusters=2), hidden=SMALL, memory=GRU(4), target_every=3,
            feed=replay(length=3),
        ),
        CREW,
    ),
    "maddpg": Case(MADDPG(DDPG(hidden=SMALL, feed=replay(length=2))), PUSHING),
    "maddpg apart with choices": Case(MADDPG(DDPG(hidden=SMALL, feed=replay()), Separate()), CREW),
    "some renewed": Case(EachAlone(ppo(memory=GRU(4), minibatch=16), Renewed(24, (0, 1))), KUHN),
    "masac": Case(MASAC(SAC(hidden=SMALL, feed=replay())), PUSHING),
    "masac apart with choices": Case(MASAC(SAC(hidden=SMALL, feed=replay()), Separate()), CREW),
    "ippo": Case(IPPO(PPO(hidden=SMALL, epochs=2, minibatch=12, feed=Rollouts(8, envs=3))), KUHN),
    "ippo with memory": Case(
        IPPO(
            PPO(hidden=SMALL, epochs=2, minibatch=16, memory=GRU(4), observations=RunningScale(),
                rewards=ReturnScale(), feed=Rollouts(8, envs=3)),
            Separate(),
        ),
        KUHN,
    ),
    "alphazero": Case(
        AlphaZero(
            hidden=SMALL, board=Residual(4, 1, 2), opening=2, simulations=3, playing=3, epochs=2, minibatch=8,
            feed=Rollouts(6, envs=3),
        ),
        NOUGHTS,
    ),
    "cfr": Case(CFR(), KUHN),
    "cfr-plus": Case(CFRPlus(iterations=2), KUHN),
    "mmd": Case(
        EachAlone(
            MMD(PPO(hidden=SMALL, epochs=2, minibatch=12, anchor=Magnet(), feed=Rollouts(8, envs=3)), decay=0.5)
        ),
        KUHN,
    ),
    "nfsp": Case(
        EachAlone(NFSP(ppo(), Cloning(hidden=SMALL), anticipation=0.5, capacity=20, sample=6, fits=2)), KUHN
    ),
    "spiral": Case(
        EachAlone(Spiral(roles=2, feed=Episodes(3, envs=3), **TALKER)), text_world("kuhn-duel")
    ),
    "archer": Case(
        ArCHer(experience=UtteranceCritic(8, 2, 4, warmup=1), feed=Episodes(3, envs=3), **TALKER),
        Spoken(Maze(size=2, turns=3)),
    ),
    "glam": Case(
        GLAM(method=PPO(hidden=SMALL, epochs=2, minibatch=6, feed=Rollouts(5, envs=3)), **PUPIL),
        Spoken(Maze(size=2, turns=3)),
    ),
    "sac-glam": Case(
        SACGLAM(method=SAC(hidden=SMALL, feed=replay(length=3)), horizon=2, patience=1, **PUPIL),
        Spoken(Maze(size=2, turns=3)),
    ),
    "grpo": Case(GRPO(feed=Episodes(3, group=3, envs=3), **TALKER), Spoken(Maze(size=2, turns=3))),
    "reinforce": Case(REINFORCE(feed=Episodes(3, envs=3), **TALKER), Spoken(Maze(size=2, turns=3))),
    "ppo-lm": Case(LanguagePPO(feed=Episodes(3, envs=3), **TALKER), Spoken(Maze(size=2, turns=3))),
    "ppo-lm by turns": Case(
        LanguagePPO(credit=TurnCritic(), feed=Episodes(3, envs=3), **TALKER), Spoken(Maze(size=2, turns=3))
    ),
    "rloo": Case(
        RLOO(tuned=Adapters(2), credit=ToGo(Mean()), reference=Unheld(), feed=Episodes(3, group=3, envs=3), **TALKER),
        Spoken(Maze(size=2, turns=3)),
    ),
    "score": Case(SCoRe(feed=Episodes(2, group=3, envs=3), **TALKER), Spoken(Correction(figures=1, first=1.0))),
    "grpo that recalls successes": Case(
        GRPO(experience=Successes(8), feed=Episodes(3, group=3, envs=3), **TALKER), Spoken(Maze(size=2, turns=3))
    ),
    "ppo-lm of attributed outcomes": Case(
        LanguagePPO(credit=TurnCritic(), experience=Attribution(warmup=1), feed=Episodes(3, envs=3), **TALKER),
        Spoken(Maze(size=2, turns=3)),
    ),
    "reinforce of revisions": Case(
        REINFORCE(credit=Whole(Alone()), experience=Revisions(), feed=Episodes(6, group=3, envs=3), **TALKER),
        Spoken(TakeBack(Maze(size=2, turns=3), more=3)),
    ),
    "sft that foretells": Case(
        SFT(learnt=AnswersFirst(2), feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))
    ),
    "ppo-lm of process rewards": Case(
        LanguagePPO(
            credit=ToGo(Alone(), 0.0), experience=ProcessReward(8, 2, 4, warmup=1), feed=Episodes(3, envs=3), **TALKER
        ),
        Spoken(Maze(size=2, turns=3)),
    ),
    "critic-control": Case(CriticControl(feed=Episodes(1, envs=3), **PUPIL), Spoken(Review(clauses=1))),
    "critic-control of turns": Case(CriticControl(feed=Episodes(3, envs=3), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "sft": Case(SFT(least=-0.5, feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "dpo": Case(DPO(feed=Pairs(3, 2), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "dpo renewed": Case(DPO(loss=Squared(), renewed=2, feed=Pairs(3, 2), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "kto": Case(
        KTO(tuned=Adapters(2, 4.0, ("v", "up")), feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))
    ),
    "a-lol": Case(
        ALoL(critic=Onlooker(first=1), feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))
    ),
    "oreo": Case(OREO(feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "oreo by turns": Case(
        OREO(critic=SoftReturn(turns=True), feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))
    ),
    "direct-advantage": Case(
        DirectAdvantage(critic=Success(first=1), feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))
    ),
    "spin": Case(SPIN(renewed=2, feed=LoggedEpisodes(3, 4), **PUPIL), Spoken(Maze(size=2, turns=3))),
    "sweet-rl": Case(
        SWEET(critic=Merits(first=1), candidates=3, feed=Pairs(3, 2), **PUPIL),
        Spoken(Questions(turns=3, animals=4), told=True),
    ),
    "bc": Case(BC(hidden=SMALL, observations=RunningScale(), feed=Logged(6, 3)), EVERYTHING),
}  # fmt: skip
FAST = {"bc", "dqn", "ppo", "sac"}
"""Cases whose laws everybody runs: of logged and replayed data, rollouts, continuous actions."""

FAST_IN_LOOPS = {"dqn", "impala"}
"""The same for the loops, where a case costs two compiled runs."""


def marked(names, fast=frozenset(FAST)):
    """Names of cases as parameters; those that are not fast are of the tier of laws."""
    return [pytest.param(name, marks=[] if name in fast else [pytest.mark.laws]) for name in names]


ONLINE = [name for name, case in CASES.items() if not isinstance(case.method.feed, Logged | LoggedEpisodes | Pairs)]

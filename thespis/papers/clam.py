"""Contrastive learning-based agent modelling."""

from __future__ import annotations

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.contrast import Contrast
from thespis.methods.online.clam import CLAM
from thespis.methods.online.ppo import PPO
from thespis.nets.body import GRU

_WORLD = "thespis.envs.compiled.rivals:Rivals"
_POOL = {"curriculum": DomainRandomisation((("member", 0, 8),))}


def _ppo(**changed) -> PPO:
    feed = Rollouts(length=40, envs=40)
    settings = {"learning_rate": 1e-3, "discount": 0.95, "entropy_weight": 0.01, "epochs": 4, "minibatch": 400}
    return PPO(hidden=(32, 32), feed=feed, **settings | changed)


PAPER = Paper(
    id="clam",
    name="CLAM",
    citation=Citation(
        "Contrastive learning-based agent modeling for deep reinforcement learning",
        "Ma et al.",
        2024,
        "arXiv:2401.00132",
    ),
    family="multi-agent",
    does="An encoder of what the learner itself sees learns by contrast to tell episodes, and so the others' policies, "
    "apart; PPO acts on what it says from the first step of an episode on.",
    claim="Better returns in cooperative and competitive tasks than without modelling, from the learner's own "
    "observations alone.",
    parts=(
        "thespis.methods.online.clam:CLAM",
        "thespis.learners.contrast:Contrast",
        "thespis.nets.pooling:Pooling",
        "thespis.objectives.contrast:info_nce",
        "thespis.envs.compiled.rivals:Rivals",
    ),
    use=f"thespis train clam --env {_WORLD} --vary member=0..8 --steps 48000 --set method.hidden=32,32 discount=0.95",
    miniature=Trial(
        arms=(
            Arm("CLAM", CLAM(_ppo(), Contrast(hidden=(32,), window=20)), _POOL),
            Arm("PPO", _ppo(), _POOL),
            Arm("PPO with GRU", _ppo(memory=GRU(32)), _POOL),
        ),
        envs=(_WORLD,),
        steps=48_000,
        claims=(Better("CLAM", "PPO", final_return()), Better("CLAM", "PPO with GRU", final_return())),
        batch=4,
        looks=1,
        episodes=100,
    ),
    remarks="Rock, paper, scissors for 20 rounds against one of nine scripts, who slips in three rounds of ten: "
    "whoever knows the script wins 0.7 a round. The paper plays level-based foraging and predator-prey against trained "
    "policies; only such as were met in training are tried here. A first look at 48,000 steps of two other seeds, "
    "with rollouts of 100 steps in 16 worlds, sized the budget: CLAM ended at a greedy return of 9.9 and PPO at 4.8; "
    "the arm with a GRU was not seen to its end. Rollouts were then made shorter and wider to save time. The encoder "
    "pools by attention but has no transformer, and its two views are halves of one window; the paper's figures for "
    "sizes and augmentation could not be had. What is not shown: memory trained by PPO itself does as well here. "
    "Second look: of 80 windows the encoder finds the right partner for about 16% in the end, and its loss still falls "
    "at the last step, so what PPO is told came late and was still moving. With a learner that chooses at random, the "
    "nearest of the rivals' means names the rival of 49% of episodes by an encoder that has learnt nothing, of 57% "
    "after 300 steps of its own and of 70% after 800, at a larger step size; the trial makes 120. And where every "
    "round is paid, a GRU may learn from rewards alone what contrast would teach it.",
)

"""Contrastive learning-based agent modeling."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.ppo import PPO
from thespis.nets.body import GRU
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.method import CLAM

_ENV = "thespis.papers.clam.envs:RockPaperScissors"
_OPPONENT_POOL = {"curriculum": DomainRandomization((("member", 0, 8),))}


def _ppo(**overrides) -> PPO:
    feed = Rollouts(num_steps=40, num_envs=40)
    settings = {"learning_rate": 1e-3, "discount": 0.95, "ent_coef": 0.01, "num_epochs": 4, "minibatch_size": 400}
    return PPO(hidden_sizes=(32, 32), feed=feed, **settings | overrides)


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
    summary="An encoder of the learner's own observations learns by contrast to tell episodes, and thus the other "
    "agents' policies, apart; PPO gets its embedding from the first step of an episode on.",
    claim="From the learner's own observations alone, CLAM gets better returns in cooperative and competitive tasks "
    "than learning without agent modeling.",
    parts=(
        "thespis.papers.clam.method:CLAM",
        "thespis.papers.clam.attention_pooling:ContrastiveEncoder",
        "thespis.papers.clam.attention_pooling:AttentionPooling",
        "thespis.objectives.contrastive:info_nce",
        "thespis.papers.clam.envs:RockPaperScissors",
    ),
    command=f"thespis train clam --env {_ENV} --randomize member=0..8 --steps 48000 --set method.hidden_sizes=32,32 "
    "discount=0.95",
    miniature=Trial(
        arms=(
            Arm("CLAM", CLAM(_ppo(), ContrastiveEncoder(hidden_sizes=(32,), window_length=20)), _OPPONENT_POOL),
            Arm("PPO", _ppo(), _OPPONENT_POOL),
            Arm("PPO with GRU", _ppo(memory=GRU(32)), _OPPONENT_POOL),
        ),
        envs=(_ENV,),
        steps=48_000,
        claims=(Superiority("CLAM", "PPO", final_return()), Superiority("CLAM", "PPO with GRU", final_return())),
        seeds_per_look=4,
        max_looks=1,
        num_episodes=100,
    ),
    remarks="The miniature is rock, paper, scissors over 20 rounds against one of nine scripted opponents, which act "
    "at random in three of ten rounds: knowing the script wins 0.7 per round. The paper uses level-based foraging and "
    "predator-prey against trained policies; here only opponents met in training are tried. The encoder pools by "
    "attention but has no transformer, and its two views are halves of one window; the paper's sizes and augmentation "
    "settings were not available. The budget was chosen after looking at 48,000 steps of two other seeds, with "
    "rollouts of 100 steps in 16 environments: CLAM ended at a greedy return of 9.9 and PPO at 4.8; the arm with a GRU "
    "was not followed to its end. Rollouts were then made shorter, with more environments, to save time. Not shown: "
    "that CLAM beats PPO with a GRU; memory trained by PPO itself does as well here. Checked again: at the end the "
    "encoder finds the right partner among 80 windows for about 16% of them, and its loss still falls at the last "
    "step, so PPO's embedding was learned late and was still changing. With a learner that acts at random, the nearest "
    "class mean of the embeddings identifies the opponent in 49% of episodes with an untrained encoder, in 57% after "
    "300 steps of encoder training and in 70% after 800, at a larger learning rate; the trial makes 120. Also, as "
    "every round is rewarded, a GRU may learn from rewards alone what the contrastive loss would teach it.",
)

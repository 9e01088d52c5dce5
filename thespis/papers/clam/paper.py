"""Contrastive learning-based agent modeling."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.other_agents import BASELINE, BENCH
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.nets.body import GRU
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.measures import identified_share
from thespis.papers.clam.method import CLAM

_ENV = "thespis.papers.clam.envs:RockPaperScissors"
_ENCODER = ContrastiveEncoder(hidden_sizes=(32,), window_length=20, num_epochs=8, learning_rate=3e-3)
_UNTRAINED = dataclasses.replace(_ENCODER, learning_rate=0.0)

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
        "thespis.papers.clam.measures:identified_share",
    ),
    command=f"thespis train clam --env {_ENV} --steps 64000 --set method.hidden_sizes=32,32 discount=0.95",
    miniature=BENCH.trial(
        arms=(
            Arm("CLAM", CLAM(BASELINE, _ENCODER)),
            Arm("PPO", BASELINE),
            Arm("CLAM, untrained encoder", CLAM(BASELINE, _UNTRAINED)),
            Arm("PPO with GRU", dataclasses.replace(BASELINE, memory=GRU(32))),
        ),
        headline=Comparison("CLAM", "PPO", final_return("sampled")),
        mechanisms=(Comparison("CLAM", "CLAM, untrained encoder", identified_share()),),
        context=(
            Comparison("CLAM", "CLAM, untrained encoder", final_return("sampled")),
            Comparison("CLAM", "PPO with GRU", final_return("sampled")),
            Comparison("CLAM", "PPO", learning_curve_auc()),
        ),
    ),
    remarks="The miniature is rock, paper, scissors over 20 rounds against one of nine scripted opponents, drawn anew "
    "for every episode, which act at random in two of ten rounds: knowing the script wins 0.8 per round. It is "
    "competitive. The paper's cooperative tasks are not tried: in a game in which a partner responds to symbols by one "
    "of six conventions, ten tuning seeds of CLAM had a mean return of 9.1 and PPO one of 8.7, too small a difference "
    "for this trial. Nor are opponents tried that were not met in training. CLAM has PPO's settings, and its encoder "
    "makes 8 gradient steps on each of 40 rollouts of 80 episodes; an earlier trial by the first protocol made 120 in "
    "all, with a third of the step size, and four seeds. Returns are those of sampled play, which trains; greedy play "
    "of a learner without memory depends on which of its equally good cycles it has found. PPO with a GRU is no rival "
    "of the paper's: as every round is rewarded, a GRU may learn from rewards alone what the contrastive loss teaches. "
    "The encoder that is not trained stays as it was initialized, and PPO gets its embedding: already it brings most "
    "of the gain over PPO, since an opponent is recognized by a mean of random features of its moves for three in five "
    "episodes, and by a trained encoder for seven in ten.",
    fidelity=(
        Fidelity("use of the embedding", "joined to the observation; no gradient of PPO reaches the encoder"),
        Fidelity("embedding in time", "of the episode so far, at every step from the first on"),
        Fidelity(
            "embedding",
            "20 numbers, divided by their norm, of a Polyak-averaged encoder (0.99)",
            "8 numbers of the encoder itself, not divided by their norm, which did worse in a look on the bench",
        ),
        Fidelity(
            "encoder",
            "two blocks of self-attention with 128 units and sines of the position, then pooling by attention",
            "one hidden layer of 32 units on each step with the one before it, then pooling by learned weights, so "
            "that a step of play costs the same whenever it comes",
        ),
        Fidelity(
            "views",
            "two crops of 8 to 48 of an episode's 50 steps, at random places; 30% of the steps of one are zeroed",
            "two random halves of an episode's steps",
        ),
        Fidelity(
            "loss",
            "InfoNCE over all views of a batch of 512 episodes, temperature 0.5, after a projection with one hidden "
            "layer",
            "InfoNCE of each half against the other halves of 80 episodes, both ways, temperature 0.1, after a linear "
            "projection",
        ),
        Fidelity(
            "encoder's data",
            "a replay of 10,000 episodes; one gradient step after every five episodes, one of each opponent",
            "the last rollout of 80 episodes; 8 gradient steps",
        ),
        Fidelity("encoder's optimizer", "Adam, 3e-3", "the same, and gradients are clipped at a norm of 0.5"),
        Fidelity(
            "encoder's input",
            "part of the learner's observation and the actions of the other agents",
            "the learner's observation, which has the opponent's last action",
        ),
        Fidelity(
            "policy", "a fuzzy network on the embedding's clusters in the code, a plain one in the paper", "plain"
        ),
        Fidelity(
            "PPO", "80 epochs on every 25,000 steps, learning rates of 3e-4 and 1e-3", "4 epochs on 1,600 steps, 3e-3"
        ),
    ),
)

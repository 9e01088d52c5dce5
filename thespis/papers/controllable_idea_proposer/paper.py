"""Controllable idea proposer: reward models of three dimensions, weighted as a control word in the prompt asks."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.emphasized_ideas import (
    BASELINE_ARM,
    BENCH,
    NUM_ROWS,
    PPO,
    TRUE_VALUE_ARM,
    VALUE,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.controllable_idea_proposer.feedback import DIMENSION_REWARDS, EmphasizedReward
from thespis.papers.controllable_idea_proposer.measures import dimension, others

_FIXED, _CONTROLLED, _TUNED = BASELINE_ARM.name, "controlled", "supervised fine-tuning"
_NOVELTY_ONLY: dict[str, Any] = {"feedback": DIMENSION_REWARDS[0]}
_NOVEL = "novelty only"

PAPER = Paper(
    id="controllable-idea-proposer",
    name="Controllable idea proposer",
    citation=EmphasizedReward.citations[0],
    family="preference-rlhf",
    summary="After supervised fine-tuning a model proposes ideas that several reward models score, of novelty, "
    "feasibility and effectiveness; controls of each dimension say which of them to emphasize.",
    claim="Dynamic control of the dimensions balances novelty, feasibility and effectiveness better than supervised "
    "fine-tuning and than reinforcement learning without control.",
    parts=(
        "thespis.papers.controllable_idea_proposer.feedback:EmphasizedReward",
        "thespis.papers.controllable_idea_proposer.envs:Ideas",
        "thespis.feedback.fitted_reward:ComparisonReward",
        "thespis.feedback.combined:AddedFeedback",
    ),
    command="thespis train ppo-lm --env thespis.papers.controllable_idea_proposer.envs:IDEAS --feedback "
    "thespis.papers.controllable_idea_proposer.feedback:EmphasizedReward --model tiny --steps 6400 --set "
    "num_layers=1 hidden_size=32 num_pretrain_steps=1500 learning_rate=1e-3 feed.max_steps=1",
    miniature=BENCH.trial(
        arms=(
            Arm(_CONTROLLED, PPO, {"feedback": EmphasizedReward()}),
            BASELINE_ARM,
            Arm(_TUNED, dataclasses.replace(PPO, learning_rate=0.0), steps=NUM_ROWS),
            Arm(_NOVEL, PPO, _NOVELTY_ONLY),
            TRUE_VALUE_ARM,
        ),
        headline=Comparison(_CONTROLLED, _FIXED, VALUE),
        mechanisms=(
            Comparison(_CONTROLLED, _TUNED, VALUE),
            Comparison(_CONTROLLED, _FIXED, dimension("novelty")),
            Comparison(_CONTROLLED, _FIXED, dimension("feasibility")),
            Comparison(_CONTROLLED, _NOVEL, others("novelty")),
        ),
        context=(
            Comparison(_CONTROLLED, _FIXED, dimension("effectiveness")),
            Comparison(_FIXED, _TUNED, VALUE),
            Comparison(TRUE_VALUE_ARM.name, _CONTROLLED, VALUE),
            NotApplicable("ideas of a higher quality, by automatic scores and experts", "papers, reviews and experts"),
        ),
    ),
    fidelity=(
        Fidelity(
            "supervised fine-tuning",
            "on pairs of a paper and an idea that followed it, of ICLR and NeurIPS",
            "on texts of a demonstrator, three tenths of which are as the control word asks, the others random",
        ),
        Fidelity(
            "reward models",
            "one for each dimension, fitted to scores of reviews",
            "one for each dimension, fitted to 1,024 comparisons of a judge of this dimension",
        ),
        Fidelity(
            "controllers",
            "trained linear maps, one for each dimension, which steer hidden states with a strength",
            "a word in the prompt, and the weights of the rewards that belong to it",
        ),
        Fidelity(
            "sentence-level decoder",
            "a recurrent network says for each sentence how strong the controllers are",
            "none: the emphasis is that of the whole text",
        ),
        Fidelity("optimizer", "PPO with a penalty on KL", "PPO with a penalty on KL of 0.2"),
        Fidelity(
            "evaluation",
            "scores of a prompted model with retrieved papers, and of experts",
            "the exact value of the dimensions",
        ),
        Fidelity("model", "Llama 2 of 7B and T5", "a decoder of one layer and 32 units"),
    ),
)

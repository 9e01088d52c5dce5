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
    remarks="A decoder of one layer writes up to two sentences about the sea. Novelty wants other nouns and detail, "
    "feasibility the sea's nouns and none, effectiveness the sea's nouns and detail; the prompt's last word "
    "says which of them has a weight of 0.8 in the true value, each other one 0.1. All arms read that word "
    "and have the same PPO; only rewards differ. What was found, as means over ten seeds: the value is "
    "0.559 after supervised fine-tuning, three tenths of whose texts do as the word asks, 0.632 with equal "
    "weights, and 0.801 with weights by the control word; more than with equal weights on every seed. The "
    "true value as the reward leads to 0.834, the best texts have 0.867, and the best ones that do not "
    "depend on the word 0.667. Where novelty is asked for it is 0.940 and with equal weights 0.605; "
    "feasibility 0.938 and 0.560, effectiveness 0.874 and 0.809. What speaks against it: the lead is built "
    "in. Equal weights cannot depend on the word, and the measure does. As novelty and feasibility sum up "
    "to grammar, equal weights reward hardly anything but grammar and effectiveness: both fall below their "
    "values before PPO (0.652 and 0.640) where they are asked for. What is learned is that three reward "
    "models of 1,024 comparisons each, none of which sees what the others judge, are good enough to be "
    "mixed anew for each prompt: they lose 0.03 against the true value, most of it in effectiveness, where "
    "two seeds of ten end at 0.81 and 0.74 and equal weights at 0.68 to 0.92. The authors' controls are not "
    "what is tried: they steer hidden states at decoding, with strengths that a decoder chooses for each "
    "sentence, so that no prompt need be trained on; here a word is learned with PPO, for the whole text, "
    "and strengths between the three words were not looked at. Both arms had two trials each on tuning "
    "seeds, with penalties on KL of 0.2 and 0.05 (the bench has the figures); with 0.05 the lead was 0.13. "
    "Novelty and feasibility are stand-ins by a rule, of which the best demonstrated texts are perfect "
    "examples. Ten pairs were the only look.",
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

"""Nash-MD: the equilibrium of a preference model, in place of the maximum of a reward model."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.preference_games import (
    BENCH,
    ESTIMATED,
    EXPLOITABILITY,
    LEARNING_RATE,
    REWARD_ARM,
    SETTINGS,
    dominated_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import NashMDLoss
from thespis.methods.language.online_dpo import OnlineDPO

_NASH_MD = OnlineDPO(**SETTINGS, learning_rate=LEARNING_RATE, loss_type=NashMDLoss(0.05), opponent_weight=0.125)
_BEST_RESPONSE = dataclasses.replace(_NASH_MD, opponent_weight=1.0)
_SELF_PLAY = dataclasses.replace(_NASH_MD, opponent_weight=0.0)

PAPER = Paper(
    id="nlhf-nash-md",
    name="Nash-MD",
    citation=Citation("Nash Learning from Human Feedback", "Munos et al.", 2023, "arXiv:2312.00886"),
    family="preference-rlhf",
    summary="A policy gradient raises how often a response is preferred to one by a geometric mixture of the model and "
    "the initial model, with a penalty on KL to the latter.",
    claim="Finds the regularized equilibrium of a preference model, where reinforcement learning of a reward cannot "
    "express what is preferred; mixtures between self-play and the best response do best.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.learners.language.preference_losses:NashMDLoss",
        "thespis.nets.geometric_mixture:GeometricMixture",
        "thespis.objectives.preference_games:nash_md_step",
    ),
    command="thespis train online-dpo --env text:choice --feedback win-rate --steps 20000 --model tiny "
    "--set feedback.judge=ChoiceJudge loss_type=NashMDLoss opponent_weight=0.125",
    miniature=BENCH.trial(
        arms=(
            Arm("Nash-MD", _NASH_MD, ESTIMATED),
            REWARD_ARM,
            Arm("best response", _BEST_RESPONSE, ESTIMATED),
            Arm("regularized self-play", _SELF_PLAY, ESTIMATED),
        ),
        headline=Comparison("Nash-MD", "reward", EXPLOITABILITY),
        mechanisms=(
            Comparison("Nash-MD", "best response", EXPLOITABILITY),
            Comparison("Nash-MD", "regularized self-play", EXPLOITABILITY),
        ),
        context=(
            Comparison("Nash-MD", "reward", dominated_share()),
            NotApplicable("summaries are preferred to those of other methods", "a large model and judge"),
        ),
    ),
    remarks="A decoder of one layer says one of ten words, in two games that are known exactly, in place of summaries "
    "compared by a model. The last-iterate convergence of the tabular algorithm is a test of its own: on ten random "
    "games it comes within 0.0072 of the equilibrium, and mirror descent against itself does not. Trials on seeds "
    "from 1,100 on, with tau and the weight of the initial model in the mixture: 0.057 (0.05, 0.125), 0.055 (0.05, 0) "
    "and 0.082 (0.05, 1) for 1,200 updates at a learning rate of 3e-4; for 600 updates 0.132 (3e-4, 0.02, 0.125), "
    "0.205 (1e-3, 0.02, 0.125), 0.079 (1e-3, 0.05, 0.25), 0.129 (3e-3, 0.05, 0.25) and 0.116 (3e-3, 0.05, 0). The "
    "rival's are listed with the bench. Computed exactly, by gradient flow, self-play with the penalty comes to "
    "0.015, mixtures of 0.25 and 0.5 to 0.027 and 0.061, the best response to 0.095: here a mixture is no help, it "
    "only moves the equilibrium. In the trial it cannot be told from self-play with the same penalty.",
    fidelity=(
        Fidelity(
            "gradient", "probability to be preferred, minus 1/2 and tau times the log-ratio, on the first response"
        ),
        Fidelity("opponent", "geometric mixture of the model and the initial one, token by token"),
        Fidelity("weight of the initial model in the mixture", "0 to 1; 0.125 is best", "0.125"),
        Fidelity(
            "preference model", "a network trained on comparisons by people", "the exact probabilities of the games"
        ),
        Fidelity(
            "reward model of the rival",
            "a network trained on the same comparisons",
            "how often a word is preferred to one of the initial model: what a reward model would rank by",
        ),
        Fidelity(
            "task and evaluation",
            "summaries of posts, compared by a large language model",
            "two games of ten words, exact exploitability",
        ),
    ),
)

"""INPO: iterative Nash policy optimization, with general preferences and no-regret learning."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.preference_games import (
    BENCH,
    COMPARED,
    EXPLOITABILITY,
    LEARNING_RATE,
    REWARD_ARM,
    SELF_PLAY_ARM,
    SETTINGS,
    dominated_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import IPOLoss
from thespis.methods.language.online_dpo import OnlineDPO

_INPO = OnlineDPO(**SETTINGS, learning_rate=LEARNING_RATE, loss_type=IPOLoss(1.0), behavior_weight=0.95)
_UNANCHORED = dataclasses.replace(_INPO, behavior_weight=1.0)

PAPER = Paper(
    id="inpo",
    name="INPO",
    citation=Citation("Iterative Nash Policy Optimization", "Zhang et al.", 2024, "arXiv:2407.00617"),
    family="preference-rlhf",
    summary="The model plays the game of preferences against itself: mirror descent on pairs of its own responses, as "
    "a squared loss of log-ratios to a mixture of the model that sampled and the initial one.",
    claim="Approaches the Nash policy of general preferences without estimates of win rates, and is preferred to the "
    "models of iterated DPO, which assumes a reward.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.learners.language.preference_losses:IPOLoss",
        "thespis.feedback.win_rate:WinRate",
        "thespis.objectives.preference_games:exploitability",
    ),
    command="thespis train online-dpo --env text:choice --feedback win-rate --steps 20000 --model tiny "
    "--set feedback.judge=ChoiceJudge loss_type=IPOLoss behavior_weight=0.95",
    miniature=BENCH.trial(
        arms=(
            Arm("INPO", _INPO, COMPARED),
            SELF_PLAY_ARM,
            Arm("INPO without the initial model", _UNANCHORED, COMPARED),
            REWARD_ARM,
        ),
        headline=Comparison("INPO", "iterated DPO", EXPLOITABILITY),
        mechanisms=(Comparison("INPO", "INPO without the initial model", EXPLOITABILITY),),
        context=(
            Comparison("INPO", "reward", EXPLOITABILITY),
            Comparison("INPO", "iterated DPO", dominated_share()),
            NotApplicable("41.5% win rate on AlpacaEval 2.0, 38.3% on Arena-Hard", "a model of 8B and its judge"),
        ),
    ),
    remarks="A decoder of one layer says one of ten words, in two games that are known exactly, in place of a model of "
    "8B and benchmarks. The rival is the bench's iterated DPO, with references 200 updates apart. INPO had four "
    "trials on seeds from 1,100 on, with beta and tau / eta: 0.040 (1, 0.05) and 0.058 (2, 0.05) at a learning rate "
    "of 3e-4; for 600 updates 0.099 (3e-4) and 0.087 (1e-3) with the first of these. Iterated DPO had eight, listed "
    "with the bench. The mechanism asks what the pull to the initial model does: without it mirror descent against "
    "itself goes round in circles. Against INPO: the pull keeps a little more of the words that all others beat.",
    fidelity=(
        Fidelity("loss", "squared distance of the difference of log-ratios from half the inverse step size"),
        Fidelity(
            "reference of the log-ratios",
            "the model of the iteration with weight 1 - tau / eta, the initial model with tau / eta",
            "the same: tau / eta is 0.05",
        ),
        Fidelity("label", "of the preference oracle, for each pair", "drawn from the judge's probability"),
        Fidelity(
            "iterations",
            "three, each of a set of fresh pairs",
            "1,200, each a gradient step on 32 fresh pairs",
        ),
        Fidelity("pairs", "best and worst of eight responses, by a tournament", "two responses, as in its derivation"),
        Fidelity(
            "model and evaluation",
            "LLaMA 3 8B, benchmarks with a language model as judge",
            "a decoder of one layer, exact exploitability of two games",
        ),
    ),
)

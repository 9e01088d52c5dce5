"""DNO: direct Nash optimization, iterated contrastive learning on pairs with a large margin."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.preference_games import (
    BENCH,
    BEST_AND_WORST,
    EXPLOITABILITY,
    REWARD_ARM,
    SELF_PLAY_ARM,
    WIN_RATES,
    dominated_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import DNOLoss

_ANY_PAIRS = dataclasses.replace(BEST_AND_WORST, pairs="adjacent")
_REGRESSION = dataclasses.replace(_ANY_PAIRS, loss_type=DNOLoss(1.0), ref_sync_interval=50)

PAPER = Paper(
    id="dno",
    name="DNO",
    citation=Citation("Direct Nash Optimization", "Rosset et al.", 2024, "arXiv:2404.03715"),
    family="preference-rlhf",
    summary="Rounds of contrastive learning on the model's own responses: their rewards are win rates against the "
    "model itself, and pairs with a large margin are learned from.",
    claim="Optimizes general preferences by a contrastive loss, beyond what maximizing a reward reaches; the choice of "
    "pairs with a large margin matters.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.learners.language.preference_losses:DNOLoss",
        "thespis.feedback.win_rate:WinRate",
    ),
    command="thespis train online-dpo --env text:choice --feedback win-rate --steps 20000 --model tiny --set "
    "feedback.judge=ChoiceJudge feedback.group_size=8 feed.group_size=8 pairs=extremes ref_sync_interval=50",
    miniature=BENCH.trial(
        arms=(
            Arm("DNO", BEST_AND_WORST, WIN_RATES),
            REWARD_ARM,
            Arm("any pairs", _ANY_PAIRS, WIN_RATES),
            Arm("regression on win rates", _REGRESSION, WIN_RATES),
            SELF_PLAY_ARM,
        ),
        headline=Comparison("DNO", "reward", EXPLOITABILITY),
        mechanisms=(Comparison("DNO", "any pairs", EXPLOITABILITY),),
        context=(
            Comparison("DNO", "iterated DPO", EXPLOITABILITY),
            Comparison("DNO", "regression on win rates", EXPLOITABILITY),
            Comparison("DNO", "reward", dominated_share()),
            NotApplicable("33% win rate against GPT-4-Turbo on AlpacaEval 2.0", "a model of 7B and its judge"),
            NotApplicable("responses of a stronger teacher help", "a teacher: here the equilibrium would be shown"),
        ),
    ),
    remarks="A decoder of one layer says one of ten words, in two games that are known exactly, in place of a model of "
    "7B and benchmarks; no teacher's responses are mixed in. Trials on seeds from 1,100 on, with beta and the number "
    "of updates between references: 0.053 (1, 50) and 0.042 (1, 200); the regression of the theory 0.222 (0.3, 50) "
    "and 0.099 (1, 50). The rival's are listed with the bench: it maximizes the mean win rate against the initial "
    "model, with a penalty on KL. Whether pairs are the extremes or neighbours of a group makes no difference that 20 "
    "pairs could show.",
    fidelity=(
        Fidelity("reward of a response", "how often it is preferred to responses of the model itself"),
        Fidelity("loss of the practical form", "that of DPO, with the model of the iteration before as reference"),
        Fidelity(
            "pairs",
            "of five responses and one of GPT-4, those with a score gap of at least 1 of 6, the better one good",
            "of eight responses, the one with the highest and the one with the lowest win rate",
        ),
        Fidelity("judge", "GPT-4-Turbo, a score of each response", "the exact probabilities of the games"),
        Fidelity(
            "iterations", "six, each of a set of fresh responses", "six of 200 updates, with fresh responses in each"
        ),
        Fidelity(
            "form of the theory", "logistic regression on the difference of win rates", "the same, in the context"
        ),
    ),
)

"""SPPO: self-play preference optimization, a regression of log-ratios on win rates."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.preference_games import (
    BENCH,
    BEST_AND_WORST,
    EXPLOITABILITY,
    GROUP_SETTINGS,
    LEARNING_RATE,
    REWARD_ARM,
    WIN_RATES,
    dominated_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import IPOLoss, SPPOLoss
from thespis.methods.language.online_dpo import OnlineDPO

_SPPO = OnlineDPO(
    **GROUP_SETTINGS,
    learning_rate=LEARNING_RATE,
    loss_type=SPPOLoss(0.3, win_rates=True),
    ref_sync_interval=50,
)
_IPO = dataclasses.replace(BEST_AND_WORST, loss_type=IPOLoss(1.0))

PAPER = Paper(
    id="sppo",
    name="SPPO",
    citation=Citation("Self-Play Preference Optimization", "Wu et al.", 2024, "arXiv:2405.00675"),
    family="preference-rlhf",
    summary="Multiplicative weights as a regression: the log-ratio of each response to the model of the last iteration "
    "is fitted to how much more often than half the response wins against others of that model.",
    claim="Approaches the Nash policy of general preferences, above iterated DPO and IPO.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.learners.language.preference_losses:SPPOLoss",
        "thespis.feedback.win_rate:WinRate",
    ),
    command="thespis train online-dpo --env text:choice --feedback win-rate --steps 20000 --model tiny "
    "--set feedback.judge=ChoiceJudge loss_type=SPPOLoss loss_type.win_rates=true ref_sync_interval=50",
    miniature=BENCH.trial(
        arms=(
            Arm("SPPO", _SPPO, WIN_RATES),
            Arm("iterated DPO", BEST_AND_WORST, WIN_RATES),
            Arm("iterated IPO", _IPO, WIN_RATES),
            REWARD_ARM,
        ),
        headline=Comparison("SPPO", "iterated DPO", EXPLOITABILITY),
        mechanisms=(Comparison("SPPO", "iterated IPO", EXPLOITABILITY),),
        context=(
            Comparison("SPPO", "reward", EXPLOITABILITY),
            Comparison("SPPO", "iterated DPO", dominated_share()),
            NotApplicable("28.53% win rate on AlpacaEval 2.0", "a model of 7B and its judge"),
        ),
    ),
    remarks="A decoder of one layer says one of ten words, in two games that are known exactly, in place of a model of "
    "7B and benchmarks. As in the paper, all arms see the same estimates: win rates within the responses to a prompt; "
    "DPO and IPO learn from the best and the worst response. Trials on seeds from 1,100 on, with beta: 0.086 (1) and "
    "0.034 (0.3); with the model that samples as reference, in place of that of 50 updates ago, 0.345 (10), and 0.470 "
    "for 600 updates (1, learning rate 1e-3): each update then is a step of one size in the direction of the latest "
    "win rates. Iterated DPO of the best and the worst, with the number of updates between references: 0.053 (50) and "
    "0.042 (200). Iterated IPO has DPO's settings. SPPO and iterated DPO of the best and the worst end equally near "
    "the equilibrium, and both nearer than IPO and the reward; the headline would need 216 pairs.",
    fidelity=(
        Fidelity("loss", "squared distance of each log-ratio from eta times the win rate above one half"),
        Fidelity("reference", "the model of the iteration before"),
        Fidelity(
            "win rates",
            "estimated by a preference model within the responses to a prompt, five of them",
            "exact probabilities within eight responses",
        ),
        Fidelity("responses learned from", "the best and the worst of five", "all eight, two by two"),
        Fidelity(
            "samples of an iteration",
            "drawn once, by the model of the iteration before; three iterations of about 20,000 prompts",
            "drawn anew in every update, by the model itself; 24 iterations of 50 updates",
        ),
        Fidelity("eta", "1,000 (code: a beta of 0.001 to 0.01)", "3.3, as responses have two tokens"),
        Fidelity(
            "model and evaluation",
            "Mistral 7B, benchmarks with a language model as judge",
            "a decoder of one layer, exact exploitability of two games",
        ),
    ),
)

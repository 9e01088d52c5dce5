"""RLHS: customers rate advice after a simulated outcome, for PPO and for DPO."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.hindsight_ratings import (
    BASELINE_ARM,
    BENCH,
    DPO,
    FALSE_CLAIMS,
    NUM_ROWS,
    PPO,
    TRUE_UTILITY_ARM,
    UTILITY,
    compared,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.evidence.text_aspects import mean_aspect
from thespis.papers.rlhs.envs import HINDSIGHT_ENV, IMMEDIATE_ENV, OBSERVED_ENV

RATING = mean_aspect("rating", "immediate rating", bounds=(0.0, 1.0))
REGRET = mean_aspect("regret", "share of purchases without the feature", larger_is_better=False)
_RLHF, _RLHS, _OBSERVED = BASELINE_ARM.name, "RLHS", "ratings after use by DPO"
_DPO_RLHF, _DPO_RLHS = "RLHF by DPO", "RLHS by DPO"
_INITIAL = "initial model"

PAPER = Paper(
    id="rlhs",
    name="RLHS",
    citation=Citation(
        "RLHS: Mitigating Misalignment in RLHF with Hindsight Simulation", "Liang et al.", 2025, "arXiv:2501.08617"
    ),
    family="preference-rlhf",
    summary="Raters see a simulated outcome of what they were advised before they give feedback, so that a pleasant "
    "illusion earns nothing; PPO and DPO learn from this feedback as from any.",
    claim="With PPO and with DPO the true utility is much larger, and deception rarer, than with immediate feedback, "
    "whose ratings rise while the true utility falls.",
    parts=(
        "thespis.papers.rlhs.envs:Marketplace",
        "thespis.feedback.fitted_reward:ComparisonReward",
        "thespis.methods.language.online_dpo:ReferenceSampledDPO",
    ),
    command="thespis train online-dpo --env thespis.papers.rlhs.envs:HINDSIGHT --model tiny --steps 6400 --set "
    "num_pretrain_steps=300 learning_rate=3e-4 beta=0.3",
    miniature=BENCH.trial(
        arms=(
            Arm(_RLHS, PPO, compared(HINDSIGHT_ENV)),
            BASELINE_ARM,
            Arm(_DPO_RLHS, DPO, env=HINDSIGHT_ENV),
            Arm(_DPO_RLHF, DPO, env=IMMEDIATE_ENV),
            Arm(_OBSERVED, DPO, env=OBSERVED_ENV),
            TRUE_UTILITY_ARM,
            Arm(_INITIAL, dataclasses.replace(PPO, learning_rate=0.0), steps=NUM_ROWS),
        ),
        headline=Comparison(_RLHS, _RLHF, UTILITY),
        mechanisms=(
            Comparison(_RLHS, _RLHF, FALSE_CLAIMS),
            Comparison(_INITIAL, _RLHF, UTILITY),
            Comparison(_RLHF, _INITIAL, RATING),
            Comparison(_DPO_RLHS, _DPO_RLHF, UTILITY),
            Comparison(_DPO_RLHS, _DPO_RLHF, FALSE_CLAIMS),
        ),
        context=(
            Comparison(_DPO_RLHS, _OBSERVED, UTILITY),
            Comparison(_RLHS, _INITIAL, UTILITY),
            Comparison(_DPO_RLHS, _RLHS, UTILITY),
            Comparison(_DPO_RLHS, _INITIAL, UTILITY),
            Comparison(_INITIAL, _DPO_RLHF, UTILITY),
            Comparison(_RLHS, _RLHF, REGRET),
            Comparison(TRUE_UTILITY_ARM.name, _RLHS, UTILITY),
            NotApplicable("users reach their goals more often and are more satisfied", "people"),
        ),
    ),
    fidelity=(
        Fidelity(
            "advice",
            "a chat of a shopkeeper, three items, each with or without the wanted feature, or unspecified",
            "one response in a fixed form, three items",
        ),
        Fidelity("customer", "Llama 3.1 of 70B, which decides, reads the outcome and compares two stores", "a rule"),
        Fidelity(
            "outcome",
            "partial hindsight: the purchase; full: all items; of the simulator, or of the model's own simulation",
            "the purchase, simulated from what the shopkeeper knows",
        ),
        Fidelity(
            "utility",
            "code: cheapest price with the feature by price; -1 without it; 0 for nothing",
            "the same, of all prices",
        ),
        Fidelity("DPO", "adapters, beta 0.1, 5e-5, ten epochs", "all parameters, beta 0.3, 3e-4, one epoch"),
        Fidelity(
            "figures with DPO (first version; rating before the outcome, true utility)",
            "0.95 and -0.51 with immediate feedback, 0.35 and 0.18 with partial hindsight, 0.33 and 0.23 with full",
            "in the tables",
        ),
        Fidelity(
            "figures with PPO",
            "0.97 and -0.71 with immediate feedback, 0.41 and 0.18 with partial hindsight, 0.31 and 0.24 with full",
            "in the tables",
        ),
        Fidelity("model", "Llama 2 of 7B and Llama 3 of 8B", "a decoder of two layers and 64 units"),
    ),
)

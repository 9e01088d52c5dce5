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
        first_seed=20,  # the first declaration preceded its bench's last change
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
    remarks="A decoder of two layers tells a customer of one of three items that it has what is wanted, lacks "
    "it, or that this is not known. Customers cannot see that; they buy what they are told has it. "
    "Immediate ratings are what they then believe, ratings in hindsight follow a simulated use, which "
    "is as the shopkeeper knows, or drawn where that is unknown. Reward models and DPO have 3,200 "
    "comparisons each. What was found, as means over ten seeds: PPO on immediate ratings raises the "
    "rating before use from 0.60 of the initial model to 0.96 while the true utility falls from 0.50 "
    "to 0.39, as in the paper; 38% of what is said is false (19% before). With ratings in hindsight "
    "the utility is 0.68, 13% are false, and 9% buy what they cannot use (29%). DPO has 0.77 in "
    "hindsight and 0.66 with immediate ratings, 4% and 17% false claims. Simulated outcomes are worth "
    "as much to DPO as true ones (0.77 and 0.78; undecided). What speaks against it: 0.83 can be had, "
    "and PPO in hindsight is short of that by 0.15, with seeds from 0.51 to 0.83; probably it is "
    "their reward models, of which more steps helped on two of three tuning seeds. With DPO immediate "
    "ratings do not make the utility fall, as the paper has it (-0.51): it rises from 0.50 to 0.66, "
    "probably as gentle steps away from random advice help more than false claims cost; the context "
    "says contradicted. The lead is built in: a simulated use shows what customers are deceived "
    "about, and the simulation has all that the shopkeeper knows. A simulation that errs, or that the "
    "learning model writes itself, was not tried. Customers believe everything here, and seven items "
    "of ten have the feature; where fewer have it immediate ratings do more harm, but then the bench "
    "has no headroom, so the size says little. The bench was changed twice before the trial, with the "
    "claims of the declaration as they were: for a learning rate that was unsafe, and because the "
    "negative control, a copy with a learning rate larger by a ten-thousandth, came out as shown (p = "
    "0.03), as one control in twenty does; the copy has a smaller one since, which is drawing that "
    "control again. The first trial, on seeds 0 to 9, was shown, too (0.64 and 0.42 in true utility; "
    "two seeds in hindsight had 0.40 and 0.44); as its declaration preceded the last change of its "
    "bench, it was declared again, on seeds 20 to 29, with all settings as they were. Ten pairs were "
    "the only look each time. The learning rate of PPO was chosen by the true utility, that of DPO by "
    "both ratings. Of the paper its abstract, the table of its first version and the authors' code "
    "could be read.",
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
            "0.95 and -0.51 with immediate feedback, 0.35 and 0.18 with partial hindsight, 0.33 and 0.23 with an "
            "oracle's",
            "in the tables",
        ),
        Fidelity(
            "figures with PPO",
            "0.97 and -0.71 with immediate feedback, 0.41 and 0.18 with partial hindsight, 0.31 and 0.24 with an "
            "oracle's",
            "in the tables",
        ),
        Fidelity("model", "Llama 2 of 7B and Llama 3 of 8B", "a decoder of two layers and 64 units"),
    ),
)

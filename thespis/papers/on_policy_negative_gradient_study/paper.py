"""On-policy data and negative gradients: a grid of preference losses and of who samples the pairs."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.rated_words import (
    BASELINE,
    BENCH,
    BETA,
    GAP,
    ONE_RATER,
    ONLINE_SETTINGS,
    divergence,
    expected_utility,
    no_word_probability,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.online_dpo import OnlineDPO, ReferenceSampledDPO
from thespis.papers.on_policy_negative_gradient_study.parts import LikelihoodLoss

_REFERENCE_BETA = 1.0
_OWN, _REFERENCE = "DPO of own pairs", "DPO of the initial model's pairs"
_REFERENCE_AT_BETA = f"{_REFERENCE} with beta {BETA}"
_OWN_LIKELIHOOD, _REFERENCE_LIKELIHOOD = "likelihood of own preferred", "likelihood of the initial model's preferred"

PAPER = Paper(
    id="on-policy-negative-gradient-study",
    name="On-policy / negative-gradient study",
    citation=Citation(
        "Preference Fine-Tuning of LLMs Should Leverage Suboptimal, On-Policy Data",
        "Tajwar et al.",
        2024,
        "arXiv:2404.14367",
    ),
    family="evaluation",
    summary="Compares losses with and without a negative gradient, on responses of the model itself or of the initial "
    "model, with the same number of labelled pairs.",
    claim="On-policy sampling and negative gradients outperform offline and maximum-likelihood objectives, as they "
    "move probability faster to where the reward is.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.papers.on_policy_negative_gradient_study.parts:LikelihoodLoss",
        "thespis.methods.language.online_dpo:ReferenceSampledDPO",
    ),
    command="thespis train online-dpo --env text:bandit --feedback win-rate --steps 20000 --model tiny --set "
    "loss_type=LikelihoodLoss feedback.samples_labels=true",
    miniature=BENCH.trial(
        arms=(
            Arm(_OWN, BASELINE, ONE_RATER),
            Arm(_REFERENCE, ReferenceSampledDPO(**ONLINE_SETTINGS, loss_type=SigmoidLoss(_REFERENCE_BETA)), ONE_RATER),
            Arm(_OWN_LIKELIHOOD, OnlineDPO(**ONLINE_SETTINGS, loss_type=LikelihoodLoss()), ONE_RATER),
            Arm(_REFERENCE_LIKELIHOOD, ReferenceSampledDPO(**ONLINE_SETTINGS, loss_type=LikelihoodLoss()), ONE_RATER),
            Arm(_REFERENCE_AT_BETA, ReferenceSampledDPO(**ONLINE_SETTINGS, loss_type=SigmoidLoss(BETA)), ONE_RATER),
        ),
        first_seed=20,
        headline=Comparison(_OWN, _REFERENCE, GAP),
        mechanisms=(
            Comparison(_OWN, _OWN_LIKELIHOOD, GAP),
            Comparison(_REFERENCE, _REFERENCE_LIKELIHOOD, GAP),
            Comparison(_OWN_LIKELIHOOD, _REFERENCE_LIKELIHOOD, GAP),
        ),
        context=(
            Comparison(_OWN, _REFERENCE, expected_utility()),
            Comparison(_OWN, _REFERENCE, divergence()),
            Comparison(_OWN, _OWN_LIKELIHOOD, expected_utility()),
            Comparison(_OWN, _OWN_LIKELIHOOD, divergence()),
            Comparison(_REFERENCE, _OWN, no_word_probability()),
            Comparison(_REFERENCE, _REFERENCE_AT_BETA, GAP),
            Comparison(_REFERENCE, _REFERENCE_AT_BETA, no_word_probability()),
            NotApplicable("AlpacaFarm and UltraFeedback", "pretrained models of 1B to 7B and their reward models"),
        ),
    ),
    remarks="A decoder of one layer says one of 16 words, whose utilities are known and which the initial model tends "
    "to misjudge: the better words are the rarer ones, the case in which the paper expects most of on-policy data. All "
    "arms have the same 38,400 pairs, each labelled once by one rater of the model of Bradley and Terry and learned "
    "once, and the same learning rate; the measure is the exact distance from the policy that is best for a penalty of "
    "0.3 on KL. The rival of the headline samples from the initial model, whose responses include those that are no "
    "word. Declared twice: the first time the rival had a beta of 0.3, after trials whose results could not be had "
    "again. On seeds 0 to 9 the headline was shown (0.24 and 1.17), and DPO of the initial model's pairs was worse "
    "than the likelihood of their preferred responses (1.17 and 0.78), as 28% of its responses were no word. Trials "
    "on seeds 1,100 and 1,101 before the second time, with beta: DPO of own pairs 0.235 (0.3) and 0.497 (1), of the "
    "initial model's pairs 1.49 (0.1), 1.27 (0.3), 1.01 (0.6), 0.63 (1) and 0.79 (3); likelihood of own preferred "
    "responses 0.605, of the initial model's 0.786. With a learning rate of 1e-3: DPO of own pairs 0.050 (0.3), of the "
    "initial model's pairs 0.88 (0.3) and 0.43 (1); likelihood 0.62 and 0.75. What was found: on own pairs the "
    "negative gradient ends nearer to the best policy; the likelihood alone reaches more utility, but goes three times "
    "as far from the initial model, as nothing holds it back, so the penalty decides this comparison. On the initial "
    "model's pairs a negative gradient does not help for sure: 13 of 20 seeds end nearer than with the likelihood, and "
    "in the other seven 12% to 36% of the responses are no word.",
    fidelity=(
        Fidelity("grid", "losses with and without a negative gradient, by who samples"),
        Fidelity("off-policy responses", "sampled by the initial model"),
        Fidelity(
            "degree of on-policy sampling",
            "larger or smaller sets of responses between updates of the sampling policy",
            "the two ends: a set for each update, or all of them by the initial model",
        ),
        Fidelity("reuse of samples", "one to many passes over each set", "one"),
        Fidelity(
            "losses",
            "PPO, REINFORCE, RWR, DPO, IPO, likelihood of the better response and of the best of n",
            "DPO, and likelihood of the better of two, from the same labels",
        ),
        Fidelity("labels", "by a trained reward model, or by the known reward", "drawn by the known utilities"),
        Fidelity(
            "where the best responses are",
            "outside or inside of the initial model's probability",
            "outside alone: utilities and the demonstrator's preferences have a correlation of -0.3",
        ),
        Fidelity(
            "measure", "the reward, and KL to the initial model", "the utility less 0.3 KL; both apart as context"
        ),
        Fidelity("model", "bandits, GPT-nano, and 1B to 7B", "a decoder of one layer, 16 words and six prompts"),
        Fidelity(
            "authors' code",
            "in bandits: responses to 100 contexts, drawn anew after many gradient steps; hyperparameters of each by a "
            "search",
            "read for the bandits; a step on each batch, with the bench's settings and a search over beta",
        ),
    ),
)

"""iREPO: regression of implicit reward differences on the logits of annotators' preferences."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.rated_words import (
    BASELINE,
    BENCH,
    BETA,
    FIVE_RATERS,
    GAP,
    ONE_RATER,
    ONLINE_SETTINGS,
    divergence,
    expected_utility,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import IPOLoss, PreferenceLoss
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.papers.irepo.losses import IREPOLoss


def _method(loss: PreferenceLoss) -> OnlineDPO:
    return OnlineDPO(**ONLINE_SETTINGS, loss_type=loss)


_IREPO = _method(IREPOLoss(BETA, 0.1))

PAPER = Paper(
    id="irepo",
    name="iREPO",
    citation=Citation(
        "iREPO: implicit Reward Pairwise Difference based Empirical Preference Optimization",
        "Le et al.",
        2024,
        "arXiv:2405.15230",
    ),
    family="preference-rlhf",
    summary="Self-alignment in rounds: the model's own responses are compared by several annotators, and the "
    "difference of implicit rewards is fitted to the logit of the share that prefers the first.",
    claim="Soft labels of several annotators and a regression do better than preference optimization with hard labels.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.papers.irepo.losses:IREPOLoss",
        "thespis.feedback.win_rate:WinRate",
    ),
    command="thespis train online-dpo --env text:bandit --feedback win-rate --steps 20000 --model tiny --set "
    "loss_type=IREPOLoss feedback.samples_labels=true feedback.num_annotators=5",
    miniature=BENCH.trial(
        arms=(
            Arm("iREPO", _IREPO, FIVE_RATERS),
            Arm("online DPO", BASELINE, FIVE_RATERS),
            Arm("online IPO", _method(IPOLoss(BETA)), FIVE_RATERS),
            Arm("one rater", _IREPO, ONE_RATER),
        ),
        headline=Comparison("iREPO", "online DPO", GAP),
        mechanisms=(Comparison("iREPO", "one rater", GAP),),
        context=(
            Comparison("iREPO", "online IPO", GAP),
            Comparison("iREPO", "online DPO", expected_utility()),
            Comparison("iREPO", "online DPO", divergence()),
            NotApplicable("the Language Model Evaluation Harness and multi-turn benchmarks", "Phi-2 and Mistral 7B"),
        ),
    ),
    remarks="A decoder of one layer says one of 16 words, whose utilities are known, in place of Phi-2 and Mistral "
    "7B; the best policy for a penalty of 0.3 on KL is known, and the measure is the distance from it. All arms "
    "sample anew for every update, and five raters, who follow the model of Bradley and Terry, compare each pair; DPO "
    "and IPO learn from the majority. Trials on seeds 1,100 and 1,101: iREPO with the least share of raters 0.143 "
    "(0.05) and 0.113 (0.1), DPO with beta 0.153 (0.3) and 0.255 (1). IPO has DPO's settings. What speaks against it: "
    "DPO reaches more utility, at more KL. A majority of five is more certain than one rater, so with hard labels the "
    "same beta lets the policy move further; between the two values of beta that were tried there may be a better one.",
    fidelity=(
        Fidelity("loss", "squared error of the implicit reward difference to the logit of the empirical preference"),
        Fidelity(
            "preference",
            "of several annotators, of which a ranking by Zermelo's model gives probabilities",
            "the share of five annotators who prefer the first, clipped to 0.1, as a unanimous vote has no logit",
        ),
        Fidelity("responses", "sampled by the model of the iteration before, in pairs with the same prompt"),
        Fidelity("reference", "the initial model"),
        Fidelity("iterations", "a few, with many updates each", "every batch is sampled anew"),
        Fidelity("comparison methods", "SFT, DPO and IPO, with hard labels", "DPO and IPO with the majority's label"),
        Fidelity("model", "Phi-2 and Mistral 7B", "a decoder of one layer, 16 words and six prompts"),
    ),
)

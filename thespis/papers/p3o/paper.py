"""P3O: policy gradient of the difference of two responses' rewards, with clipping."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.rated_words import (
    BENCH,
    BETA,
    GAP,
    LOGGED_DPO_ARM,
    NUM_ROWS,
    OFFSETS_ENV,
    ONLINE_SETTINGS,
    POLICY_GRADIENT,
    UTILITIES_ENV,
    divergence,
    expected_utility,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO

_PPO = LanguagePPO(
    **ONLINE_SETTINGS,
    minibatch_size=NUM_ROWS,
    num_epochs=2,
    kl_penalty=ReverseKL(BETA),
    normalize_advantage=False,
)

PAPER = Paper(
    id="p3o",
    name="P3O",
    citation=Citation(
        "Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment",
        "Wu et al.",
        2023,
        "arXiv:2310.00212",
    ),
    family="preference-rlhf",
    summary="Samples two responses to a prompt and learns from the difference of their rewards, with clipped ratios "
    "of whole responses and without a value function.",
    claim="A better trade-off of reward and KL than PPO, as it is invariant to rewards that differ by a constant of "
    "the prompt; aligns as well as or better than earlier methods.",
    parts=(
        "thespis.methods.language.rloo:RLOO",
        "thespis.learners.language.policy_losses:ClippedSurrogate",
        "thespis.learners.language.policy_losses:DialogueLevelRatio",
    ),
    command="thespis train rloo --env text:bandit --steps 20000 --model tiny --set feed.group_size=2 num_epochs=2 "
    "objective=ClippedSurrogate objective.importance_level=DialogueLevelRatio kl_penalty.coef=0.3",
    miniature=BENCH.trial(
        envs=(OFFSETS_ENV,),
        arms=(
            Arm("P3O", POLICY_GRADIENT),
            Arm("PPO", _PPO),
            Arm("PPO without offsets", _PPO, env=UTILITIES_ENV),
            Arm("one pass", dataclasses.replace(POLICY_GRADIENT, num_epochs=1)),
            LOGGED_DPO_ARM,
        ),
        headline=Comparison("P3O", "PPO", GAP),
        mechanisms=(Comparison("PPO without offsets", "PPO", GAP),),
        context=(
            Comparison("P3O", LOGGED_DPO_ARM.name, GAP),
            Comparison("P3O", "one pass", GAP),
            Comparison("P3O", "PPO", expected_utility()),
            Comparison("P3O", "PPO", divergence()),
            NotApplicable("wins by GPT-4 on TL;DR and HH", "models of 1B and 6B and a judge"),
        ),
    ),
    remarks="A decoder of one layer says one of 16 words, whose utilities are known, in place of models of 1B and 6B "
    "with a trained reward; the best policy for a penalty of 0.3 on KL is known, and the measure is the distance from "
    "it. A constant of each prompt, of standard deviation 2, is added to the rewards, as comparisons say nothing "
    "about it. PPO and P3O have the same number of responses and passes. Trials on seeds 1,100 and 1,101, with the "
    "learning rate: P3O 0.029 (3e-4) and 0.114 (1e-3), PPO 0.069 (3e-4) and 0.089 (1e-3). With advantages that are "
    "normalized PPO comes to 0.228: the penalty then has another weight. P3O ends nearer to the best policy, with "
    "more utility and more KL; PPO without the constants ends where P3O does (0.026 and 0.029), so all of the "
    "difference is what its critic must learn about the prompts. The constants are large: twice the standard "
    "deviation of the utilities.",
    fidelity=(
        Fidelity("gradient", "half the difference of both rewards times that of the log-probabilities' gradients"),
        Fidelity("ratios", "of whole responses, with clipping"),
        Fidelity(
            "clipping",
            "of each response apart (V1), or of both ratios' product (V2), which is more stable",
            "of each apart, as minibatches do not keep pairs together",
        ),
        Fidelity(
            "KL to the reference",
            "a part of the reward, so that the difference of log-ratios is subtracted",
            "a loss of its own, with the same expected gradient",
        ),
        Fidelity(
            "PPO",
            "GAE and a value function per token",
            "the same; advantages are not normalized, so that KL has the same weight in all arms",
        ),
        Fidelity(
            "rewards",
            "of a trained model, defined up to a constant of the prompt",
            "utilities with a constant of each prompt, of standard deviation 2",
        ),
        Fidelity("model", "1B and 6B", "a decoder of one layer, 16 words and six prompts"),
    ),
)

"""Improving multi-step reasoning with direct advantage policy optimization."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.logged_text import (
    BENCH,
    CRITIC_UPDATES,
    FILTERED_SFT_ARM,
    LOG,
    MODEL,
    NUM_UPDATES,
    SFT_ARM,
    TUNED_DPO_ARM,
)
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.response_critics import SuccessCritic
from thespis.papers.direct_advantage_policy_optimization.method import DirectAdvantagePolicyOptimization

_RETURN = final_return()

PAPER = Paper(
    id="direct-advantage-policy-optimization",
    name="Direct advantage policy optimisation",
    citation=Citation(
        "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
        "Liu et al.",
        2024,
        "arXiv:2412.18279",
    ),
    family="language",
    summary="Offline method: a critic first learns how likely the reference model is to succeed from each step; then "
    "the policy's log-ratios of steps are fitted to their advantages with a squared loss.",
    claim="Advantages of single steps are a better training signal than outcomes of whole responses.",
    parts=(
        "thespis.papers.direct_advantage_policy_optimization.method:DirectAdvantagePolicyOptimization",
        "thespis.learners.language.response_critics:SuccessCritic",
    ),
    command="thespis train direct-advantage --data demonstrations:1000 --env text:echo --model tiny",
    miniature=BENCH.trial(
        arms=(
            Arm(
                "direct advantages",
                DirectAdvantagePolicyOptimization(
                    **MODEL, learning_rate=1e-3, critic=SuccessCritic(4.0, CRITIC_UPDATES, 3e-3), beta=1.0
                ),
                LOG,
                steps=NUM_UPDATES + CRITIC_UPDATES,
            ),
            FILTERED_SFT_ARM,
            TUNED_DPO_ARM,
            SFT_ARM,
        ),
        headline=Comparison("direct advantages", "filtered SFT", _RETURN),
        context=(
            Comparison("direct advantages", "DPO", _RETURN),
            Comparison("direct advantages", "SFT", _RETURN),
            Comparison("direct advantages", "filtered SFT", final_return("sampled")),
        ),
    ),
    remarks="The paper's tasks are mathematics and programming, with large models. Here a decoder of one layer "
    "repeats four words, learned from 128 logged dialogues of random words. A word is a step, every step is rewarded "
    "by itself, and the success of a state is the share of the maximum return that was earned from there on. So "
    "advantages of steps contain rewards of steps, which methods on outcomes do not use; in the paper they come from "
    "the critic alone, as only the outcome is rewarded. Filtered SFT is rejection sampling: it imitates the dialogues "
    "with a return of 2 or more. The critic learns alone in 100 updates, before the policy's 300; the other arms make "
    "300. Beta was tuned for greedy decoding: a large one keeps sampled responses near those of the log, and they "
    "return less than those of filtered SFT. Gains on models that were already trained by RL are not tested.",
    fidelity=(
        Fidelity("loss", "half the squared difference of advantage / beta and the step's log-ratio (listing; no code)"),
        Fidelity("advantage", "value after the step - value before it; at the last step the outcome - value before it"),
        Fidelity("critic", "learned first and alone, by cross-entropy to success; it shares nothing with the actor"),
        Fidelity(
            "success of a state",
            "share of fresh completions by the reference that succeed",
            "what the one logged dialogue earned from there on, as a share of the maximum",
        ),
        Fidelity(
            "steps",
            "sampled from solutions of the reference",
            "turns of logged dialogues, which the reference has learned to imitate",
        ),
        Fidelity("reference", "the model before training, frozen"),
        Fidelity("reward", "1 for a correct outcome, else 0", "1 for every right word, at its turn"),
    ),
)

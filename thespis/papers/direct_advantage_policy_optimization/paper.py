"""Improving multi-step reasoning with direct advantage policy optimization."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import (
    DEMONSTRATION_OPTIONS,
    DPO_ARM,
    ECHO_ENVS,
    FILTERED_SFT_ARM,
    NUM_UPDATES,
    OFFLINE_MODEL,
)
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.response_critics import SuccessCritic
from thespis.papers.direct_advantage_policy_optimization.method import DirectAdvantagePolicyOptimization

_RETURN = final_return("sampled")

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
    miniature=Trial(
        arms=(
            Arm(
                "steps",
                DirectAdvantagePolicyOptimization(**OFFLINE_MODEL, critic=SuccessCritic(3.0, 100, 3e-3), beta=0.2),
                DEMONSTRATION_OPTIONS,
            ),
            FILTERED_SFT_ARM,
            DPO_ARM,
        ),
        envs=ECHO_ENVS,
        steps=NUM_UPDATES + 100,
        claims=(Superiority("steps", "best", _RETURN), Superiority("steps", "preferred", _RETURN)),
        num_episodes=200,
    ),
    remarks="The paper's tasks are mathematics and programming, and it counts success over fresh completions of every "
    "step. Here the task is to repeat three words, learned from dialogues of a demonstrator that says random words. A "
    "word is a step, each step can be rewarded, and the success of a state is the share of the maximum return that "
    "was earned from there on. The critic learns in the first 100 of 400 updates. Gains on models that were already "
    "trained by RL are not tested. Sizes were chosen after looking at one seed. Not shown: that the method (arm "
    "`steps`) beats imitation of the best dialogues (arm `best`), with ten seeds each, although its mean is higher. "
    "Checked again: its loss and targets agree with their formulas, computed by loops. Likely cause: the spread "
    "between seeds is larger than the difference, because the critic that evaluates the steps is learned in only a "
    "hundred updates.",
)

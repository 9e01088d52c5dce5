"""FSPO: preference optimization of a language model that is conditioned on a few earlier choices of the user."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.envs.text.task import TextEnv
from thespis.evidence.benches.personalization import (
    BASELINE,
    BENCH,
    CHOICES_ENV,
    LABELS,
    NOTHING_ENV,
    TASK,
    USER_ENV,
    UTILITY,
    poorly_served_users,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper

FEW_TYPES = TextEnv(dataclasses.replace(TASK, num_user_types=4))
"""Four types of users, in place of users who all differ."""
ONE_CHOICE = TextEnv(dataclasses.replace(TASK, num_choices=1))
"""Prompts that show one earlier choice."""
_FEW_TYPES_ENV, _ONE_CHOICE_ENV = f"{__name__}:FEW_TYPES", f"{__name__}:ONE_CHOICE"
POORLY_SERVED = poorly_served_users()

PAPER = Paper(
    id="fspo",
    name="FSPO",
    citation=Citation(
        "FSPO: Few-Shot Preference Optimization of Synthetic Preference Data in LLMs Elicits Effective "
        "Personalization to Real Users",
        "Singh et al.",
        2025,
        "arXiv:2502.19312",
    ),
    family="preference-rlhf",
    summary="A user is a task of meta-learning: the prompt shows a few of the user's labelled preferences, and "
    "preference optimization over many synthetic users teaches the model to infer what this one wants.",
    claim="With a few preferences in the prompt, responses win 87% against those of models that do not adapt, for "
    "users who were not trained on; the synthetic users must be diverse.",
    parts=(
        "thespis.methods.language.online_dpo:OnlineDPO",
        "thespis.envs.text.recommendation:Recommendation",
        "thespis.feedback.win_rate:WinRate",
    ),
    command="thespis train online-dpo --env text:recommendation --feedback win-rate --steps 77000 --model tiny --set "
    "num_layers=1 hidden_size=64 num_pretrain_steps=300 learning_rate=3e-4 beta=0.1 feedback.judge=RewardJudge "
    "feedback.judge.beta=4 feedback.samples_labels=true",
    miniature=BENCH.trial(
        arms=(
            Arm("FSPO", BASELINE, LABELS, CHOICES_ENV),
            Arm("pooled users", BASELINE, LABELS, NOTHING_ENV),
            Arm("four types of users", BASELINE, LABELS, _FEW_TYPES_ENV),
            Arm("one choice", BASELINE, LABELS, _ONE_CHOICE_ENV),
            Arm("user told", BASELINE, LABELS, USER_ENV),
        ),
        headline=Comparison("FSPO", "pooled users", UTILITY),
        mechanisms=(
            Comparison("FSPO", "pooled users", POORLY_SERVED),
            Comparison("FSPO", "four types of users", UTILITY),
            Comparison("FSPO", "one choice", UTILITY),
        ),
        context=(
            Comparison("user told", "FSPO", UTILITY),
            NotApplicable("a win rate of 70% with real users", "people, and models that can be prompted"),
        ),
    ),
    remarks="Twelve items and users are points on a circle, and a user's utility of an item is the cosine of the "
    "angle between them, so that a taste is one number; a prompt shows which of two items the user preferred, four "
    "times. The rival sees no choices and learns what is good for the average user, as pooled comparisons say; it has "
    "as many comparisons, and its settings were tuned as often. All users of the measure are new, of any taste, and "
    "the same for all arms. With four choices in the prompt the utility is 0.59 in place of 0.42, where one item for "
    "all can have 0.44, and 11% of the users are served worse than at random in place of 22%. One choice is worth "
    "0.51. What was possible is far off: 0.87 by Bayes' rule after four choices and 0.65 after one, and 0.91 was "
    "learned where the prompt named the user's best item. Undecided: that all kinds of users are better to learn from "
    "than four types. Both come to 0.60, as four tastes around the circle are enough to learn what a choice says: "
    "this trial does not show the paper's point on diverse users, and a taste of one number is not where to look for "
    "it. What speaks against the size: seeds of FSPO differ far more than those of its rival, two of 20 end where the "
    "rival does (0.42 and 0.45), and the mean of the two tuning seeds, 0.70, was not reached. The setting is one for "
    "all arms and not the best for FSPO, which came to 0.745 with beta 0.3 and 1e-3 on the tuning seeds.",
    fidelity=(
        Fidelity("conditioning", "the prompt shows labelled preferences of the user, then the query"),
        Fidelity("user", "every user has preferences of their own; those of the evaluation are new"),
        Fidelity(
            "loss",
            "of DPO's family (IPO), on logged pairs, after fine-tuning on the preferred responses",
            "DPO's, on pairs of the model's own responses, which the user compares",
        ),
        Fidelity(
            "synthetic users",
            "more than a million preferences of up to 1,500 users in three domains, by prompted models",
            "users are drawn anew: a taste is an angle, and 38,400 pairs are compared",
        ),
        Fidelity(
            "structure of the data",
            "persona descriptions of growing detail, and labels that agree with each other",
            "one angle decides all choices of a user; four types of users are the less diverse data",
        ),
        Fidelity("description of the user", "optionally written by the model first, then the response", "left out"),
        Fidelity("model", "Llama 3.2 3B Instruct", "a decoder of one layer and 64 units, 40 words"),
        Fidelity("comparison methods", "the base model, few-shot prompts, fine-tuning, and an oracle that is told"),
    ),
)

"""SELF: labels teach a model to criticize and refine its answers, and it then learns from those that it has refined."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.habitual_errors import (
    ACCURACY,
    BENCH,
    MODEL,
    ROUND,
    SFT_ARM,
    SKILLS,
    refined_accuracy,
    sampled_accuracy,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.self.method import SelfEvolution

_SELF, _SFT, _SKILLS = "SELF", SFT_ARM.name, "meta-skills alone"
_FIRST, _FILTER = "self-training on first answers", "the filter without refinement"
EVOLUTION = SelfEvolution(**MODEL, num_label_steps=75, num_gradient_steps=100, learning_rate=3e-4)
"""The meta-skills, followed by rounds."""
_SELF_TRAINING = dataclasses.replace(EVOLUTION, learns_from="first", self_filter=None)
_FILTERED = dataclasses.replace(EVOLUTION, learns_from="first")
_LEARNED = dataclasses.replace(mean_metric("learned_right"), name="share of right answers among those it learns from")

PAPER = Paper(
    id="self",
    name="SELF",
    citation=Citation("SELF: Self-Evolution with Language Feedback", "Lu et al.", 2023, "arXiv:2310.00533"),
    family="llm-self-improvement",
    summary="Labels teach a language model the meta-skills of criticizing an answer in words and of refining it. Then, "
    "in rounds, it answers prompts without labels, criticizes and refines its answers, drops those that its own "
    "critique does not approve of, and learns the rest as direct answers.",
    claim="Direct answers after self-evolution are right more often than after supervised fine-tuning on as many "
    "labels, and further rounds help further.",
    parts=(
        "thespis.papers.self.method:SelfEvolution",
        "thespis.papers.self.envs:SelfRefinement",
        "thespis.papers.self.envs:Articles",
    ),
    command="thespis train thespis.papers.self.method:SelfEvolution "
    "--env thespis.evidence.benches.habitual_errors:LESSONS --steps 1536 "
    "--set num_layers=2 hidden_size=64",
    miniature=BENCH.trial(
        arms=(
            Arm(_SELF, EVOLUTION),
            SFT_ARM,
            Arm(_FIRST, _SELF_TRAINING),
            Arm(_FILTER, _FILTERED),
            Arm(_SKILLS, SKILLS, steps=ROUND),
        ),
        headline=Comparison(_SELF, _SFT, ACCURACY),
        mechanisms=(
            Comparison(_SELF, _FIRST, ACCURACY),
            Comparison(_SELF, _FILTER, ACCURACY),
            Comparison(_SELF, _FIRST, _LEARNED),
            Comparison(_SELF, _SKILLS, ACCURACY),
        ),
        context=(
            Comparison(_SKILLS, _SFT, ACCURACY),
            Comparison(_FIRST, _SFT, ACCURACY),
            Comparison(_SELF, _SFT, sampled_accuracy()),
            Comparison(_SELF, _FIRST, sampled_accuracy()),
            Comparison(_SELF, _SKILLS, refined_accuracy()),
            NotApplicable(
                "accuracy on GSM8K and SVAMP, and win rates on the test sets of Vicuna and Evol-Instruct",
                "a language model of 7B parameters, and GPT-4 as writer of the labels and as judge",
            ),
        ),
    ),
    remarks="Three nouns are answered by their articles. The model is pretrained on people who give a popular wrong "
    "article off-hand, to half of the nouns in most cases, and who know better when they read an answer: nine "
    "tenths of their marks are right, and of what is marked as bad they put seven tenths right. Four labelled "
    "prompts, others for each seed, show answers with exact marks and right refinements. So the model knows more "
    "than it says, by design, which is what the paper presumes of large models. The trial has not been run. On "
    "three tuning seeds, in a script that plays the same parts, 59% of the direct answers are right after "
    "supervised fine-tuning (the best of five settings), 62% after the meta-skills with the same settings as SELF "
    "(64% in the best of three) and 76% once refined. After one and two rounds of SELF 77% and 89% of the direct "
    "answers are right, and 68% after two rounds of self-training on first answers, without filter and "
    "refinement. What speaks most against the idea: the filter alone, on first answers that were never refined, "
    "leads to 95%. So the gain may be that of the model's own judgment, and refinement may add nothing to it "
    "here; the trial has an arm for that. What speaks against long training: with twice as many steps in a round "
    "SELF ends at 79% and self-training at 62%. Refined answers become worse than direct ones in the rounds (72% "
    "after the second), so that the model forgets how to refine while it learns what refinement has taught. Where "
    "a round continues from the model of the round before (one setting, 1e-3), the model approves of a fifth of "
    "its answers in the third round, and direct answers rise from 55% to 71% in the first round and fall to 62%. "
    "With eight labels and a pretraining in which refinements are any other article, rounds of this kind made "
    "direct answers worse (71% to 63%). Of the paper the abstract and the introduction could be read; what the "
    "points below say of its labels, filter, rounds and rivals could not be checked against its text.",
    fidelity=(
        Fidelity(
            "model",
            "an instruction-tuned model of 7B parameters",
            "a decoder of two layers and 64 units, pretrained on people who answer by habit",
        ),
        Fidelity("meta-skills", "feedback on an answer, and a refined answer, learned from labels"),
        Fidelity(
            "labels",
            "prompts with an answer of the model, feedback on it and a refined answer, written by a larger model; "
            "refined answers are also learned as direct ones",
            "the same, of four prompts, other ones for each seed; feedback and refined answers are exact",
        ),
        Fidelity(
            "what the model knows before the labels",
            "feedback and refinement as far as instruction tuning has taught them",
            "noisy critiques and refinements, which are part of its pretraining",
        ),
        Fidelity("feedback", "an explanation in words and a judgment", "a mark for each part of the answer"),
        Fidelity("refinement", "an answer that has read prompt, first answer and feedback"),
        Fidelity("filter", "refined answers are kept of which the model's own feedback approves"),
        Fidelity("what is learned in a round", "refined answers as direct ones, and labels"),
        Fidelity(
            "where a round begins",
            "at the base model, with the data of all rounds (restart), or at the model of the round before",
            "at the base model, with the data of this round and the labels",
        ),
        Fidelity("rounds", "three", "two of 256 prompts"),
        Fidelity(
            "rivals",
            "supervised fine-tuning on the labelled answers, and reinforcement learning from feedback",
            "supervised fine-tuning, and self-training on first answers; no reinforcement learning",
        ),
    ),
)

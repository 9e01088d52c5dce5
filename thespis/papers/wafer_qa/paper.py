"""WAFER-QA: right answers that a language model gives up after one critique that misleads it."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.misleading_critiques import (
    ABANDONED,
    ACCURACY,
    ASKED_AGAIN_ENV,
    BENCH,
    MISLED_ARM,
    MISLED_BY_MEMORY_ENV,
    MIXED,
    SOLVER,
    WARY_ARM,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.wafer_qa.envs import GROUNDED, Recall
from thespis.papers.wafer_qa.measures import accuracy_in

_ASKED, _MISLED, _BY_MEMORY, _WARY = "asked again", MISLED_ARM.name, "misled without a source", WARY_ARM.name
_HELPED = accuracy_in(Recall(knowledge=GROUNDED), "constructive critics with a source")
_MIXED = accuracy_in(MIXED, "mixed critics")

PAPER = Paper(
    id="wafer-qa",
    name="WAFER-QA",
    citation=Citation(
        "Helpful Agent Meets Deceptive Judge: Understanding Vulnerabilities in Agentic Workflows",
        "Ming et al.",
        2025,
        "arXiv:2506.03332",
    ),
    family="llm-critic",
    summary="A study of feedback that misleads: judges differ in intent (constructive, hypercritical, malicious) and "
    "in what they know (nothing, their own memory, evidence from the web), and it is counted how many right answers "
    "an agent gives up after their critiques.",
    claim="Even the strongest agents often give up right answers after a single critique that misleads them, the more "
    "so where it is grounded in evidence.",
    parts=(
        "thespis.papers.wafer_qa.envs:Recall",
        "thespis.papers.wafer_qa.envs:ExaminedEnv",
        "thespis.papers.wafer_qa.measures:examine",
        "thespis.methods.language.grpo:GRPO",
    ),
    command="thespis train grpo --env thespis.evidence.benches.misleading_critiques:MISLED --steps 12800 --model tiny "
    "--set num_layers=1 hidden_size=64 num_pretrain_steps=600 learning_rate=1e-3",
    miniature=BENCH.trial(
        arms=(
            Arm(_ASKED, SOLVER, env=ASKED_AGAIN_ENV),
            MISLED_ARM,
            Arm(_BY_MEMORY, SOLVER, env=MISLED_BY_MEMORY_ENV),
            WARY_ARM,
        ),
        headline=Comparison(_ASKED, _MISLED, ACCURACY),
        mechanisms=(
            Comparison(_MISLED, _BY_MEMORY, ABANDONED),
            Comparison(_WARY, _MISLED, ACCURACY),
        ),
        context=(
            Comparison(_ASKED, _BY_MEMORY, ACCURACY),
            Comparison(_MISLED, _WARY, _HELPED),
            Comparison(_WARY, _MISLED, _MIXED),
            NotApplicable(
                "models that reason change their answers less often over several rounds",
                "language models that reason before they answer, and others of their size that do not",
            ),
            NotApplicable(
                "accuracies of named models on questions with evidence from the web",
                "language models of such size, and a search of the web",
            ),
        ),
    ),
    remarks="",
    fidelity=(
        Fidelity(
            "agent",
            "language models that can be prompted, as strong as GPT-4o and o4-mini; not trained",
            "a decoder of one layer that is trained on right answers, beside constructive critics of all kinds",
        ),
        Fidelity(
            "questions",
            "facts, from several sets of questions",
            "a hidden digit, of which the agent has three memories",
        ),
        Fidelity(
            "intents",
            "constructive, hypercritical (the answer is always wrong) and malicious (against right answers only)",
            "constructive and malicious",
        ),
        Fidelity(
            "knowledge",
            "none (a template), parametric (the model's own) and grounded (evidence from the web)",
            "silent, a verdict at random, an answer from memory, an answer with a word that says it was looked up",
        ),
        Fidelity(
            "reliability of constructive judges",
            "that of the model and of what it finds",
            "an answer from memory is right in 75% of the cases, one with a source in 95%",
        ),
        Fidelity(
            "wrong answer that is named", "one for which evidence was found", "any other, whatever the memories say"
        ),
        Fidelity("rounds", "one, and up to several", "one"),
        Fidelity("workflows", "a generator and an evaluator; discussions of several agents", "an agent and a critic"),
        Fidelity(
            "measure", "accuracy before and after the critique", "the same, and the share of right answers given up"
        ),
    ),
)

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
    remarks="Of the paper only the abstract and others' summaries could be read, and no code was found. An agent "
    "has three recollections of a hidden digit, each right in 60% of the cases; it answers, hears a critic, "
    "and answers again. It is trained for 100 updates on right answers, beside critics who are silent, "
    "guess, remember (right in 75% of the cases) or name a source (95%), all of them constructive. The "
    "first three arms are the same trainings with other examinations: differences between them are the "
    "critics' alone. What was found: of agents that are asked again 65% of the answers are right, and 2% "
    "after one critic who names a wrong answer and a source: 98% of the right answers are given up. Without "
    "a source it is 86% (a difference of 12 points, 4 to 21; decided after 15 pairs). That is more than "
    "critics of such reliability are worth: by Bayes' rule an agent gives up 70% and 25%, and keeps what "
    "all three recollections agree on. The trained agent repeats what is named, whatever it remembers. "
    "Where half of the critics mislead in training, in the same words, it learns to ignore them: 67% right "
    "after a misleading source. It pays for that with a constructive one: 73%, where the trusting agent has "
    "93% and Bayes' rule 79%. After critics of mixed intent it has 68%, the trusting one 56%. What speaks "
    "against it: trust was taught, and the sizes are those of the reliabilities that were chosen; models in "
    "the paper were never trained beside such critics. The agent is not a strong one: with 72% as the most "
    "that memory allows, its first answers are right in 65% of the cases, and longer training, which may "
    "teach it to keep what it is sure of, was not tried. On tuning seeds two layers and a penalty on KL "
    "gave the same (2% right, after a source). A source is a word here, without anything that could be "
    "checked, so that nothing is said of agents that look it up. All seeds have the same 500 questions: "
    "intervals are those of trainings. A misleading critic agrees to wrong answers, so that its critiques "
    "repair nothing. Hypercritical judges and several rounds were left out.",
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

"""Recursive self-critiquing: a judge after a critique of a critique, against direct judgments at equal cost."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.evidence.benches.recursive_critiques import (
    ACCURACY,
    BENCH,
    DIRECT_ARM,
    NUM_ROWS,
    RECURSIVE_ENV,
    oversight_arm,
    taught,
)
from thespis.evidence.claims import MinimumScore
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.multi_agent.cast import Cast
from thespis.papers.recursive_self_critiquing.envs import PANEL, PANEL_ENV
from thespis.papers.recursive_self_critiquing.measures import (
    first_gain,
    level_gain,
    panel_accuracy,
    verdict_accuracy,
    verdict_tokens,
)

_RECURSIVE, _DIRECT, _PANEL = "critique of a critique", DIRECT_ARM.name, "panel without critiques"
_SCHEDULE = PANEL.rules.conversation_spec.schedule
_MEMBERS = {seat: dataclasses.replace(taught(seat, RECURSIVE_ENV), env=PANEL_ENV) for seat in _SCHEDULE}
"""As many models with as many lessons, none of which reads a critique."""

PAPER = Paper(
    id="recursive-self-critiquing",
    name="Recursive Self-Critiquing",
    citation=Citation(
        "Scalable Oversight for Superhuman AI via Recursive Self-Critiquing",
        "Wen et al.",
        2025,
        "arXiv:2502.04675",
    ),
    family="llm-critic",
    summary="Where an answer is too difficult to judge, its critique may be easier to judge, and the critique of that "
    "critique easier still. Critiques of rising order are written, and the last judgment counts; the rival is a vote "
    "of direct judgments that takes as much effort.",
    claim="A critique of a critique is easier than a critique, and this holds recursively: judgments after critiques "
    "of higher order are right more often than votes of direct judgments at equal effort.",
    parts=(
        "thespis.envs.text.recursive_critique:RecursiveCritiqueConversation",
        "thespis.evaluation.oversight_report:report_on_oversight",
        "thespis.papers.recursive_self_critiquing.envs:Proofreading",
        "thespis.papers.recursive_self_critiquing.method:TaughtModel",
        "thespis.learners.multi_agent.cast:Cast",
    ),
    command="thespis train grpo --env text:verification --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            oversight_arm(_RECURSIVE, RECURSIVE_ENV),
            DIRECT_ARM,
            Arm(_PANEL, Cast(_MEMBERS), env=PANEL_ENV, steps=NUM_ROWS * len(_SCHEDULE)),
        ),
        headline=Comparison(_RECURSIVE, _DIRECT, ACCURACY),
        mechanisms=(
            Comparison(_RECURSIVE, _PANEL, ACCURACY),
            MinimumScore(_RECURSIVE, first_gain(), 0.0),
        ),
        context=(
            MinimumScore(_RECURSIVE, level_gain(), 0.0),
            Comparison(_RECURSIVE, _DIRECT, verdict_accuracy()),
            Comparison(_PANEL, _DIRECT, ACCURACY),
            Comparison(_PANEL, _RECURSIVE, panel_accuracy()),
            Comparison(_DIRECT, _RECURSIVE, verdict_tokens()),
            NotApplicable(
                "critiques by people, and of language models by people and by each other on mathematics and exams",
                "people who criticize, and language models of 7B and more",
            ),
        ),
    ),
    fidelity=(
        Fidelity(
            "answers",
            "exam questions with several choices and mathematics, answered by people or language models",
            "texts of five words, of which half have one misspelled word; of 32 pairs of words",
        ),
        Fidelity(
            "critics and judge",
            "people, or language models as they are, in the same roles at all levels",
            "one model of one layer and 32 units for each seat, taught by lessons of its own seat",
        ),
        Fidelity(
            "critique",
            "an analysis in words that ends in a judgment",
            "right, or wrong and the word that is held to be misspelled",
        ),
        Fidelity(
            "critique of a critique",
            "reads two or more critiques of the level below, and says which holds",
            "reads one critique of each level below, and says in the same words what holds",
        ),
        Fidelity(
            "effort",
            "as many answers or critiques of a level as a critique of the next one needs, as votes",
            "five votes of the direct judge, which read and write more tokens than one verdict after two critiques",
        ),
        Fidelity(
            "lessons",
            "none; the same people or models at all levels",
            "96 for each seat in 120 updates, a quarter of them random; three times both for the direct judge",
        ),
        Fidelity(
            "rivals",
            "majority voting at a level below, and voting over the judgments of all levels",
            "both, and a panel of as many models that do not read each other's critiques",
        ),
    ),
)

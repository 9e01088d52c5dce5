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
    with_seats,
)
from thespis.evidence.claims import MinimumScore
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
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
        "thespis.papers.recursive_self_critiquing.envs:ProofreadingTask",
        "thespis.papers.recursive_self_critiquing.method:TaughtModel",
        "thespis.learners.multi_agent.cast:Cast",
    ),
    command="thespis train grpo --env text:verification --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            oversight_arm(_RECURSIVE, RECURSIVE_ENV),
            DIRECT_ARM,
            Arm(_PANEL, with_seats(_MEMBERS), env=PANEL_ENV, steps=NUM_ROWS * len(_SCHEDULE)),
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
    remarks="A text of five words is right if none of them is misspelled, which half of the texts are not; "
    "which of 64 words are misspelled is learned from lessons, of which a quarter are random. Every "
    "seat is a model of its own, and says right, or wrong and a word. Two critics and a judge, each "
    "with 96 lessons, against a judge that reads the text alone, with 288 lessons, and five votes: 47 "
    "tokens, where one verdict after two critiques costs 35. What was found: the verdict after two "
    "critiques is right on 68.4% of the texts, the direct judge's on 85.2%, in all ten pairs "
    "(contradicted). Nor is a critique of a critique easier at equal lessons: the judge that has read "
    "two critiques is right 2.2 points less often than the first critic, who has read none "
    "(undecided, interval from -7.4 to 2.8), and as often as the second. The majority of three models "
    "that do not read each other's critiques is right on 78.1%, more than the judge after critiques "
    "by 9.7 points in all pairs, and more than the majority of the same three seats where they do (by "
    "5.3 points): what they read makes their errors alike. So recursion does not pay here, neither "
    "against votes nor against independent models; the lead of the direct judge over that panel (7.0 "
    "points) is that of 288 lessons in one model over 96 in each of three. What speaks against it: "
    "models are tiny, and a longer transcript is more to learn from as few lessons; a large model "
    "that can read already has no such cost. Knowing a word is as difficult in a critique as in the "
    "text, so that a critique that calls a text right is no easier to judge than the text; tasks in "
    "which a quoted step is quicker to check than to find may differ. In lessons the critiques that "
    "are read are the demonstrator's, of which an eighth judge wrongly, while trained critics err on "
    "three in ten: judges were not taught to distrust these. All seats have one size and one "
    "temperature, and critiques are read one at a time, where the paper has several of a level. Of "
    "the paper the abstract and summaries could be read. Tuning (seeds 1,100 to 1,102, 500 texts): "
    "two learning rates each, 0.859 with 3e-3 and 0.838 with 1e-2 for the direct judge, 0.721 and "
    "0.739 for the judge after two critiques, at a temperature of 0.05. Another form was looked at "
    "for both: agree or disagree with what was said last, with 256 lessons for each seat, where the "
    "judgments of first critic, second critic and judge are right on 84%, 74% and 60%, and those of a "
    "direct judge with as many lessons on 89%. The first declarations, before anything was tried, had "
    "a trial without the panel, and before that two arms more, one critique and agreement, which were "
    "left out to save time. The first reproduction stopped before a verdict as gains over critics are "
    "not defined for the direct judge; they are 0 there now, and the same runs were read.",
)

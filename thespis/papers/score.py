"""SCoRe: training language models to self-correct via reinforcement learning."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Better
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import ATTEMPTS, gain, second_accuracy
from thespis.learners.baselines import Others
from thespis.learners.credit import ToGo
from thespis.learners.experience import Progress
from thespis.learners.utterances import HeldFirst
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.score import SCoRe

_UPDATES = 400
_COMMON: dict[str, Any] = ATTEMPTS | {"minibatch": 128}


def _score(until: int, bonus: float) -> SCoRe:
    return SCoRe(**_COMMON, experience=Progress(until, bonus), reference=HeldFirst(until=until))


PAPER = Paper(
    id="score",
    name="SCoRe",
    citation=SCoRe.citations[0],
    family="llm-agent-rl",
    does="Two attempts at one question, learnt from one's own mistakes: at first the second alone is paid and the "
    "first held where it was, then both are paid and progress with them.",
    claim="Self-correction, the accuracy of the second attempt beyond the first, gains 15.6% on MATH and 9.1% on "
    "HumanEval, where plain learning over two turns gains nothing.",
    parts=(
        "thespis.methods.language.score:SCoRe",
        "thespis.learners.experience:Progress",
        "thespis.learners.utterances:HeldFirst",
        "thespis.envs.text.correction:Correction",
    ),
    use="thespis train score --env thespis.evidence.speaking:TWICE --model tiny --steps 50000",
    miniature=Trial(
        arms=(
            Arm("SCoRe", _score(_UPDATES // 2, 10.0)),
            Arm("without the first stage", _score(0, 10.0)),
            Arm("two turns", RLOO(**_COMMON, credit=ToGo(Others()))),
        ),
        envs=("thespis.evidence.speaking:TWICE",),
        steps=_UPDATES * 2 * 128,
        claims=(
            Better("SCoRe", "two turns", gain()),
            Better("SCoRe", "without the first stage", gain()),
            Better("SCoRe", "two turns", second_accuracy()),
        ),
        batch=5,
        looks=1,
        episodes=50,
    ),
    remarks="Sums of two digits by a decoder of two layers, taught by a demonstrator that errs in 3 of 10 first "
    "attempts, in place of mathematics by Gemini. Alpha of 10 and the weights of KL, 0.01 and 0.1, were not checked "
    "against the paper's appendix, which could not be read. Half of the updates are the first stage. An attempt is "
    "told its own reward alone: a first one that were told what the second earns would be paid for errors, as alpha "
    "is above 1. Accuracies are those of greedy play. A look at one seed set one gradient step for each "
    "batch: with four SCoRe lost in the second stage what it had learnt in the first. Supervised learning from "
    "corrections is not compared. "
    "What is not shown: that its second attempts correct more of the first than those of plain learning over "
    "two turns; means say so (0.003 and -0.033), seeds do not decide it, and nobody's second attempt is much "
    "better than the first. Second look: rewards of both stages and the two weights of KL agree with loops. "
    "Likely cause: a sum of two digits that a small decoder gets wrong it gets wrong for want of knowledge; "
    "nothing in what it said tells it so, and the world says nothing between the attempts, so there is little "
    "to correct but what was drawn by chance, and play is greedy.",
)

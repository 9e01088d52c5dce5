"""NFT: bridging supervised learning and reinforcement learning in math reasoning."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import ANSWERS
from thespis.learners.baselines import Mean
from thespis.learners.credit import Whole
from thespis.learners.negatives import ByOdds, NegativeAware
from thespis.learners.utterances import OverBudget, Unheld
from thespis.methods.language.grpo import GRPO

_COMMON: dict[str, Any] = ANSWERS | {"reference": Unheld(), "divisor": OverBudget(), "minibatch": 32}
_SCORE = final_return("sampled")


def _aware(**given) -> GRPO:
    return GRPO(**_COMMON, credit=Whole(Mean()), objective=NegativeAware(**given))


PAPER = Paper(
    id="nft",
    name="NFT",
    citation=Citation(
        "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning",
        "Chen et al.",
        2025,
        "arXiv:2505.18116",
    ),
    family="llm-agent-rl",
    does="Learns by likelihood from its own right answers, and from its wrong ones by the likelihood of the policy "
    "that is implied to give them, as sampling mixes both.",
    claim="Much better than fine-tuning on right answers alone, and as good as GRPO, whose gradient it has where "
    "training is strictly on-policy.",
    parts=(
        "thespis.objectives.negatives:negative_aware",
        "thespis.learners.negatives:NegativeAware",
        "thespis.learners.negatives:ByOdds",
    ),
    use="thespis train grpo --env text:countdown --model tiny --steps 20000 --set credit.baseline=Mean "
    "objective=NegativeAware divisor=OverBudget reference=Unheld",
    miniature=Trial(
        arms=(
            Arm("NFT", _aware()),
            Arm("NFT by odds", _aware(weighting=ByOdds())),
            Arm("right answers alone", _aware(negatives=0.0)),
            Arm("GRPO", GRPO(**_COMMON)),
        ),
        envs=("thespis.evidence.speaking:SUMS",),
        steps=300 * 128,
        claims=(
            Better("NFT", "right answers alone", _SCORE),
            NoWorse("NFT", "GRPO", _SCORE, 0.05),
            NoWorse("NFT by odds", "GRPO", _SCORE, 0.05),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A decoder of two layers makes a number of two others in place of mathematics with 7B and 32B. Floor of "
    "the implied ratio, weight of questions (their share of wrong answers; the root of the odds is the "
    "other that the paper names), no penalty on KL and sixteen answers to a question are theirs; right "
    "answers alone have the same weights, as in their code. Every batch is cut into four gradient steps, "
    "theirs into sixteen, so that only the first of them is strictly on-policy. Questions that all answer "
    "alike are not drawn anew: they teach nothing. That both gradients are one on what was sampled is a "
    "test, against the formula by loops and numeric slopes. The step size was set by a look at one seed, in "
    "which one three times as large lost what every arm had been taught. What is not shown: that wrong "
    "answers teach more than right ones alone, and that either weighting is as good as GRPO; means say the "
    "opposite of the first (0.50 and 0.65), not decided. Second look: loss, floor and both gradients agree "
    "with the paper's formulas by loops and numeric slopes. Likely cause: at a share of a third of right "
    "answers, utterances of four ids and four steps on each batch most of what is told is to say something "
    "else, which moves a small decoder away from what it was taught; seeds of NFT lie further apart than "
    "those of its rivals.",
)

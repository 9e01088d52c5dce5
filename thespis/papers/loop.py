"""LOOP: reinforcement learning for long-horizon interactive LLM agents."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import TALKS
from thespis.learners.baselines import Comparison, Others, Scaled
from thespis.learners.credit import Whole
from thespis.learners.utterances import Clipped, EachTalk, EachTurn, OverAnswers, Unheld
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO

_COMMON: dict[str, Any] = TALKS | {"reference": Unheld(), "divisor": OverAnswers(), "epochs": 2, "minibatch": 16}
_CLIP = (1 - 1 / 1.1, 0.1)
_SCORE = learning_area()


def _loop(baseline: Comparison, **shared) -> GRPO:
    return GRPO(**_COMMON, credit=Whole(baseline), objective=Clipped(*_CLIP, **shared))


PAPER = Paper(
    id="loop",
    name="LOOP",
    citation=Citation(
        "Reinforcement Learning for Long-Horizon Interactive LLM Agents", "Chen et al.", 2025, "arXiv:2502.01600"
    ),
    family="llm-agent-rl",
    does="PPO without a critic and with one copy of the model: a leave-one-out baseline over conversations, clipped "
    "ratios of ids, several passes over what was sampled.",
    claim="Ratios by id do better than by turn, and these than by conversation; returns over their deviation do worse, "
    "and so do GRPO and PPO with a critic.",
    parts=(
        "thespis.learners.utterances:Clipped",
        "thespis.learners.utterances:EachTurn",
        "thespis.learners.utterances:EachTalk",
        "thespis.learners.baselines:Others",
    ),
    use="thespis train grpo --env text:maze --model tiny --steps 50000 --set credit.baseline=Others reference=Unheld "
    "objective.low=0.09 objective.high=0.1 objective.shared=EachId epochs=2",
    miniature=Trial(
        arms=(
            Arm("by id", _loop(Others())),
            Arm("by turn", _loop(Others(), shared=EachTurn())),
            Arm("by conversation", _loop(Others(), shared=EachTalk())),
            Arm("over the deviation", _loop(Scaled())),
            Arm("PPO", LanguagePPO(**_COMMON)),
        ),
        envs=("thespis.evidence.speaking:MAZE",),
        steps=60 * 6 * 64,
        claims=(
            Better("by id", "by turn", _SCORE),
            Better("by turn", "by conversation", _SCORE),
            Better("by id", "over the deviation", _SCORE),
            Better("by id", "PPO", _SCORE),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A maze of nine cells, told in words, stands for AppWorld and its calls of programs; a decoder of two "
    "layers for one of 32B. Ratios clipped to 1/1.1 and 1.1, a leave-one-out baseline, two passes, no penalty"
    " on KL and losses averaged over the ids of a conversation are those of their code; eight conversations "
    "from a beginning, theirs six. A ratio by turn or conversation is the product of those of its ids, and "
    "through every id flows its own gradient. PPO has the same passes and batches. Memory is not compared: "
    "without a critic's model there is the same here, as the critic is a linear head. The area under the "
    "curve is measured, and not what is left at the end, where arms may be alike. What is not shown: any of "
    "the four; all five arms have an area of 0.83 to 0.84. Second look: ratios of ids that are one action, "
    "and the gradient through each, agree with loops. Likely cause: an utterance is a way and the word that "
    "ends it, of which the second is all but certain once the lesson is over, so that ratios by id and by "
    "turn are nearly the same; a conversation has about four turns; and divergences from what acted are of "
    "the order of a hundredth of a nat, at which few ratios are clipped, however they are taken.",
)

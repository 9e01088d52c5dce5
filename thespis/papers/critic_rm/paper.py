"""Critic-RM: critiques that agree with preference labels are learned together with the rewards that follow them."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.scarce_labels import ACCURACY, BENCH, JUDGE_ARM, MODEL
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.critic_rm.measures import mean_critique_accuracy, pair_loss, right_principles
from thespis.papers.critic_rm.method import CriticRM


def _arm(name: str, learning_rate: float, **settings: Any) -> Arm:
    """A reward model with the learning rate that was the best of those tried for it."""
    configured: dict[str, Any] = MODEL | {"learning_rate": learning_rate} | settings
    return Arm(name, CriticRM(**configured))


_CRITIC, _UNFILTERED = "Critic-RM", "without the filter"
_UNLEARNED, _JUDGE_SFT = "critiques of the initial model, none learned", "judge, fine-tuned on kept critiques"
_SCALAR, _JUDGE = "scalar reward model, 600 steps", JUDGE_ARM.name
_MEAN, _PRINCIPLES = mean_critique_accuracy(), right_principles()

PAPER = Paper(
    id="critic-rm",
    name="Critic-RM",
    citation=Citation(
        "Self-Generated Critiques Boost Reward Modeling for Language Models", "Yu et al.", 2024, "arXiv:2411.16646"
    ),
    family="llm-critic",
    summary="A language model writes critiques of both answers of a preference pair, of which those are kept whose "
    "scores agree with the label. It then learns jointly to say them and to give the reward after them, with a weight "
    "that moves from critiques to rewards.",
    claim="Prefers the better answer more often than a standard reward model and a judge in words, and needs fewer "
    "labels.",
    parts=(
        "thespis.papers.critic_rm.envs:CriticizedAnswers",
        "thespis.papers.critic_rm.method:CriticRM",
        "thespis.learners.language.turn_scores:turn_scores",
        "thespis.objectives.preferences:bradley_terry_loss",
    ),
    command="thespis train thespis.papers.critic_rm.method:CriticRM --env thespis.evidence.benches.scarce_labels:"
    "ANSWERS --steps 768 --model tiny --set num_layers=2 hidden_size=64 num_pretrain_steps=1500 feed.max_steps=2 "
    "feed.group_size=2 feed.num_envs=384 learning_rate=3e-3 num_gradient_steps=300 batch_size=16",
    miniature=BENCH.trial(
        arms=(
            _arm(_CRITIC, 3e-3),
            _arm(_SCALAR, 1e-3, critiques="none", reads="answer", num_gradient_steps=600),
            _arm(_UNFILTERED, 3e-4, critiques="all"),
            _arm(_UNLEARNED, 3e-4, critiques="none"),
            _arm(_JUDGE_SFT, 3e-4, reads="score"),
            JUDGE_ARM,
        ),
        headline=Comparison(_CRITIC, _SCALAR, ACCURACY),
        mechanisms=(
            Comparison(_CRITIC, _UNFILTERED, ACCURACY),
            Comparison(_CRITIC, _UNFILTERED, _PRINCIPLES),
            Comparison(_CRITIC, _JUDGE, ACCURACY),
        ),
        context=(
            Comparison(_CRITIC, _SCALAR, _MEAN),
            Comparison(_CRITIC, _SCALAR, pair_loss()),
            Comparison(_CRITIC, _UNFILTERED, _MEAN),
            Comparison(_CRITIC, _UNLEARNED, ACCURACY),
            Comparison(_CRITIC, _UNLEARNED, _MEAN),
            Comparison(_CRITIC, _JUDGE_SFT, ACCURACY),
            Comparison(_CRITIC, _JUDGE_SFT, _MEAN),
            Comparison(_CRITIC, _JUDGE, _MEAN),
            Comparison(_CRITIC, _JUDGE, _PRINCIPLES),
            Comparison(_JUDGE, _SCALAR, ACCURACY),
            Comparison(_JUDGE, _SCALAR, _MEAN),
            NotApplicable(
                "accuracy on RewardBench and CrossEval, and reasoning that is corrected after a critique",
                "language models that judge texts and reason in words",
            ),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="Answers have three qualities, of which the query decides which one counts, and a teacher whose "
    "critiques name the length in half of the cases. Of 192 pairs of own answers the labels are known. "
    "What was found, in interquartile means over ten seeds: of two new answers Critic-RM prefers the "
    "better one in 82.2% of the cases and a scalar reward model in 72.2%; by the mean of four critiques "
    "86.6%. Its critiques name what counts in 69%, those without the filter in 59%. What speaks against "
    "it: first, learning critiques is not shown to help. A reward head on critiques of the initial model, "
    "none of which is learned, has 79.0% and by the mean of four 79.8% (both undecided; on tuning seeds "
    "it was ahead with 0.874). Second, the filter is not shown to raise the accuracy with one critique "
    "(without it 77.5%, undecided; on tuning seeds it was behind), but it does with four. Third, the "
    "reward head adds little: a judge that is fine-tuned on the kept critiques, and whose reward is the "
    "score in its words, has 80.7% and by the mean of four 85.8% (undecided). Fourth, the judge that "
    "learns nothing has 79.6% by the mean of four, more than the scalar model. So the lead is that of "
    "critiques as such, and of their filter with several of them. That fewer labels are needed was not "
    "tried: all have 192 pairs. Tuning on seeds 1,100 to 1,102, by the accuracy: Critic-RM with learning "
    "rates of 3e-4, 1e-3 and 3e-3 has 0.812, 0.830 and 0.835; the scalar model 0.702, 0.718 and 0.667, "
    "and with 600 steps and 1e-3 0.743 (3e-4: 0.725), which it has here, while the others have 300; "
    "without the filter 0.872, 0.790 and 0.675; none learned 0.874 and 0.860 (3e-4 and 1e-3); the "
    "fine-tuned judge 0.819 and 0.818. More steps were tried for the scalar model alone. Of the paper the "
    "abstract and the beginning of the introduction could be read: when the weight falls and how "
    "critiques are kept are not checked with the text.",
    fidelity=(
        Fidelity("model", "a large language model", "a decoder of two layers and 64 units"),
        Fidelity(
            "critiques",
            "in words, generated by the language model itself, without further supervision",
            "a principle and a grade, eight sampled for each answer by the initial model",
        ),
        Fidelity(
            "filter",
            "critiques of high quality are kept",
            "a pair of critiques is kept if that of the better answer has the larger grade",
        ),
        Fidelity(
            "loss",
            "joint fine-tuning on generating critiques and predicting rewards",
            "the same: critiques alone for three tenths of the steps, then a weight that falls linearly to rewards "
            "alone",
        ),
        Fidelity("reward", "a scalar, with critiques as rationales", "a linear head on features after a critique"),
        Fidelity("at inference", "a critique and a reward", "rewards after one critique, and their mean after four"),
        Fidelity("labels", "preferences between texts", "true rewards of 192 pairs, a fifth of them tied"),
    ),
)

"""UnifiedReward-Think: a judge that reasons is cold-started, learns its right judgments, then the pairs it failed."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.trained_judges import (
    ACCURACY,
    AS_PRETRAINED,
    BENCH,
    DIRECT_PAIRS_ENV,
    MODEL,
    NUM_ROWS,
    with_judge,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.deepseek_grm_spct.measures import right_principles, vote_accuracy
from thespis.papers.unifiedreward_think.measures import likely_accuracy, likely_consistency
from thespis.papers.unifiedreward_think.method import LessonsThenGRPO

_NUM_UPDATES, _NUM_LESSON_UPDATES = 40, 24
_FEED = Episodes(max_steps=1, group_size=9, num_envs=324)


def _judge(**settings: Any) -> Any:
    """A judge in training, with the settings of all three stages but those that are named."""
    stages = {"feed": _FEED, "num_lesson_updates": _NUM_LESSON_UPDATES, "learning_rate": 3e-4}
    configured: dict[str, Any] = MODEL | stages | settings
    return with_judge(LessonsThenGRPO(**configured))


_STEPS = _NUM_UPDATES * _FEED.num_envs
_FULL, _REJECTION, _COLD = "all three stages", "cold start and rejection sampling", "cold start"
_ANY, _DIRECT = "GRPO on all pairs", "all stages without reasons"
_LIKELY, _VOTES, _PRINCIPLES = likely_accuracy(), vote_accuracy(), right_principles()

PAPER = Paper(
    id="unifiedreward-think",
    name="UnifiedReward-Think",
    citation=Citation(
        "Unified Multimodal Chain-of-Thought Reward Model through Reinforcement Fine-Tuning",
        "Wang et al.",
        2025,
        "arXiv:2505.03318",
    ),
    family="llm-critic",
    summary="A generative judge reasons before its verdict. A few lessons of a teacher give it the form (cold start); "
    "then it judges many pairs once. Judgments with a right verdict are learned by maximum likelihood (rejection "
    "sampling), and the pairs with a wrong one are those of which GRPO learns.",
    claim="Each stage makes verdicts better, and the judge that reasons is better than one that does not and is "
    "trained by GRPO as well.",
    parts=(
        "thespis.envs.text.judging:JudgedConversation",
        "thespis.papers.unifiedreward_think.method:LessonsThenGRPO",
        "thespis.evaluation.judge_report:report_on_judge",
        "thespis.learners.multi_agent.cast:Cast",
    ),
    command="thespis train thespis.papers.unifiedreward_think.method:LessonsThenGRPO --env text:derivation --steps "
    "12960 --model tiny --set num_layers=1 hidden_size=32 num_lesson_updates=24",
    miniature=BENCH.trial(
        arms=(
            Arm(_FULL, _judge(), steps=_STEPS),
            Arm(_REJECTION, _judge(num_lesson_updates=_NUM_UPDATES), steps=_STEPS),
            Arm(_ANY, _judge(pairs="all"), steps=_STEPS),
            Arm(_DIRECT, _judge(), env=DIRECT_PAIRS_ENV, steps=_STEPS),
            Arm(_COLD, with_judge(AS_PRETRAINED), steps=NUM_ROWS),
        ),
        headline=Comparison(_FULL, _REJECTION, ACCURACY),
        mechanisms=(
            Comparison(_FULL, _REJECTION, _LIKELY),
            Comparison(_FULL, _ANY, ACCURACY),
            Comparison(_FULL, _DIRECT, ACCURACY),
        ),
        context=(
            Comparison(_FULL, _ANY, _LIKELY),
            Comparison(_FULL, _DIRECT, _LIKELY),
            Comparison(_FULL, _COLD, ACCURACY),
            Comparison(_REJECTION, _COLD, ACCURACY),
            Comparison(_REJECTION, _COLD, _LIKELY),
            Comparison(_FULL, _REJECTION, _VOTES),
            Comparison(_FULL, _REJECTION, _PRINCIPLES),
            Comparison(_FULL, _ANY, _PRINCIPLES),
            Comparison(_FULL, _REJECTION, likely_consistency()),
            NotApplicable(
                "accuracy on VLRewardBench, GenAI-Bench and VideoGen-RewardBench",
                "vision-language models of 7B and images and videos that people have compared",
            ),
            NotApplicable(
                "direct answers that get better after reasoning was trained",
                "a judge that answers in both forms: this one learns one form",
            ),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="Answers have three grades, and the query decides which one counts. A judge says a principle and a "
    "grade for each answer, then its verdict; its teacher goes by length in three quarters of the cases "
    "(the bench). Each arm makes 40 updates of 36 pairs, which the cold-started judge judges once: 24 "
    "updates learn its right judgments, 16 are of GRPO, with eight new judgments on each of four pairs that "
    "it judged wrongly. What was found, over ten seeds: one sampled verdict is right in 91.3% of the pairs "
    "after all stages, in 83.2% after rejection sampling alone for as many updates (shown) and in 78.0% "
    "after the cold start. Of the most likely verdicts, which the authors use, 99.5%, 94.9% (shown, p = "
    "0.008) and 75.2% are right; of five votes 98.1%, 89.2% and 81.6%. The right principle is named in "
    "90.6%, 70.7% and 61.4% of the judgments. A judge without reasons has 70.0% after the same stages. Does "
    "it matter that GRPO has the pairs that were judged wrongly? With four pairs drawn at random from all "
    "36, and everything else the same, one verdict is right in 89.3% (the filter is better by 1.9 points: "
    "shown), but the most likely one in 99.3% (undecided). What speaks against it: first, most of the gain "
    "has nothing to do with the filter, and for most likely verdicts 19.8 of 24.3 points come with "
    "rejection sampling. Second, the filter has the labels of 36 pairs to find four, GRPO on all pairs "
    "needs those of four alone: at equal labels it was not compared. Third, rejection sampling learns "
    "judgments of the cold-started judge, as in the paper, many of whose right verdicts follow from a wrong "
    "principle where length does not count: what is learned is limited by that, and how much, the bench "
    "decides by its habit. Learning its own later judgments, which moves on, was not tried here; in the "
    "trial of SPCT that came near to GRPO (96.1% and 98.9%). On tuning seeds rejection sampling was as good "
    "in most likely verdicts (0.992 and 0.994): it differs much between seeds, from 87% to 100% here. "
    "Fourth, a model of this size hardly learns to judge at once, so that the lead of reasons says that "
    "steps are needed here. Fifth, all judges begin from one pretraining, so that intervals are those of "
    "the training and the pairs alone. The paper's drop after the cold start cannot be seen, as no judge "
    "was trained without reasons before it, and its second claim, direct answers that get better, was not "
    "tried. Tuning by one and by the most likely verdict on seeds 1,100 to 1,102: all stages with 12 "
    "updates of lessons and learning rates of 1e-3 and 3e-4, 0.699 and 0.737, 0.903 and 0.959; with 24 and "
    "3e-4 0.899 and 0.994. Rejection sampling with 1e-3 and 3e-4: 0.825 and 0.913, 0.843 and 0.992; both "
    "arms were also looked at with 60 updates (18 of lessons, 3e-4): 0.918 and 0.969, and 0.826 and 0.964. "
    "GRPO on all pairs with 12 and 1e-3 0.763 and 0.825, with 24 and 3e-4 0.898 and 0.986. The judge "
    "without reasons was not tuned and has the settings of all stages; on the same bench GRPO brought such "
    "a judge to 71.8% with five votes (SPCT). Figures of the paper are from tables on the authors' page, "
    "and of its text the abstract, summaries and the beginning of the method could be read.",
    fidelity=(
        Fidelity(
            "judge",
            "UnifiedReward of 7B, a vision-language model that was trained to judge without reasons before",
            "a decoder of two layers and 64 units",
        ),
        Fidelity(
            "cold start",
            "5,000 pairs of images judged by GPT-4o with reasons, three epochs; other tasks have none",
            "16,384 lessons of a teacher with a habit, of which those with a wrong verdict were rejected (the bench)",
        ),
        Fidelity(
            "rejection sampling",
            "the cold-started judge's judgments of a large fixed set of pairs, those with a right verdict; three "
            "epochs of maximum likelihood",
            "the same on pairs that are others in every update, once: 36 judgments for each of 24 updates",
        ),
        Fidelity(
            "pairs for GRPO",
            "those that the cold-started judge judged wrongly",
            "the same: four in each of 16 updates, out of 36 that it judges once",
        ),
        Fidelity("GRPO", "groups of eight at a temperature of 1, a penalty on KL of 0.04 (code)"),
        Fidelity("reference of the KL penalty", "the model that GRPO begins with"),
        Fidelity(
            "reward",
            "1 for the right verdict and 1 for the form",
            "1 for the right verdict; a judgment without one earns nothing",
        ),
        Fidelity(
            "learning rates",
            "2.5e-6 for lessons, cosine schedule, and 1e-6 for GRPO",
            "3e-4 for both, constant: the better one of two for three stages and for rejection sampling",
        ),
        Fidelity("reasons", "several dimensions in words, and scores of both by each", "a principle and two grades"),
        Fidelity(
            "verdicts at evaluation",
            "the most likely ones (code: no sampling)",
            "sampled ones, the bench's measure, in the headline; the most likely ones in a mechanism",
        ),
        Fidelity(
            "figures on VLRewardBench",
            "67.5 without reasons, 69.0 after GRPO without reasons; 66.9 after the cold start, 72.1 after rejection "
            "sampling and 73.8 after GRPO",
            "accuracies of another task, in the tables",
        ),
        Fidelity(
            "figures on GenAI-Bench, images and videos",
            "70.9 and 77.2 without reasons, 71.3 and 78.4 after GRPO without reasons; 68.6 and 75.3, 72.0 and 78.9, "
            "72.5 and 82.3 after the three stages",
            "accuracies of another task, in the tables",
        ),
    ),
)

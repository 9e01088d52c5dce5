"""RISE-Judge: a generative judge learns a teacher's judgments, then, by DPO, right from wrong ones of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.trained_judges import ACCURACY, AS_PRETRAINED, BENCH, MODEL, NUM_ROWS, with_judge
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import RPOLoss, SigmoidLoss
from thespis.papers.deepseek_grm_spct.measures import right_principles, vote_accuracy
from thespis.papers.general_ability_judge.method import HardPairDPO
from thespis.papers.on_policy_negative_gradient_study.parts import LikelihoodLoss
from thespis.papers.unifiedreward_think.measures import likely_accuracy, likely_consistency

_BETA, _NUM_UPDATES = 0.1, 40
_LOSS = RPOLoss(SigmoidLoss(_BETA), 1.0)


def _judge(**settings: Any) -> Any:
    """A judge in both stages, with all settings but those that are named."""
    configured: dict[str, Any] = {**MODEL, "learning_rate": 1e-4, "loss_type": _LOSS, **settings}
    return with_judge(HardPairDPO(**configured))


_LONGER_WARM_UP = dataclasses.replace(
    AS_PRETRAINED,
    num_pretrain_steps=2 * MODEL["num_pretrain_steps"],
    num_pretrain_dialogues=2 * MODEL["num_pretrain_dialogues"],
)
_STEPS = _NUM_UPDATES * HardPairDPO().feed.num_envs
_BOTH, _LONGER = "warm-up, then DPO", "warm-up for twice as long"
_SHORT = "a tenth of the warm-up, then DPO"
_LIKELIHOOD, _PLAIN, _ANY = "likelihood of right judgments", "DPO without likelihood", "DPO on all mixed pairs"
_FEWER = "an eighth of the lessons, then DPO"
_LIKELY, _VOTES, _PRINCIPLES = likely_accuracy(), vote_accuracy(), right_principles()

PAPER = Paper(
    id="general-ability-judge",
    name="General-ability judge",
    citation=Citation("Improve LLM-as-a-Judge Ability as a General Ability", "Yu et al.", 2025, "arXiv:2502.11689"),
    family="llm-critic",
    summary="A generative judge is trained in two stages. First it learns judgments of a teacher, without those whose "
    "verdict is wrong. Then it judges new pairs several times: of those that it gets wrong, a right and a "
    "wrong judgment of its own are a pair for DPO, with the likelihood of the right one beside it.",
    claim="Both stages together judge better than supervised learning alone or DPO alone, from a small part of the "
    "data that other judges learn from.",
    parts=(
        "thespis.envs.text.judging:JudgedConversation",
        "thespis.papers.general_ability_judge.method:HardPairDPO",
        "thespis.learners.language.preference_losses:RPOLoss",
        "thespis.evaluation.judge_report:report_on_judge",
    ),
    command="thespis train thespis.papers.general_ability_judge.method:HardPairDPO --env text:derivation --steps 6400 "
    "--model tiny --set num_layers=1 hidden_size=32 loss_type=RPOLoss",
    miniature=BENCH.trial(
        arms=(
            Arm(_BOTH, _judge(), steps=_STEPS),
            Arm(_LONGER, with_judge(_LONGER_WARM_UP), steps=NUM_ROWS),
            Arm(_SHORT, _judge(num_pretrain_steps=MODEL["num_pretrain_steps"] // 10), steps=_STEPS),
            Arm(_LIKELIHOOD, _judge(loss_type=LikelihoodLoss()), steps=_STEPS),
            Arm(_PLAIN, _judge(loss_type=_LOSS.loss), steps=_STEPS),
            Arm(_ANY, _judge(groups="mixed"), steps=_STEPS),
            Arm(_FEWER, _judge(num_pretrain_dialogues=MODEL["num_pretrain_dialogues"] // 8), steps=_STEPS),
        ),
        headline=Comparison(_BOTH, _LONGER, _LIKELY),
        mechanisms=(
            Comparison(_BOTH, _SHORT, _LIKELY),
            Comparison(_FEWER, _LONGER, _LIKELY),
            Comparison(_BOTH, _LIKELIHOOD, _LIKELY),
        ),
        context=(
            Comparison(_BOTH, _PLAIN, _LIKELY),
            Comparison(_BOTH, _ANY, _LIKELY),
            Comparison(_BOTH, _LONGER, ACCURACY),
            Comparison(_BOTH, _LIKELIHOOD, ACCURACY),
            Comparison(_BOTH, _PLAIN, ACCURACY),
            Comparison(_BOTH, _LONGER, _VOTES),
            Comparison(_BOTH, _LONGER, _PRINCIPLES),
            Comparison(_BOTH, _LONGER, likely_consistency()),
            NotApplicable("accuracy on RewardBench", "a model of 32B, and pairs of answers that people have compared"),
            NotApplicable(
                "general abilities are kept or get better", "benchmarks of chat, and a model that does more than judge"
            ),
            NotApplicable(
                "policies trained by DPO on its labels are better than on GPT-4o's",
                "the authors' own models and prompts",
            ),
        ),
        looks=plan_looks((10,)),
    ),
    remarks="Answers have three grades, and the query decides which one counts. A judge says a principle and a grade "
    "for each answer, then its verdict; its teacher goes by length in three quarters of the cases (the bench). "
    "What was found, over ten seeds: of the most likely verdicts 99.3% are right after both stages, 73.8% after"
    " supervised learning alone, twice as long and with twice as many lessons (shown); of single sampled "
    "verdicts 86.1% and 80.2%, of five votes 94.0% and 83.3%. After a tenth of the warm-up DPO comes to 63.2% "
    "of the most likely verdicts: many of that judge's texts are no judgments yet. With an eighth of the "
    "lessons, in as many steps, the judge is better after DPO than with all of them: 99.97% and 89.4% of single"
    " verdicts; why, was not looked into. What speaks against it, first of all: the preference counts for "
    "nothing. Maximum likelihood of the same right judgments, with the same learning rate and updates, comes to"
    " 99.3% and 85.6% as well (no difference in the most likely verdict, 0.5 points in single ones). So what "
    "helps is that the judge learns from its own judgments and from labels, not DPO; and supervised learning "
    "has neither here. Second, DPO without the likelihood is 1.3 points worse (shown) and one of ten seeds "
    "falls to 92.6%; pairs that are judged wrongly at first are worth 0.7 points over all on which right and "
    "wrong judgments were sampled (shown), but the labels of all pairs are needed to find them. Third, how "
    "large the lead is follows from the teacher's habit, which the bench has built in: a rival of the same "
    "lessons cannot do much better than its teacher. Fourth, the lead of a warm-up over a tenth of it says that"
    " a judge must be able to say judgments, no more. Fifth, all judges of an arm begin from one pretraining, "
    "so that intervals are those of the training and the pairs alone. Whether general abilities are kept, and "
    "what the labels are worth to a policy, was not tried. Tuning by the accuracy of the most likely verdict on"
    " seeds 1,100 and 1,101, with 0.71 and 0.72 after the warm-up and 0.74 and 0.73 after twice as long: both "
    "stages with learning rates of 1e-3, 3e-4, 1e-4 and 3e-5: 0.77 and 0.78, 0.95 and 0.92, 0.99 and 1.00, 0.81"
    " and 0.84; with 3e-4 and a beta of 0.3 instead of 0.1 0.95 and 0.89. The likelihood of right judgments "
    "with the same four rates: 0.91 and 0.84, 0.99 and 0.97, 0.99 and 1.00, 0.81 and 0.83. DPO without "
    "likelihood, 1e-4: 0.99 and 1.00; on all mixed pairs, 1e-4: 1.00 and 1.00. At the larger rate of 3e-4, at "
    "which single verdicts are better for both (0.87 and 0.89), likelihood was ahead. With 60 updates of 256 "
    "judgments and 3e-4 0.95 and 0.90. Of the paper the abstract, summaries and the page of the model could be "
    "read.",
    fidelity=(
        Fidelity("judge", "Qwen2.5 of 7B and 32B, base models", "a decoder of two layers and 64 units"),
        Fidelity(
            "warm-up",
            "20,000 step-by-step judgments of GPT-4o, without those that contradict the labels",
            "16,384 lessons of a teacher with a habit, without those with a wrong verdict (the bench)",
        ),
        Fidelity(
            "order of the answers",
            "changed in a part of the data, so that no place is preferred",
            "random, as both answers are drawn in the same way",
        ),
        Fidelity("pairs for DPO", "those that the judge after the warm-up does not judge rightly"),
        Fidelity(
            "chosen and rejected",
            "right and wrong judgments that this judge samples of the same pair",
            "the same, one of each, out of eight samples of which the first is wrong",
        ),
        Fidelity("loss", "DPO and the negative log-likelihood of the chosen judgment"),
        Fidelity(
            "data of the second stage",
            "20,000 pairs of judgments, passed over",
            "five pairs in each of 40 updates, from 20 new pairs of answers; the labels of all 800 are needed",
        ),
        Fidelity("DPO alone", "from the base model", "after a tenth of the warm-up: before it, no text is a judgment"),
    ),
)

"""SPCT: a judge that writes principles and critiques, trained by rule-based reinforcement learning, and its votes."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.trained_judges import (
    ACCURACY,
    AS_PRETRAINED,
    BENCH,
    DIRECT_TRAINED_ARM,
    MODEL,
    NUM_ROWS,
    TRAINED,
    with_judge,
)
from thespis.evidence.claims import MinimumScore
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.methods.language.online_dpo import ReferenceSampledDPO
from thespis.papers.deepseek_grm_spct.measures import order_consistency, right_principles, vote_accuracy, vote_gain
from thespis.papers.on_policy_negative_gradient_study.parts import LikelihoodLoss

_SPCT, _FINE_TUNED, _FURTHER = "SPCT", "rejective fine-tuning", "further rejective fine-tuning"
_DIRECT = DIRECT_TRAINED_ARM.name
_VOTES, _PRINCIPLES = vote_accuracy(), right_principles()
_RIVAL = dataclasses.replace(AS_PRETRAINED, temperature=0.5)
"""The judge after rejective fine-tuning, at the temperature at which it judges best."""
_MORE_LESSONS = ReferenceSampledDPO(
    **MODEL,
    feed=Episodes(max_steps=1, group_size=2, num_envs=NUM_ROWS),
    learning_rate=3e-4,
    loss_type=LikelihoodLoss(),
)
"""Maximum likelihood of the fine-tuned judge's own judgments that were right where another one was wrong."""

PAPER = Paper(
    id="deepseek-grm-spct",
    name="DeepSeek-GRM / SPCT",
    citation=Citation("Inference-Time Scaling for Generalist Reward Modeling", "Liu et al.", 2025, "arXiv:2504.02495"),
    family="llm-critic",
    summary="A generative reward model writes principles for a query, criticizes the answers by them and gives each a "
    "score. After rejective fine-tuning it is trained by reinforcement learning, with a reward by rule: whether the "
    "answer with the highest score is the preferred one. At inference several such judgments vote.",
    claim="Self-Principled Critique Tuning makes judgments better than rejective fine-tuning alone, and votes of "
    "several judgments are better than one.",
    parts=(
        "thespis.envs.text.judging:JudgedConversation",
        "thespis.papers.deepseek_grm_spct.envs:GradedAnswers",
        "thespis.evaluation.judge_report:report_on_judge",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.methods.language.grpo:GRPO",
    ),
    command="thespis train grpo --env text:verification --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            Arm(_SPCT, with_judge(TRAINED)),
            Arm(_FINE_TUNED, with_judge(_RIVAL), steps=NUM_ROWS),
            Arm(_FURTHER, with_judge(_MORE_LESSONS)),
            DIRECT_TRAINED_ARM,
        ),
        headline=Comparison(_SPCT, _FINE_TUNED, _VOTES),
        mechanisms=(
            Comparison(_SPCT, _FINE_TUNED, _PRINCIPLES),
            Comparison(_SPCT, _FURTHER, ACCURACY),
            Comparison(_SPCT, _DIRECT, _VOTES),
            MinimumScore(_SPCT, vote_gain(), 0.0),
        ),
        context=(
            Comparison(_SPCT, _FINE_TUNED, ACCURACY),
            Comparison(_SPCT, _FINE_TUNED, order_consistency()),
            Comparison(_SPCT, _FURTHER, _VOTES),
            Comparison(_FURTHER, _FINE_TUNED, _VOTES),
            Comparison(_SPCT, _DIRECT, ACCURACY),
            MinimumScore(_FINE_TUNED, vote_gain(), 0.0),
            NotApplicable(
                "scores on Reward Bench, PPE, RMB and ReaLMistake, and votes against larger models",
                "language models of 16B to 671B that judge texts",
            ),
        ),
    ),
    remarks="Answers have three grades, and the query decides which one counts. A judge says a principle and a "
    "grade for each of two answers, then its verdict; its lessons are judgments of a teacher who goes by "
    "length in half of the cases, and of three of them the first with a right verdict is learned. All "
    "judges begin from the same model, and the trained ones judge 6,400 pairs. What was found: five sampled "
    "judgments vote rightly on 99.6% of the pairs after SPCT and on 95.7% after rejective fine-tuning, and "
    "one judgment is right on 97.3% and 91.2%. SPCT names the right principle in 98.7% of its judgments, "
    "the fine-tuned judge in 81.8%, although only verdicts are rewarded. Votes add 2.2 points to one "
    "judgment of SPCT and 4.5 to one of the fine-tuned judge. A judge without reasons, trained in the same "
    "way, comes to 71.9%. What speaks against it, first of all: the lead is one of sampled judgments. The "
    "most likely judgment of the fine-tuned judge is right already, as its teacher is right more often than "
    "not: judging greedily it is right on 99.5% of the 200 pairs of the final evaluations, as SPCT is. At a "
    "temperature of 0.05, which was looked at only after the trial, it has 99.0% with one judgment and "
    "99.2% with five (tuning seeds): against that rival the lead would be less than half a point, or none. "
    "So what training does here can be had from a lower temperature, and a teacher whose habit prevails was "
    "not tried. The rival had two trials, temperatures of 1 and 0.5, of which 0.5 was the better (five "
    "votes, tuning seeds: 0.91 and 0.96); SPCT had two learning rates at a temperature of 1, 3e-4 (1.00) "
    "and 1e-3 (0.87). Further rejective fine-tuning on as many judgments of its own, from pairs of which "
    "one was right and the other wrong, is nearly as good as SPCT where five vote (99.2%, undecided, p = "
    "0.07), and worse where one judges (93.1%, shown); its learning rate had two trials as well (five "
    "votes: 0.99 with 3e-4, 0.97 with 1e-3), and so had that of the judge without reasons (0.73 with 3e-4, "
    "0.70 with 1e-3), which was compared at 3e-4. Before its training that judge has 0.71 from right "
    "verdicts alone: a model of this size hardly learns to judge at once, so that this lead says that the "
    "steps of the reasons are needed here, not that principles are. All judges begin from one pretraining, "
    "so that intervals are those of the training and of the pairs alone. Votes are counted by verdicts, not "
    "by the sum of grades, and there is no meta reward model. Of the paper the abstract and summaries could "
    "be read, and no code of the training was found.",
    fidelity=(
        Fidelity("judge", "Gemma-2 of 27B", "a decoder of two layers and 64 units"),
        Fidelity(
            "principles",
            "several in words for a query, each with a weight, generated by the judge itself",
            "one word of three: what counts for this query",
        ),
        Fidelity(
            "critiques",
            "words about each answer, and a score from 1 to 10",
            "a grade from 0 to 4 of each answer, and a verdict after them",
        ),
        Fidelity(
            "rejective fine-tuning",
            "own judgments without and with a hint at the better answer; wrong ones are rejected, and queries that are "
            "always judged rightly",
            "judgments of a teacher, of which the first of three with a right verdict is learned; easy queries remain",
        ),
        Fidelity(
            "reward",
            "1 if the best answer has the highest score, else -1; none for the format",
            "1 if the verdict is right, else 0; none for the format",
        ),
        Fidelity(
            "optimizer",
            "GRPO, with a larger penalty on KL in place of a reward for the format",
            "GRPO with groups of eight and a penalty on KL of 0.04",
        ),
        Fidelity("votes", "scores are added over k judgments", "the majority of five verdicts"),
        Fidelity(
            "meta reward model", "a scalar model that says which judgments may vote", "none: every judgment votes"
        ),
        Fidelity("answers", "up to several, of language models", "two, with random grades of three qualities"),
    ),
)

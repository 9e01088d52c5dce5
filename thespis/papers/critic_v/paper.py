"""Critic-V: a frozen reasoner, and a critic that learns by DPO from critiques which a rule has ranked."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.trained_critics import (
    ACCURACY,
    AS_PRETRAINED,
    BENCH,
    EXACT_ARM,
    MODEL,
    NUM_ROWS,
    NUM_TURNS,
    ONE_UPDATE,
    SUPERVISED_ARM,
    judgment_accuracy,
    repaired_share,
    with_critic,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn
from thespis.learners.language.policy_losses import TokenMean
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.learners.language.revisions import RejectionSampling
from thespis.methods.language.online_dpo import OnlineDPO, ReferenceSampledDPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.papers.critic_v.envs import RANKED_SUMS_ENV

_FEED = Episodes(max_steps=NUM_TURNS, group_size=4, num_envs=NUM_ROWS)
_RANKED = OnlineDPO(**MODEL, feed=_FEED, learning_rate=3e-4, loss_type=SigmoidLoss(0.5), pairs="extremes")
"""DPO on pairs of the own critiques of one answer: the best and the worst of four by the rule."""
_OFFLINE = ReferenceSampledDPO(**MODEL, feed=_FEED, learning_rate=3e-4, loss_type=SigmoidLoss(0.5), pairs="extremes")
"""The same on pairs of the supervised critic, which never calls a right answer wrong."""
_IMITATION = REINFORCE(
    **MODEL,
    feed=_FEED,
    learning_rate=1e-3,
    advantage_estimator=TrajectoryReturn(NoBaseline()),
    loss_reduction=TokenMean(),
    rollout_transform=RejectionSampling(),
)
"""Maximum likelihood of the own critiques that the rule calls right."""
_MOST_LIKELY = dataclasses.replace(AS_PRETRAINED, temperature=0.05)
_CRITIC_V, _SUPERVISED, _EXACT = "Critic-V", SUPERVISED_ARM.name, EXACT_ARM.name
_LIKELY, _IMITATED = "supervised critic, most likely critiques", "imitation of right critiques"
_FROZEN_PAIRS = "DPO on critiques of the supervised critic"

PAPER = Paper(
    id="critic-v",
    name="Critic-V",
    citation=Citation(
        "Critic-V: VLM Critics Help Catch VLM Errors in Multimodal Reasoning", "Zhang et al.", 2024, "arXiv:2411.18203"
    ),
    family="llm-critic",
    summary="One model reasons and another criticizes its answer in words, after which the first answers again. The "
    "critic learns by DPO: several critiques of an answer whose errors are known are ranked by a rule, by how well the "
    "errors they name agree with those.",
    claim="A critic that has learned from ranked critiques raises the accuracy of a reasoner that is not trained, "
    "further than it comes alone or by criticizing itself.",
    parts=(
        "thespis.envs.text.critique:CritiqueConversation",
        "thespis.papers.critic_v.envs:RANKED_SUMS",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.learners.language.frozen_model:FrozenModel",
        "thespis.methods.language.online_dpo:OnlineDPO",
    ),
    command="thespis train online-dpo --env text:verification --steps 20000 --model tiny --set num_layers=1 "
    "hidden_size=32 feed.group_size=4 pairs=extremes",
    miniature=BENCH.trial(
        arms=(
            Arm(_CRITIC_V, with_critic(_RANKED), env=RANKED_SUMS_ENV),
            SUPERVISED_ARM,
            Arm(_LIKELY, with_critic(_MOST_LIKELY), steps=ONE_UPDATE),
            Arm(_IMITATED, with_critic(_IMITATION), env=RANKED_SUMS_ENV),
            Arm(_FROZEN_PAIRS, with_critic(_OFFLINE), env=RANKED_SUMS_ENV),
            EXACT_ARM,
        ),
        headline=Comparison(_CRITIC_V, _SUPERVISED, ACCURACY),
        mechanisms=(
            Comparison(_CRITIC_V, _SUPERVISED, repaired_share()),
            Comparison(_CRITIC_V, _SUPERVISED, judgment_accuracy()),
        ),
        context=(
            Comparison(_CRITIC_V, _LIKELY, ACCURACY),
            Comparison(_CRITIC_V, _IMITATED, ACCURACY),
            Comparison(_CRITIC_V, _FROZEN_PAIRS, ACCURACY),
            Comparison(_FROZEN_PAIRS, _SUPERVISED, ACCURACY),
            Comparison(_FROZEN_PAIRS, _SUPERVISED, repaired_share()),
            Comparison(_EXACT, _CRITIC_V, ACCURACY),
            NotApplicable(
                "scores on eight benchmarks of questions about images",
                "vision-language models of 7B parameters, and a larger one that inserts errors and grades critiques",
            ),
        ),
    ),
    remarks="",
    fidelity=(
        Fidelity("reasoner", "frozen; what changes is its prompt, to which critiques are added"),
        Fidelity(
            "critic",
            "Qwen2-VL-7B",
            "a decoder of two layers and 64 units, as the reasoner, which has learned lenient critiques",
        ),
        Fidelity(
            "answers with errors",
            "GPT-4o replaces one to five details of right answers",
            "a demonstrator's answers of one step, two fifths of which are wrong",
        ),
        Fidelity(
            "critiques that are ranked",
            "of three vision-language models for each answer, collected once",
            "four of the critic itself for each answer, anew in each batch; of the supervised critic in another arm",
        ),
        Fidelity(
            "rule",
            "Jaccard index of the errors that are named and inserted, and a tenth of a grade by GPT-4o; a language "
            "model decides which are the same",
            "the index alone, which is 1 or 0 with one step: right for right answers, step 1 for wrong ones",
        ),
        Fidelity(
            "pairs",
            "a better and a worse critique of the same answer",
            "the best and the worst of four; no pair where all are alike",
        ),
        Fidelity("objective", "DPO; the reference is the critic before it", "the same, with a beta of 0.5"),
        Fidelity("data", "29,012 answers, once", "960 answers with four critiques each, once"),
        Fidelity(
            "critiques at test time",
            "the loop ends where the critic calls an answer correct (the code)",
            "the reasoner repeats an answer that is called right",
        ),
        Fidelity("rounds", "one critique by default; more are possible", "one critique"),
    ),
)

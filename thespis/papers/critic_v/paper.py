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
    remarks="A demonstrator's answer to a sum of one step modulo 2 is right in 59% of the cases; a critic reads "
    "it and says that it is right or that the step is wrong, and a frozen reasoner answers again. "
    "Lessons of the supervised critic are lenient: three fifths of them call the answer right, whatever "
    "it is. What was found: after its critiques 69.7% of the answers are right, after those of Critic-V "
    "85.4% and after exact ones 87.4%. Critic-V repairs 64% of the wrong answers and spoils none; 97% "
    "of its critiques are right judgments, of the supervised critic's 76%. What speaks against it: "
    "first, the pairs are critiques of the critic itself as it learns. With the same settings on pairs "
    "of the supervised critic, collected once as the authors collect theirs (though from three models), "
    "DPO ends below it: 62.4%, 46% to 74% by seed (whether it is worse: undecided). That critic never "
    "calls a right answer wrong, so that all pairs are about wrong answers, and what the pairs do not "
    "show is unlearned: the critic calls right answers wrong (up to 69% spoiled) or says what is no "
    "verdict, as under half of its critiques are right judgments. Answers of the authors' pairs, too, "
    "have errors all of them; whether their critic has false alarms cannot be read here. Second, "
    "nothing here needs DPO: maximum likelihood of the own critiques that the rule calls right is "
    "better (87.3%, as good as exact critiques; its learning rate of 1e-3 was not tuned), and so is PPO "
    "on the gain of the second answer (87.1% on the same seeds: the page of RL4F). Third, the lead over "
    "the supervised critic is as large as the leniency of its lessons, which was chosen for headroom, "
    "and its most likely critiques are of no use at all (59.1%). With one step a critique has no place "
    "to name, so that the rule is a judgment and its Jaccard index 0 or 1; a grade by a language model "
    "is left out. All seeds and arms are measured on the same thousand conversations, and the "
    "supervised critic is the same model for all seeds: the 52 standard deviations are those of the "
    "trainings alone. Tuning on seeds 1,100 to 1,102, by the accuracy after the critique: own pairs, "
    "with a learning rate of 3e-4 and a beta of 0.1 0.850, of 0.5 0.854; pairs of the supervised "
    "critic, 1e-3 and 0.1 0.476, 3e-4 and 0.5 0.653, 1e-4 and 0.5 0.577. Of the paper the abstract, the "
    "introduction and the authors' code could be read, not the tables.",
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

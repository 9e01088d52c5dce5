"""MPO: Meta Policy Optimization, with a rubric that an auditor revises while the policy learns from it."""

from __future__ import annotations

from typing import Any

from thespis.evidence.benches.exploitable_rubrics import (
    BASELINE_ARM,
    BENCH,
    COARSE,
    FALL,
    PPO,
    UNPENALIZED,
    UNPENALIZED_ARM,
    WORTH,
    rubric,
)
from thespis.evidence.comparisons import Comparison, NotApplicable, NoWorse
from thespis.evidence.measures import learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.rubric_reward import AuditedRubric, RubricReward
from thespis.papers.mpo.envs import RUBRIC_WRITING_ENV
from thespis.papers.mpo.feedback import ShuffledAudits

_SETTINGS: dict[str, Any] = {"checked_env": RUBRIC_WRITING_ENV, "weights": COARSE}
BY_HAND = rubric(sentences=0.2, topic=0.2, variety=0.2, length=0.2, warmth=0.2)
"""A rubric that is written by hand, by who knows what a text is worth."""
NUM_AUDITS = 9
"""Audits of MPO that have a later update: every ten of 100."""
_MPO, _FIXED, _HAND = "MPO", BASELINE_ARM.name, "rubric written by hand"
_EARLY, _SHUFFLED, _POOR = "as many audits at first", "auditor who knows nothing", "auditor who errs"
_FREE_MPO, _FREE_FIXED = "MPO without a penalty", UNPENALIZED_ARM.name
_FREE_EARLY = "as many audits at first without a penalty"
_METHOD = AuditedRubric(**_SETTINGS)
_EARLY_AUDITS = AuditedRubric(**_SETTINGS, audit_interval=1, max_audits=NUM_AUDITS)
_RUBRICS = {
    _MPO: _METHOD,
    _HAND: RubricReward(checked_env=RUBRIC_WRITING_ENV, weights=BY_HAND),
    _EARLY: _EARLY_AUDITS,
    _SHUFFLED: ShuffledAudits(**_SETTINGS),
    _POOR: AuditedRubric(**_SETTINGS, audit_noise=0.3),
}
_AGREEMENT = mean_metric("feedback_agreement")

PAPER = Paper(
    id="mpo",
    name="MPO (Meta Policy Optimization)",
    citation=AuditedRubric.citations[0],
    family="llm-critic",
    summary="The reward is that of a judge with a rubric. Every some updates a meta-level auditor looks at a few texts "
    "of the policy with the points that they were given, and rewrites the rubric, so that loopholes are closed "
    "which the policy has begun to use.",
    claim="On par with policies that are trained with rubrics written at length by hand, or better, and without reward "
    "hacking, in essays, summaries, ethical and mathematical reasoning.",
    parts=(
        "thespis.feedback.rubric_reward:AuditedRubric",
        "thespis.feedback.rubric_reward:RubricReward",
        "thespis.papers.mpo.envs:RubricWriting",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env thespis.papers.mpo.envs:RUBRIC_WRITING --feedback "
    "thespis.feedback.rubric_reward:AuditedRubric --model tiny --steps 6400 --set num_layers=1 hidden_size=32 "
    "num_pretrain_steps=1500 learning_rate=1e-3 feed.max_steps=1 "
    "feedback.checked_env=thespis.papers.mpo.envs:RUBRIC_WRITING "
    f"feedback.weights={','.join(map(str, COARSE))}",
    miniature=BENCH.trial(
        arms=(
            *(Arm(name, PPO, {"feedback": rubric_reward}) for name, rubric_reward in _RUBRICS.items()),
            BASELINE_ARM,
            Arm(_FREE_MPO, UNPENALIZED, {"feedback": _METHOD}),
            Arm(_FREE_EARLY, UNPENALIZED, {"feedback": _EARLY_AUDITS}),
            UNPENALIZED_ARM,
        ),
        first_seed=100,  # in the first trial the rubric written by hand had no points for warmth
        headline=Comparison(_MPO, _FIXED, WORTH),
        mechanisms=(
            Comparison(_FREE_MPO, _FREE_FIXED, WORTH),
            Comparison(_FREE_MPO, _FREE_EARLY, WORTH),
            Comparison(_MPO, _FIXED, _AGREEMENT),
            Comparison(_MPO, _SHUFFLED, WORTH),
            NoWorse(_MPO, _HAND, WORTH, margin=0.03),
        ),
        context=(
            Comparison(_MPO, _EARLY, WORTH),
            Comparison(_MPO, _POOR, WORTH),
            Comparison(_POOR, _FIXED, WORTH),
            Comparison(_FIXED, _SHUFFLED, WORTH),
            Comparison(_MPO, _FREE_MPO, WORTH),
            Comparison(_FREE_MPO, _FREE_EARLY, _AGREEMENT),
            Comparison(_FREE_MPO, _FREE_FIXED, FALL),
            Comparison(_MPO, _FIXED, learning_curve_auc()),
            Comparison(_MPO, _HAND, learning_curve_auc()),
            NotApplicable(
                "Elo of essays, ROUGE of summaries, accuracy in ethical and mathematical reasoning",
                "language models that judge by a rubric in words, and others that rewrite it",
            ),
        ),
    ),
    remarks="A decoder of one layer writes short texts about the sea, which are worth their grammar times the "
    "mean of topic, variety, length and warmth. The first rubric counts mentions of the topic alone, of "
    "which nouns without sentences have the most. The auditor is no language model: it knows the true "
    "worth of 16 texts at each audit, 144 of 6,400 texts in all, and refits the weights of nine checks to "
    "them. So what is tried is a rubric that follows a few true rewards, not whether a model notices by "
    "itself that a rubric is exploited. What was found, in interquartile means over ten seeds: with the "
    "best penalty on KL the worth is 0.954 with MPO and 0.743 with the fixed rubric; a rubric written by "
    "hand, from the formula of worth, has 0.951. Without a penalty the fixed rubric ends at nouns without "
    "sentences, worth 0; MPO has 0.937, though three seeds have 0.83 and 0.84. An auditor who mistakes "
    "texts for each other does harm: 0.286. What speaks against it: first, that the rubric is revised "
    "during training is not what helps here. As many audits in the first nine updates, after which the "
    "rubric stays, have 0.953 with the penalty and 0.947 without (both undecided), and without a penalty "
    "their rubric agrees better with worth. Second, the auditor has true rewards; with errors of 0.3, "
    "more than worth differs between texts, 0.856 remain, two seeds have 0.18 and 0.56, and the lead over "
    "the fixed rubric is undecided. This is the second trial. In the first, on seeds 0 to 9, the rubric "
    "written by hand had by mistake no points for warmth, and 0.837; MPO had 0.948, the fixed rubric "
    "0.770, an auditor who knows nothing 0.545 and one who errs 0.907, ahead of the fixed rubric (shown); "
    "audits at first 0.950, and 0.955 without a penalty, where MPO had 0.942. All else was declared as "
    "now. Tuning on seeds 1,100 to 1,102, by worth: MPO with a penalty on KL of 0.2 has 0.95 on each "
    "seed, and 0.95, 0.94 and 0.96 without one; the fixed rubric has 0.82, 0.80 and 0.83 with 0.2, 0.82, "
    "0.80 and 0.84 with 0.4, and 0 without one; as many audits at first have 0.94, 0.95 and 0.96 with "
    "0.2, and 0.80, 0.96 and 0.71 without, which is why a lead of MPO over them was expected. Interval "
    "and number of audited texts are near those of the authors and were not tuned. Of the paper the "
    "abstract and the authors' code with their figures could be read.",
    fidelity=(
        Fidelity(
            "judge",
            "a language model of 32B or 72B that gives an integer for each item of a rubric; the reward is their sum",
            "nine scripted checks of a text, weighted; the reward is their sum",
        ),
        Fidelity(
            "first rubric",
            "code: one item, the discourse of an essay, 0 to 5",
            "mentions of the topic, of which nouns without sentences have the most",
        ),
        Fidelity(
            "auditor",
            "a language model as large as the judge or larger, which reads texts, points and rubric, and has no truth",
            "regression: it has the true rewards of the texts that it looks at, exactly or with an error",
        ),
        Fidelity(
            "what an audit changes",
            "an analysis of each text, a rubric rewritten after it, and one merged from all of these: items, points "
            "and deductions are added and changed",
            "the weights of all nine checks: from 0, which adds a check, and below 0, which deducts",
        ),
        Fidelity(
            "audits",
            "code: 16 or 20 texts every 10 or 20 batches",
            "16 texts every 10 updates: 144 texts of 6,400 before the last audit",
        ),
        Fidelity("hand-written rubrics", "an expert's, and one of an automatic prompt writer", "one, from the truth"),
        Fidelity(
            "results of the authors",
            "Elo of essays, judge and auditor of 72B: MPO 1244, first rubric 1111, automatic 1050, untrained 889, "
            "expert's 706; the rubric that MPO ends with, fixed from the start, 1003 against 1064 of MPO",
            "the worth of texts, in the tables",
        ),
        Fidelity(
            "optimizer",
            "code: PPO, 3e-6, four epochs, a KL penalty of 0.02 in the reward",
            "PPO, 1e-3, two epochs, a KL penalty of 0.2 as a loss, or none",
        ),
        Fidelity("model", "Qwen2.5 of 1.5B", "a decoder of one layer and 32 units"),
    ),
)

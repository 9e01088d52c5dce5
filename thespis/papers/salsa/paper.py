"""SALSA: PPO whose penalty on KL is to the weight average of two fine-tuned models, against PPO with one of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.over_optimization import BENCH, HELPFULNESS, PENALIZED, REWARD_MODEL
from thespis.evidence.benches.steered_text import MODEL
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Paper
from thespis.learners.language.policy_losses import ReverseKL
from thespis.papers.salsa.envs import TEACHER_ENV
from thespis.papers.salsa.measures import distance_to, model_aspect
from thespis.papers.salsa.method import SALSA

_TEXTS: dict[str, Any] = {"expert_env": TEACHER_ENV, "num_demonstrations": 64}
_POLICY: dict[str, Any] = MODEL | {"feed": PENALIZED.feed, "learning_rate": 1e-3}
_METHOD = SALSA(**_POLICY, **_TEXTS, num_sft_updates=200, sft_learning_rate=1e-2, kl_penalty=ReverseKL(0.3))
_ONE_REFERENCE = dataclasses.replace(_METHOD, reference_weights=(1.0, 0.0))
_WEAK_PENALTY = dataclasses.replace(_ONE_REFERENCE, kl_penalty=ReverseKL(0.1))
_OTHER_REFERENCE = dataclasses.replace(_METHOD, reference_weights=(0.0, 1.0))
_FROM_THE_SOUP = dataclasses.replace(_METHOD, initial_weights=(0.5, 0.5))
_SALSA, _PPO, _FAR = "SALSA", "PPO", "PPO with a weaker penalty"
_OTHER, _INITIAL = "PPO with the other model as reference", "PPO from the soup"
MARGIN = 0.03
"""Helpfulness that counts as level: a quarter of what PPO gains on tuning seeds."""
_REFERENCE = model_aspect("helpfulness", "helpfulness of the reference", lambda states: states.reference)
_FROM_START = distance_to("the first fine-tuned model", lambda state: state.fine_tuned[0])

PAPER = Paper(
    id="salsa",
    name="SALSA",
    citation=SALSA.citations[0],
    family="preference-rlhf",
    summary="One pretrained model is fine-tuned twice, and the weights of the two models are averaged. PPO begins with "
    "one of them, and its penalty on KL is to the average, a model soup, in place of the model that it began with.",
    claim="Policies are better than those of PPO with one fine-tuned model as reference, as the soup lies in a region "
    "of larger reward and lets the policy go further from where it began.",
    parts=(
        "thespis.papers.salsa.method:SALSA",
        "thespis.language.merging:weighted_sum",
        "thespis.papers.rlaif_vs_strong_teacher_sft.method:TeacherFineTuning",
        "thespis.feedback.fitted_reward:ComparisonReward",
    ),
    command="thespis train thespis.papers.salsa.method:SALSA --env thespis.papers.rluf.envs:REACTIONS --feedback "
    "comparison-reward --model tiny --steps 6400 --set num_layers=1 hidden_size=32 num_pretrain_steps=1500 "
    "feed.max_steps=1 learning_rate=1e-3 kl_penalty=ReverseKL kl_penalty.coef=0.3 "
    "expert_env=thespis.papers.salsa.envs:TEACHER num_demonstrations=64 num_sft_updates=200 sft_learning_rate=1e-2 "
    "feedback.labelling_env=thespis.papers.rluf.envs:REACTIONS feedback.num_prompts=64",
    miniature=BENCH.trial(
        arms=(
            Arm(_SALSA, _METHOD, REWARD_MODEL),
            Arm(_PPO, _ONE_REFERENCE, REWARD_MODEL),
            Arm(_FAR, _WEAK_PENALTY, REWARD_MODEL),
            Arm(_OTHER, _OTHER_REFERENCE, REWARD_MODEL),
            Arm(_INITIAL, _FROM_THE_SOUP, REWARD_MODEL),
        ),
        headline=Comparison(_SALSA, _PPO, HELPFULNESS, margins=(MARGIN,)),
        mechanisms=(
            Comparison(_SALSA, _PPO, _REFERENCE),
            Comparison(_SALSA, _PPO, _FROM_START),
            Comparison(_SALSA, _FAR, HELPFULNESS),
            Comparison(_SALSA, _OTHER, HELPFULNESS, margins=(MARGIN,)),
        ),
        context=(
            Comparison(_INITIAL, _SALSA, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_INITIAL, _PPO, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_OTHER, _PPO, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_SALSA, _FAR, _FROM_START),
            NotApplicable(
                "win rates on MT-Bench, Arena-Hard and UltraFeedback", "models of billions of weights, and a judge"
            ),
        ),
        looks=plan_looks((10, 20)),
    ),
)

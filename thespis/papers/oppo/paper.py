"""OPPO: policies from offline preferences, through a context that is preferred and no reward."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Rollouts
from thespis.evidence.benches.segment_preferences import BENCH, RETURN, SAMPLED_RETURN, missed_goals
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.cpl.method import SegmentCPL, SegmentPIQL
from thespis.papers.oppo.measures import preference_accuracy
from thespis.papers.oppo.method import CITATION, OPPO, ReturnConditionedImitation, SegmentIQL
from thespis.papers.oppo.mixed_quality import MixedQualitySegments
from thespis.papers.regret_preference_model.method import SegmentLearner

NUM_UPDATES = 5
FEED = Rollouts(num_steps=12, num_envs=256)
LOWEST_RANDOM_PROB = 0.6
_SETTINGS: dict[str, Any] = {"feed": FEED, "teacher_value_weight": 0.0}
_OPPO = OPPO(learning_rate=3e-3, num_gradient_steps=60, **_SETTINGS)
_PIQL = SegmentPIQL(learning_rate=0.3, expectile=0.5, temperature=6.0, num_gradient_steps=40, **_SETTINGS)
_CLONING = SegmentCPL(learning_rate=0.1, is_contrastive=False, num_gradient_steps=60, **_SETTINGS)
_RETURN = ReturnConditionedImitation(learning_rate=3e-3, num_gradient_steps=60, **_SETTINGS)
_IQL = SegmentIQL(learning_rate=0.1, expectile=0.7, temperature=0.3, **_SETTINGS)
_PREFERRED, _UNLABELLED = "preferred cloning", "OPPO, encoder without preferences"
_SHARP = "P-IQL, temperature 3"
_TRUE_RETURN, _TRUE_IQL = "imitation given the true return", "IQL with true rewards"


def logged_arm(name: str, learner: SegmentLearner) -> Arm:
    """A learner on segments of mixed quality."""
    return Arm(name, MixedQualitySegments(learner, LOWEST_RANDOM_PROB))


PAPER = Paper(
    id="oppo",
    name="OPPO",
    citation=CITATION,
    family="preference-rlhf",
    summary="An encoder embeds trajectories in contexts, and a policy that is given the context imitates them. "
    "Preferences pull contexts of preferred trajectories to a learned optimal one, and push others away; the policy "
    "given the optimal context is what is played. There is no reward.",
    claim="Learns better policies from offline preferences than offline reinforcement learning with a reward that is "
    "learned from the same preferences, and even with the true reward.",
    parts=(
        "thespis.papers.oppo.method:OPPO",
        "thespis.papers.oppo.losses:triplet_margin_loss",
        "thespis.papers.oppo.mixed_quality:MixedQualitySegments",
        "thespis.papers.oppo.method:ReturnConditionedImitation",
        "thespis.papers.cpl.method:SegmentPIQL",
    ),
    command="thespis train thespis.papers.oppo.method:OPPO --env "
    "thespis.papers.regret_preference_model.envs:DeliveryGrid --steps 40960",
    miniature=BENCH.trial(
        steps=NUM_UPDATES * FEED.num_steps * FEED.num_envs,
        looks=plan_looks((15,)),
        arms=(
            logged_arm("OPPO", _OPPO),
            logged_arm("P-IQL", _PIQL),
            logged_arm(_SHARP, dataclasses.replace(_PIQL, temperature=3.0)),
            logged_arm(_PREFERRED, _CLONING),
            logged_arm(_UNLABELLED, dataclasses.replace(_OPPO, preference_weight=0.0)),
            logged_arm(_TRUE_RETURN, _RETURN),
            logged_arm(_TRUE_IQL, _IQL),
        ),
        headline=Comparison("OPPO", "P-IQL", SAMPLED_RETURN),
        mechanisms=(
            Comparison("OPPO", _UNLABELLED, SAMPLED_RETURN),
            Comparison("OPPO", _UNLABELLED, preference_accuracy()),
        ),
        context=(
            Comparison("OPPO", _SHARP, SAMPLED_RETURN),
            Comparison("OPPO", _PREFERRED, SAMPLED_RETURN),
            Comparison("OPPO", "P-IQL", RETURN),
            Comparison("OPPO", _PREFERRED, RETURN),
            Comparison("OPPO", "P-IQL", missed_goals()),
            Comparison("OPPO", "P-IQL", preference_accuracy()),
            Comparison("OPPO", _TRUE_RETURN, SAMPLED_RETURN),
            Comparison("OPPO", _TRUE_IQL, SAMPLED_RETURN),
            NotApplicable(
                "MuJoCo tasks of D4RL, and preferences of people in AntMaze and Robomimic", "data and labels"
            ),
        ),
    ),
    remarks="256 segments of up to twelve steps, from the beginning of an episode on, by behavior policies that act at "
    "random with a probability of 0.6 to 1 and else as is best; 128 labels by partial return. Tuned on seeds from "
    "1,100 on.",
    fidelity=(
        Fidelity("imitation", "mean squared error of actions, given the context of the whole window", "cross-entropy"),
        Fidelity(
            "triplet loss",
            "Euclidean distances, margin 1; the optimal context is fixed where the encoder learns, and contexts are "
            "fixed where it is fitted",
        ),
        Fidelity("length of contexts", "squared difference from 1, weight 0.1"),
        Fidelity("weight of the triplet loss", "0.1, or 0.25 in one task", "0.5"),
        Fidelity(
            "optimal context",
            "begins with a standard deviation of 2; AdamW, 1e-3 or 1e-2; a step after each of the encoder, with its "
            "new contexts",
            "begins with 0.1: with 2 it stays far from all contexts, and the policy has to extrapolate; AdamW, 1e-3, "
            "in the same step",
        ),
        Fidelity("dimensions of contexts", "8"),
        Fidelity(
            "optimizer",
            "AdamW, 1e-4, gradients clipped at 0.25 for encoder and policy apart; warm-up",
            "AdamW, 3e-3, clipped together; no warm-up",
        ),
        Fidelity(
            "encoder",
            "bidirectional transformer of states, actions and times; the sum of its outputs and a linear layer",
            "perceptron of each step, with its time, and one of their sum",
        ),
        Fidelity("policy", "causal transformer of 20 steps with the context at each", "perceptron of cell and context"),
        Fidelity(
            "data",
            "windows of 20 steps of D4RL, 100,000 updates on batches of 64 pairs",
            "128 pairs of segments from the beginning of episodes on; 300 updates on all of them",
        ),
        Fidelity(
            "labels",
            "in the scripted runs, every pair by the return of the next 200 steps, without noise; ties are left out",
            "every pair by the return of the segment, with noise per unit of reward",
        ),
        Fidelity(
            "rivals",
            "CQL, IQL and decision transformers with learned or true rewards",
            "P-IQL of CPL's authors, cloning of preferred segments, and with true rewards IQL and imitation "
            "given the return, all with tables or the same policy",
        ),
    ),
)

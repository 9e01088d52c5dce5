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
    "random with a probability of 0.6 to 1 and else as is best; 128 labels by partial return, learned from at "
    "once. A quarter to a third of the segments end at the goal, about as many at a hazard. The measure is the "
    "return of the policy as it was learned, which is drawn from, as in the trial of CPL. OPPO comes to 0.90, "
    "0.71 and 0.93 of what is possible in the three grids, P-IQL to 0.72, 0.48 and 0.69 (with a temperature of 3, "
    "better by this measure, to 0.77, 0.51 and 0.75), and cloning of the preferred segments to 0.72, 0.50 and "
    "0.62. It is not that OPPO knows better what is preferred: it puts 73% to 77% of new pairs in the right "
    "order, P-IQL 71% to 76%. What it saves is to get from rewards to a policy: errors of a reward that is "
    "learned from 128 sums seem to add up in values, as P-IQL does best with so high a temperature that it nearly "
    "clones. Without the triplet loss the encoder does not put segments in order (57% to 66%), and the optimal "
    "context is worth less. The second half of the claim does not hold here: with true rewards IQL is better in "
    "all three grids (0.97, 0.98 and 0.98), and so is imitation given the true return (0.95, 0.75 and 0.97). What "
    "speaks against the method: by the best actions instead of drawn ones, OPPO (0.71, 0.54 and 0.90) is behind "
    "cloning of the preferred segments (0.79, 0.68 and 0.84), and ahead of P-IQL in two grids only. This measure "
    "says little of preferences, though: as behavior policies are best or random, the most frequent action is the "
    "best one in most cells, and cloning of all segments, without any label, has the best actions of all (0.93, "
    "0.88 and 0.98 on ten tuning seeds, and 0.44, 0.22 and 0.32 where they are drawn). Where the most frequent "
    "action is wrong, as nine of ten segments are on the way to another cell than the goal, the lead is small: on "
    "four or five tuning seeds, with the settings of the trial, OPPO had 0.50 by drawn actions and 0.18 by the "
    "best ones, P-IQL 0.46 and 0.27 (the best of six settings), cloning of the preferred segments 0.39 and 0.34, "
    "imitation given the true return 0.95 and 0.92. Where the optimal context begins matters: with first values "
    "as large as in the code of the authors it stays far from all contexts, and the policy has to extrapolate. "
    "With two dimensions OPPO then had 0.64 in place of 0.78; with eight this was tried on 64 pairs alone, with "
    "1,000 steps, after which it had 0.18 at most. Tuned on seeds from 1,100 on, two to six of them in one to "
    "three grids, in 38 trials of OPPO and 85 of P-IQL, also with behavior policies of 0.25, 0.5 and 0.8 in place "
    "of 0.6. Weights of the triplet loss of 0.1 to 10, step sizes of 0.001 to 0.005 and 0.001 to 0.1 (optimal "
    "context), first values of 0.1, 0.3 and 2, dimensions of 2, 8 and 16 and 150 to 1,000 steps; P-IQL with "
    "discounts of 0.5 to 0.99, expectiles of 0.3 to 0.9, temperatures of 0.3 to 6, step sizes of 0.03 to 0.3 and "
    "60 to 1,000 steps. With 0.6, P-IQL had 0.66 at best by drawn actions (temperature 3), but then the best "
    "actions earn little; with a temperature of 6 it has 0.61 and 0.59, which is the rival. CPL, in four trials "
    "on the same data, had 0.66 at most. With 0.8 OPPO had 0.67 and P-IQL 0.40 at best; with 0.5, 0.87 (two "
    "grids) and 0.73. Of the paper only the abstract and a description by others could be read; the method is "
    "that of the code of the authors, with which the table below compares it.",
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

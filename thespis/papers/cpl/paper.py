"""CPL: policies from preferences by regret, without a reward and without reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.evidence.benches.segment_preferences import (
    BENCH,
    RETURN,
    SAMPLED_RETURN,
    ordered_actions,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.cpl.method import SegmentCPL, SegmentPIQL

NUM_UPDATES = 5
_CPL = SegmentCPL(learning_rate=0.1, alpha=0.1, bias=0.75)
_PIQL = SegmentPIQL(learning_rate=0.03, expectile=0.8, temperature=1.0, value_discount=0.5)

PAPER = Paper(
    id="cpl",
    name="CPL",
    citation=SegmentCPL.citations[0],
    family="preference-rlhf",
    summary="If preferences follow regret and the policy maximizes entropy too, its log-probabilities are advantages: "
    "so the policy itself is fitted to comparisons of segments, by a contrastive loss.",
    claim="CPL learns better policies from offline preferences by regret than supervised learning on preferred "
    "segments, and than learning a reward with implicit Q-learning (P-IQL).",
    parts=(
        "thespis.papers.cpl.method:SegmentCPL",
        "thespis.papers.cpl.method:SegmentPIQL",
        "thespis.papers.regret_preference_model.segments:SegmentPairs",
        "thespis.papers.regret_preference_model.envs:DeliveryGrid",
    ),
    command="thespis train thespis.papers.cpl.method:SegmentCPL --env "
    "thespis.papers.regret_preference_model.envs:DeliveryGrid --steps 40960",
    miniature=BENCH.trial(
        steps=NUM_UPDATES * _CPL.feed.num_steps * _CPL.feed.num_envs,
        arms=(
            Arm("CPL", _CPL),
            Arm("P-IQL", _PIQL),
            Arm("SFT", dataclasses.replace(_CPL, is_contrastive=False)),
            Arm("CPL without bias", dataclasses.replace(_CPL, bias=1.0)),
            Arm("P-IQL with a discount of 0.99", dataclasses.replace(_PIQL, expectile=0.5, value_discount=0.99)),
        ),
        headline=Comparison("CPL", "P-IQL", SAMPLED_RETURN),
        mechanisms=(
            Comparison("CPL", "SFT", SAMPLED_RETURN),
            Comparison("CPL", "CPL without bias", SAMPLED_RETURN),
            Comparison("CPL", "SFT", ordered_actions()),
        ),
        context=(
            Comparison("CPL", "P-IQL with a discount of 0.99", SAMPLED_RETURN),
            Comparison("P-IQL", "P-IQL with a discount of 0.99", SAMPLED_RETURN),
            Comparison("CPL", "P-IQL", RETURN),
            Comparison("CPL", "SFT", RETURN),
            Comparison("CPL", "P-IQL", ordered_actions()),
            NotApplicable("MetaWorld from states and images, and preferences of people in D4RL", "MuJoCo and labels"),
        ),
    ),
    remarks="512 labels by regret, of segments of eight steps with random actions; all methods have tables and 1,000 "
    "steps on all labels at once. The measure is the return of the policy as it was learned, which is drawn from: a "
    "table of best actions can run in circles, and its return is context. This was chosen after looks, in some of "
    "which P-IQL had the better best actions. Trials on ten seeds from 1,100 on, by that return in the three grids. "
    "CPL, with alpha of 0.1, 0.3 and 1, bias of 0.5, 0.75 and 1 and learning rates of 0.03 and 0.1, and four others: "
    "0.95, 0.95 and 0.91 at best (0.1, 0.75, 0.1), 0.79, 0.80 and 0.79 without bias. P-IQL, with expectiles of 0.5, "
    "0.7 and 0.9, temperatures of 0.1, 1/3 and 1 and the same rates: 0.69, 0.47 and 0.73 at best with a discount of "
    "0.99 (0.5, 1, 0.03); with shorter ones, in 19 more trials, 0.94, 0.90 and 0.89 at best (discount 0.5, expectile "
    "0.8), which is the rival. SFT 0.37, 0.24 and 0.26 with any rate. These trials had a tenth of the steps for "
    "cloning, in place of a fifth. The lead over a P-IQL that is tuned so is clear in one grid, small in another and "
    "none in the third; over P-IQL with the discount of the task it is 0.13 to 0.51. Both order as many pairs of "
    "actions right (P-IQL even 1% more). With a longer discount P-IQL adds up a reward that, learned from labels by "
    "regret, is an advantage already, and its errors add up too. The conservative bias is a part of the method that "
    "matters: without it CPL is behind the tuned P-IQL. But it makes policies more certain, not more right: without "
    "it more pairs of actions are in order, and the best actions earn as much. What speaks against it: the tuned "
    "P-IQL had more trials than CPL (44 and 22), and its discount is not that of the authors; steps after an end "
    "have a reward in P-IQL, without which it came to 0.58, 0.60 and 0.73 from twice as many labels; there is no "
    "function approximation, no suboptimal policy in the data and no noise in the dynamics; the best actions of all "
    "tables earn a third less than drawn ones, as some seeds run in circles, and by them CPL and P-IQL are equal in "
    "one grid.",
    fidelity=(
        Fidelity(
            "loss",
            "cross-entropy of the sums of alpha times log-probabilities, of which those of the other segment count "
            "lambda times; discount 1",
        ),
        Fidelity("pretraining", "behavior cloning of all segments, for a third of the steps or more", "for a fifth"),
        Fidelity("optimizer", "Adam, begun anew after pretraining, with a warm-up", "Adam, not begun anew"),
        Fidelity("SFT", "the same pretraining, then cloning of preferred segments"),
        Fidelity(
            "P-IQL",
            "reward by partial return, learned in the first half, with implicit Q-learning on the same segments; "
            "weights of at most 100",
            "the same, with the reward learned all the time; tables, so no target or twin networks",
        ),
        Fidelity(
            "settings of P-IQL",
            "expectile 0.7, temperature 1/3, discount 0.99",
            "0.8, 1 and 0.5; and 0.5, 1 and 0.99: those of the authors did worse",
        ),
        Fidelity("settings of CPL", "alpha 0.1, lambda 0.5", "0.1 and 0.75"),
        Fidelity(
            "labels", "by the regret of an oracle, without noise", "by exact regret, with noise per unit of reward"
        ),
        Fidelity(
            "end of episodes",
            "none: all segments have 64 steps",
            "steps after an end count nothing in CPL, and have a learned reward in P-IQL, so that a constant in all "
            "rewards changes nothing",
        ),
        Fidelity("segments", "64 steps, of a suboptimal policy with noise", "8 steps, with random actions"),
        Fidelity("number of comparisons", "2,500 dense ones or 10,000", "512"),
        Fidelity("policy", "a network, Gaussian with fixed variance", "a table of logits"),
        Fidelity("evaluation", "success rate, best over training", "exact return at the end of training"),
    ),
)

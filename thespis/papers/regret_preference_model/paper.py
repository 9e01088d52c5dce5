"""Regret preference model: rewards from preferences that follow regret."""

from __future__ import annotations

import dataclasses

from thespis.evidence.benches.segment_preferences import (
    BASELINE,
    BENCH,
    PARTIAL_RETURN_ARM,
    PLANNER,
    RETURN,
    missed_goals,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.regret_preference_model.method import PreferencePlanner

_OTHER_TEACHER = dataclasses.replace(PLANNER, teacher_value_weight=0.0)

PAPER = Paper(
    id="regret-preference-model",
    name="Regret preference model",
    citation=PreferencePlanner.citations[0],
    family="preference-rlhf",
    summary="People are taken to prefer, of two segments, the one that loses less of what was possible, not the one "
    "that earns more; a reward is learned under this model, whose optimal values are part of the likelihood.",
    claim="With finite data, each model with its own preferences, regret leads to better policies than partial "
    "return; it is identifiable where partial return is not, and describes people's preferences better.",
    parts=(
        "thespis.papers.regret_preference_model.method:PreferencePlanner",
        "thespis.papers.regret_preference_model.segments:SegmentPairs",
        "thespis.papers.regret_preference_model.planning:optimal_values",
        "thespis.papers.regret_preference_model.envs:DeliveryGrid",
        "thespis.feedback.labellers:RegretTeacher",
    ),
    command="thespis train thespis.papers.regret_preference_model.method:PreferencePlanner --env "
    "thespis.papers.regret_preference_model.envs:DeliveryGrid --steps 7680",
    miniature=BENCH.trial(
        arms=(
            Arm("regret", PLANNER),
            Arm("partial return of its own labels", dataclasses.replace(BASELINE, teacher_value_weight=0.0)),
            PARTIAL_RETURN_ARM,
            Arm("regret of labels by return", _OTHER_TEACHER),
        ),
        headline=Comparison("regret", "partial return of its own labels", RETURN),
        mechanisms=(
            Comparison("regret", "partial return", RETURN),
            Comparison("regret", "partial return of its own labels", missed_goals()),
        ),
        context=(
            Comparison("regret of labels by return", "partial return of its own labels", RETURN),
            Comparison("partial return", "partial return of its own labels", RETURN),
            Comparison("regret", "partial return", missed_goals()),
            NotApplicable("regret predicts people's preferences better", "1,812 preferences of people"),
        ),
    ),
    remarks="Grids of six by six cells with the rewards of the paper's delivery domain, and 64 labels of segments of "
    "three steps. Both models have the same learner, learning rate and number of steps, and plan with the known "
    "dynamics. Learning rates of 0.1, 1, 3 and 10 were tried for each, on seeds from 1,100 on: from 1 on it makes no "
    "difference. With regret all seeds but a few reach the goal from everywhere. Partial return ends in circles, or "
    "at a hazard, in a third to half of the seeds, and its interquartile means hide this: nearly every policy is "
    "either good or useless. Nearly all segments have three steps, so that a constant in the reward of every step "
    "changes hardly any comparison of partial returns, but changes whether it is best to end an episode; the optimal "
    "values in the likelihood of regret say it. They help even where labels follow partial return, so a part of the "
    "lead is one of the learner and not of what labels say; and labels by regret that are taken for partial return "
    "lead to worse policies than those by partial return. What speaks against it: the learner of regret plans with "
    "the known dynamics in its loss, which is more than its rival is told; rewards are linear in five known "
    "features; the grids, of which six were looked at, were chosen so that partial return from labels by regret is "
    "half-way, and in other grids it comes to 0.19 to 0.63. With 128 labels partial return of its own labels came to "
    "1.00 in one grid. Whether people compare by regret was not tried.",
    fidelity=(
        Fidelity(
            "regret of a segment",
            "optimal value of its first state less its partial return and the optimal value of its last state "
            "(deterministic transitions)",
        ),
        Fidelity("labels", "drawn with the probability of the logistic function of the difference, per unit of reward"),
        Fidelity("segments", "three steps from any state on, with random actions; steps after the end earn nothing"),
        Fidelity("reward", "linear in the features of a step: kinds of cells", "the same, without coins"),
        Fidelity(
            "optimal value of the learned reward",
            "soft maximum, temperature 0.001, over successor features of policies that are best for other rewards",
            "value iteration over 25 steps, with the gradient through it: no policies have to be drawn",
        ),
        Fidelity("discount", "0.999", "0.99 in planning, over 25 steps; episodes end after 50"),
        Fidelity("optimizer", "Adam, on all pairs at once; the weights with the least loss", "the last weights"),
        Fidelity(
            "order of pairs",
            "each pair is also learned with both segments exchanged",
            "not needed: the loss is the same",
        ),
        Fidelity("policy", "best for the learned reward; equal actions are equally likely", "the first of equal ones"),
        Fidelity(
            "score",
            "mean return under the true reward, 0 for random and 1 for optimal play",
            "the same, exact, within 50 steps",
        ),
        Fidelity(
            "grids",
            "100 random ones of 5 to 15 cells a side, with rewards drawn too",
            "three of six by six cells, with these rewards",
        ),
        Fidelity("number of preferences", "3 to 3,000", "64"),
    ),
)

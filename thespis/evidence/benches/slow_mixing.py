"""Bench of the average-reward criterion where rewards are sparse and the past is slow to be forgotten.

A goal in the far corner of a grid of eight by eight cells, which random play reaches in three episodes of ten, and a
random walk of 21 positions, which a policy can only bias. Networks and rollouts are small, and a seed trains in some
seconds.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float

from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, constant, final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.papers.mac.envs import SlowWalk
from thespis.papers.mac.method import MAC, FixedTrajectoryLength

LONG_WALK = SlowWalk(num_positions=21)
GRID_ENV = "thespis.papers.mac.envs:LARGE_GOAL_GRID"
WALK_ENV = f"{__name__}:LONG_WALK"
STEPS = 3_200

BASELINE = MAC(
    actor_learning_rate=0.03,
    critic_learning_rate=0.03,
    trajectory_length=FixedTrajectoryLength(4),
    optimizer="sgd",
)
"""Average-reward actor-critic: stochastic gradient descent on the mean over four steps."""
_COPY = dataclasses.replace(BASELINE, hidden_sizes=(64, 65))
"""One unit more, and so other initial weights."""
_SMALL_STEPS = dataclasses.replace(BASELINE, actor_learning_rate=0.0003, critic_learning_rate=0.0003)


def relaxation_time() -> Measure:
    """Steps in which the influence of the walk's start falls to 1/e, if both actions are equally likely."""
    return constant("relaxation time under random play", LONG_WALK.relaxation_time(0.5), larger_is_better=False)


def unrewarded_share() -> Measure:
    """Share of the episodes of random play that have no reward."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        final = run.final_scores
        assert final is not None, "a trial evaluates every run"
        return np.full(len(run.config["seeds"]), np.mean(np.asarray(final["random"]["scores"]) == 0.0))

    return Measure("share of random episodes without a reward", shares, False, bounds=(0.0, 1.0))


BENCH = Bench(
    name="slow-mixing",
    version=1,
    summary="A grid with a distant goal and a long random walk: average-reward actor-critics without parallel "
    "environments.",
    envs=(GRID_ENV, WALK_ENV),
    steps=STEPS,
    arms=(
        Arm("actor-critic", BASELINE),
        Arm("actor-critic again", _COPY),
        Arm("actor-critic, small steps", _SMALL_STEPS),
        Arm("actor-critic, four times as long", BASELINE, steps=4 * STEPS),
    ),
    positive=Comparison("actor-critic", "actor-critic, small steps", learning_curve_auc()),
    negative=Comparison("actor-critic", "actor-critic again", learning_curve_auc()),
    headroom=Headroom("actor-critic", "actor-critic, four times as long", final_return("sampled")),
    symptoms=(
        Symptom("actor-critic", unrewarded_share(), 0.5, envs=(GRID_ENV,)),
        Symptom("actor-critic", relaxation_time(), 64.0, envs=(WALK_ENV,)),
    ),
    tuning="By the sampled return after 4,000 steps on seeds 1,100 to 1,109 of grid and walk. Actor-critic, learning "
    "rates of 0.03 and 0.1: 140 and 67, 55 and 59; of 0.01 on the grid: 5. MAC with a running mean of rewards, "
    "learning rates of 0.01 and 0.03: 69 and 68, 22 and 28. On a grid of five cells a side after 8,000 steps the "
    "actor-critic with 0.03 had 190 of 193, and MAC with 0.003, 0.01 and 0.03 had 59, 183 and 126. After 8,000 steps "
    "of grid and walk the actor-critic with 0.03 had 145 and 71, and MAC with 0.01 had 108 on the grid. A walk of 11 "
    "positions had a ceiling: 83 after 8,000 steps. The budget was shortened for headroom. The copy has one unit more "
    "in its second layer: with learning rates that differ by a ten-thousandth and a hundredth, 2% and 65% of the "
    "scores of the controls differed.",
    looks=plan_looks((20, 40)),
)

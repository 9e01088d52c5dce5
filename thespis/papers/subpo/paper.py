"""Submodular reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.evidence.benches.coverage import (
    ADDITIVE_ENVS,
    BASELINE,
    BENCH,
    OBSERVED_ENVS,
    PATH_VALUE,
    TUNED_SUBPO,
    double_counting,
)
from thespis.evidence.claims import Superiority
from thespis.evidence.comparisons import Comparison
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.papers.subpo.envs import Coverage
from thespis.papers.subpo.method import GainSoFar, SubPO

GREEDY_VALUE = 7.4
"""Mean value of a greedy planner's paths on the hills: it takes the step with the largest gain.

It breaks ties at random. A test computes it (tests/papers/test_coverage.py).
"""
_LARGE_SUBPO = SubPO()
LARGE_COVERAGE = Coverage(grid_size=30, horizon=80, density="even")
LARGE_COVERAGE_ADDITIVE = Coverage(grid_size=30, horizon=80, density="even", additive_reward=True)

PAPER = Paper(
    id="subpo",
    name="SubPO",
    citation=SubPO.citations[0],
    family="on-policy-ac",
    summary="Policy gradient for rewards that depend on the past: the value of a path is a submodular set function of "
    "its states, and every action is weighted by the marginal gains that follow it.",
    claim="Greedily maximizing marginal gains handles rewards with diminishing returns, with constant-factor "
    "approximations under assumptions, and serves coverage, experiment design and informative path planning.",
    parts=(
        "thespis.papers.subpo.method:SubPO",
        "thespis.papers.subpo.method:GainToGo",
        "thespis.papers.subpo.method:GainSoFar",
        "thespis.papers.subpo.envs:Coverage",
        "thespis.papers.subpo.envs:WeightedCoverage",
        "thespis.papers.subpo.envs:InformationGain",
    ),
    command="thespis train subpo --env thespis.papers.subpo.envs:Coverage --envs 50",
    miniature=BENCH.trial(
        arms=(
            Arm("SubPO", TUNED_SUBPO),
            Arm("additive", BASELINE, env=ADDITIVE_ENVS),
            Arm("SubPO, coverage observed", TUNED_SUBPO, env=OBSERVED_ENVS),
            Arm("gains so far", dataclasses.replace(TUNED_SUBPO, advantage_estimator=GainSoFar())),
        ),
        headline=Comparison("SubPO", "additive", PATH_VALUE),
        mechanisms=(Comparison("SubPO", "additive", double_counting()),),
        context=(
            Comparison("SubPO", "SubPO, coverage observed", PATH_VALUE),
            Comparison("SubPO", "gains so far", PATH_VALUE),
        ),
    ),
    remarks="The abstract and the authors' code were read. All arms are scored by the value of the whole greedy path, "
    "whatever they learned from. The additive rival is the authors' own: the same policy gradient with the value of "
    "every position alone, as if nothing had been visited before. Grids have 8 and 5 cells a side instead of 30, "
    "episodes 20 and 16 steps instead of 40 or 80, updates 50 episodes instead of 500, and one move in ten is replaced "
    "by a random one. The first environment has two hills of weight at some distance from the start, the second "
    "measures a Gaussian field of 25 cells, which varies most there. On the hills a greedy planner, which always takes "
    "the step with the largest gain, reaches 7.4. A policy that observes what is covered, and the credit of the "
    "released code for grids, the gains so far, are context. Experiment design, robots and races are not tested. An "
    "earlier trial by protocol 1, with a learning rate of 1e-2 for all arms, had ten seeds, in which all five claims "
    "held.",
    fidelity=(
        Fidelity(
            "credit of an action, grids",
            "value of the path so far, without a baseline; with marginal gains commented out",
            "gains from the action on, as in the paper's derivation, minus a learned value; theirs: gains so far",
        ),
        Fidelity("network", "64 and 32 units with tanh"),
        Fidelity("observations", "cell number and time", "row, column and time, one-hot"),
        Fidelity("additive rival", "the value of every position alone, summed; the same network and step", "the same"),
        Fidelity("objective on grids", "weight of all cells covered, with densities of two hills among others"),
        Fidelity(
            "objective in a field",
            "mutual information of a Gaussian field with a Matern kernel",
            "squared exponential kernel",
        ),
        Fidelity("optimizer", "Adam, 1e-3 on the two hills, no clipping", "Adam, tuned on the bench, no clipping"),
        Fidelity(
            "entropy bonus", "falls with the inverse of the update; its coefficient is 0 on the two hills", "none"
        ),
        Fidelity("scale", "credits divided by twice the horizon", "not divided: Adam does not depend on it"),
        Fidelity(
            "updates", "140 of 500 episodes of 40 steps", "100 of 50 episodes of 20 steps, 125 of 16 in the field"
        ),
        Fidelity(
            "grid", "30 by 30 cells, no slipping on the two hills", "8 by 8 and 5 by 5, one move in ten is random"
        ),
    ),
    full=Trial(
        arms=(
            Arm("SubPO", _LARGE_SUBPO),
            Arm("additive surrogate", _LARGE_SUBPO, env="thespis.papers.subpo.paper:LARGE_COVERAGE_ADDITIVE"),
        ),
        envs=("thespis.papers.subpo.paper:LARGE_COVERAGE",),
        steps=50 * 500 * 80,
        claims=(Superiority("SubPO", "additive surrogate", PATH_VALUE),),
    ),
)

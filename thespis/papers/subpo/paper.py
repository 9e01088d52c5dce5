"""Submodular reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.data.feeds import Episodes
from thespis.evidence.claims import MinimumScore, NonInferiority, Superiority
from thespis.evidence.measures import modified_env_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.papers.subpo.envs import Coverage
from thespis.papers.subpo.method import GainSoFar, SubPO

_ENV_PREFIX = "thespis.papers.subpo.envs:"
_SUBMODULAR_RETURN = dataclasses.replace(
    modified_env_return(additive_reward=False), name="greedy return with additive = False"
)
_GREEDY_RETURN = 7.4
"""Mean return of a greedy planner, which takes the step with the largest gain and breaks ties at random.

A test computes it (tests/papers/test_coverage.py).
"""
_SMALL_SUBPO = SubPO(feed=Episodes(num_envs=50))
_PAST_GAINS_SUBPO = dataclasses.replace(_SMALL_SUBPO, advantage_estimator=GainSoFar())
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
    miniature=Trial(
        arms=(
            Arm("SubPO", _SMALL_SUBPO),
            Arm("SubPO, history told", _SMALL_SUBPO, env=_ENV_PREFIX + "OBSERVED_COVERAGE"),
            Arm("additive surrogate", _SMALL_SUBPO, env=_ENV_PREFIX + "ADDITIVE_COVERAGE"),
            Arm("gains so far", _PAST_GAINS_SUBPO),
            Arm("SubPO in a field", _SMALL_SUBPO, env=_ENV_PREFIX + "INFORMATION_COVERAGE"),
            Arm("additive in a field", _SMALL_SUBPO, env=_ENV_PREFIX + "ADDITIVE_INFORMATION_COVERAGE"),
        ),
        envs=(_ENV_PREFIX + "SLIPPERY_COVERAGE",),
        steps=100_000,
        claims=(
            Superiority("SubPO", "additive surrogate", _SUBMODULAR_RETURN),
            Superiority("SubPO in a field", "additive in a field", _SUBMODULAR_RETURN),
            MinimumScore("SubPO", _SUBMODULAR_RETURN, _GREEDY_RETURN),
            NonInferiority("SubPO", "SubPO, history told", _SUBMODULAR_RETURN, margin=0.5),
            Superiority("SubPO", "gains so far", _SUBMODULAR_RETURN),
        ),
    ),
    remarks="The abstract and the authors' code were read. Grids have 8 cells a side instead of 30, episodes 20 steps "
    "instead of 40 or 80, updates 50 episodes instead of 500, and one move in ten is replaced by a random one. Two "
    "hills of weight lie at some distance from the start; the arms in a field measure a Gaussian field of 25 cells, "
    "which varies most there. All arms are scored by the value of the whole path. The bound of 7.4 is what a greedy "
    "planner reaches, which always takes the step with the largest gain. That a policy of position and time alone does "
    "as well as one that observes what is covered (the arm history told) is not a statement of the abstract; the "
    "margin is a tenth of the difference between random steps and all that can be covered. The released code for grids "
    "weights actions by the gains so far, not by those to come: that is the arm gains so far. The budget was chosen "
    "after looking at two seeds with 200,000 steps, in which the first three arms had learned. Experiment design, "
    "robots and races are not tested. All claims hold in ten seeds.",
    full=Trial(
        arms=(
            Arm("SubPO", _LARGE_SUBPO),
            Arm("additive surrogate", _LARGE_SUBPO, env="thespis.papers.subpo.paper:LARGE_COVERAGE_ADDITIVE"),
        ),
        envs=("thespis.papers.subpo.paper:LARGE_COVERAGE",),
        steps=50 * 500 * 80,
        claims=(Superiority("SubPO", "additive surrogate", _SUBMODULAR_RETURN),),
    ),
)

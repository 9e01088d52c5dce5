"""Submodular reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.core.feeds import Episodes
from thespis.envs.compiled.coverage import Coverage
from thespis.evidence.claims import AtLeast, Better, NoWorse
from thespis.evidence.measures import elsewhere
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.gains import SoFar
from thespis.methods.online.subpo import SubPO

_WORLD = "thespis.envs.compiled.coverage:"
_WORTH = elsewhere(additive=False)
_GREEDY = 7.4
"""What a planner covers that takes the step which adds most, ties by chance (tests/envs/test_coverage.py)."""
_SMALL = SubPO(feed=Episodes(envs=50))
_SO_FAR = dataclasses.replace(_SMALL, gains=SoFar())
_LARGE = SubPO()
LARGE = Coverage(side=30, horizon=80, density="even")
LARGE_ADDITIVE = Coverage(side=30, horizon=80, density="even", additive=True)

PAPER = Paper(
    id="subpo",
    name="SubPO",
    citation=SubPO.citations[0],
    family="on-policy-ac",
    does="The worth of a way is a submodular set function of its places, so that rewards depend on the past; a "
    "policy gradient weighs every action by the marginal gains that follow from it.",
    claim="Greedily climbing marginal gains handles rewards with diminishing returns, with constant-factor "
    "approximations under assumptions, and serves coverage, experiment design and informative path planning.",
    parts=(
        "thespis.methods.online.subpo:SubPO",
        "thespis.learners.gains:ToGo",
        "thespis.learners.gains:SoFar",
        "thespis.envs.compiled.coverage:Coverage",
        "thespis.envs.compiled.coverage:Covered",
        "thespis.envs.compiled.coverage:Informed",
    ),
    use="thespis train subpo --env thespis.envs.compiled.coverage:Coverage --envs 50",
    miniature=Trial(
        arms=(
            Arm("SubPO", _SMALL),
            Arm("SubPO, history told", _SMALL, env=_WORLD + "TOLD"),
            Arm("additive surrogate", _SMALL, env=_WORLD + "ADDITIVE"),
            Arm("gains so far", _SO_FAR),
            Arm("SubPO in a field", _SMALL, env=_WORLD + "FIELD"),
            Arm("additive in a field", _SMALL, env=_WORLD + "ADDITIVE_FIELD"),
        ),
        envs=(_WORLD + "SLIPPERY",),
        steps=100_000,
        claims=(
            Better("SubPO", "additive surrogate", _WORTH),
            Better("SubPO in a field", "additive in a field", _WORTH),
            AtLeast("SubPO", _WORTH, _GREEDY),
            NoWorse("SubPO", "SubPO, history told", _WORTH, margin=0.5),
            Better("SubPO", "gains so far", _WORTH),
        ),
    ),
    remarks="Read: the abstract and the authors' code. Grids of 8 cells a side for 30, 20 steps for 40 or 80, 50 "
    "episodes to an update for 500, and one move in ten is not one's own; two hills of weight lie at some distance, "
    "or a field of 25 cells varies most there. All arms are scored by what the whole way is worth. The bound is "
    "what the planner reaches that always takes the step which adds most. That a policy of place and time alone "
    "does as well as one that is told what is covered is no sentence of the abstract; the margin is a tenth of what "
    "lies between random steps and what can be covered. The released code for grids weighs actions by gains so far, "
    "not by those to come: that is one of the arms. First looks at two seeds and 200,000 steps decided the budget: "
    "they had shown the first three arms to learn. Experiment design, robots and races are not tried. All claims "
    "hold in ten seeds.",
    full=Trial(
        arms=(Arm("SubPO", _LARGE), Arm("additive surrogate", _LARGE, env="thespis.papers.subpo:LARGE_ADDITIVE")),
        envs=("thespis.papers.subpo:LARGE",),
        steps=50 * 500 * 80,
        claims=(Better("SubPO", "additive surrogate", _WORTH),),
    ),
)

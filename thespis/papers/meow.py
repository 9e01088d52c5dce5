"""Maximum entropy by an energy-based normalising flow."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Replay
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.control import LARGE_SAC, LONG, ROBOTS, SMALL
from thespis.evidence.goals import least_visited
from thespis.evidence.measures import calibration_error, final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.meow import MEow
from thespis.methods.online.sac import SAC

_PENDULUM, _GOALS = "gymnax:Pendulum-v1", "thespis.envs.compiled.multi_goal:LONG"
_STEPS = 4_000
"""Of the multi-goal world, as in the authors' code."""
_THERE: dict[str, Any] = {"learning_rate": 1e-3, "discount": 0.9, "feed": Replay(batch=256, warmup=1_000)}
_FLOW = MEow(**_THERE, alpha=2.5, log_std=(-2.0, 1.0), target_rate=5e-4, shift_hidden=(64, 64))
_NORMAL = SAC(**_THERE, hidden=(64, 64), temperature=FixedTemperature(2.5))
_RETURN = dataclasses.replace(final_return("sampled"), world=_PENDULUM)
_ERROR = dataclasses.replace(calibration_error(), world=_PENDULUM)

PAPER = Paper(
    id="meow",
    name="MEow",
    citation=MEow.citations[0],
    family="off-policy-ac",
    does="One normalising flow over actions is actor and critic: its log-density splits into a soft action value "
    "and its exact soft value, and is trained by the soft Bellman error alone, with learnt shifts of reward.",
    claim="Soft values without estimates, policies of several modes, and higher returns than SAC on MuJoCo.",
    parts=(
        "thespis.methods.online.meow:MEow",
        "thespis.actors.flow:FlowActor",
        "thespis.nets.coupling:Couplings",
        "thespis.envs.compiled.multi_goal:MultiGoal",
        "thespis.evidence.goals:least_visited",
    ),
    use="thespis train meow --env Pendulum-v1 --set shift_hidden=64,64",
    miniature=Trial(
        arms=(
            Arm("MEow", MEow(**SMALL, shift_hidden=(64, 64))),
            Arm("SAC", SAC(**SMALL, temperature=FixedTemperature(0.25))),
            Arm("MEow among goals", _FLOW, env=_GOALS, steps=_STEPS),
            Arm("SAC among goals", _NORMAL, env=_GOALS, steps=_STEPS),
        ),
        envs=(_PENDULUM,),
        steps=10_000,
        claims=(
            Better("MEow among goals", "SAC among goals", least_visited(world=_GOALS)),
            NoWorse("MEow", "SAC", _RETURN, margin=10.0),
            Better("MEow", "SAC", _ERROR),
        ),
    ),
    remarks="Weights of entropy are fixed and the same in both arms of a world; among the goals they, the discount, "
    "the range of deviations, the target's rate, the episodes of 1,000 steps and the number of steps are "
    "those of the authors' code for that world. Goals are counted over 100 sampled episodes that begin in the"
    " very middle and have 30 steps. Returns are of sampled actions, as in the settings of that code for all "
    "its tasks. On the pendulum the error is that of the least soft value against the soft return that "
    "followed, entropy included. The nets of the shifts have 64 units a layer, as the others. First looks at "
    "one or two seeds: with training episodes of 30 steps one seed of MEow pushed into a corner for ever "
    "(actions within 0.00001 of their bounds are valued as if they were that far inside, also in the authors'"
    " code, so that a flow whose mass lies far beyond is not called back), hence their longer episodes; with "
    "greedy actions, which were claimed on first, MEow returned -371 on the pendulum after 15,000 steps, with"
    " samples -211; these steps were then cut for time's sake. In ten seeds MEow reaches all four goals in "
    "five, SAC in one, which does not decide it; returns on the pendulum are alike; and the error of the "
    "values is six tenths larger than SAC's, against the claim. A likely cause of the last: one net has to be"
    " policy and value at once, so that the least of two shifts corrects the level of its values only and not"
    " their shape, where SAC's critics are nets of their own; and what is exact is the soft value of the "
    "flow's own action values, not that of what follows. A second reading against the authors' algorithm "
    "found nothing to mend beyond what is said to differ.",
    full=Trial(
        arms=(Arm("MEow", MEow()), Arm("SAC", LARGE_SAC)),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("MEow", "SAC", final_return("sampled")),),
        looks=1,
    ),
)

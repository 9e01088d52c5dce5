"""MEow: maximum entropy RL via an energy-based normalizing flow."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.data.feeds import Replay
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_STEPS, MUJOCO_ENVS, SMALL_SETTINGS
from thespis.evidence.measures import calibration_error, final_return
from thespis.evidence.multi_goal import least_visited_goal_share
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC
from thespis.papers.meow.method import MEow

_PENDULUM_ENV, _MULTI_GOAL_ENV = "gymnax:Pendulum-v1", "thespis.envs.compiled.multi_goal:LONG_MULTI_GOAL"
_STEPS = 4_000
"""Steps in the multi-goal environment, as in the authors' code."""
_SHARED_SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "discount": 0.9,
    "feed": Replay(batch_size=256, learning_starts=1_000),
}
_MEOW = MEow(**_SHARED_SETTINGS, temperature=2.5, log_std_range=(-2.0, 1.0), tau=5e-4, shift_hidden_sizes=(64, 64))
_SAC = SAC(**_SHARED_SETTINGS, hidden_sizes=(64, 64), temperature=FixedTemperature(2.5))
_RETURN = dataclasses.replace(final_return("sampled"), env=_PENDULUM_ENV)
_CALIBRATION_ERROR = dataclasses.replace(calibration_error(), env=_PENDULUM_ENV)

PAPER = Paper(
    id="meow",
    name="MEow",
    citation=MEow.citations[0],
    family="off-policy-ac",
    summary="One normalizing flow over actions is both actor and critic: its log-density splits into a soft Q-value "
    "and its exact soft state value, and it is trained by the soft Bellman error alone, with learned reward shifts.",
    claim="Soft values without estimation, multimodal policies, and higher returns than SAC on MuJoCo.",
    parts=(
        "thespis.papers.meow.method:MEow",
        "thespis.papers.meow.flow:FlowActor",
        "thespis.papers.meow.flow:AdditiveCouplingFlow",
        "thespis.envs.compiled.multi_goal:MultiGoal",
        "thespis.evidence.multi_goal:least_visited_goal_share",
    ),
    command="thespis train meow --env Pendulum-v1 --set shift_hidden_sizes=64,64",
    miniature=Trial(
        arms=(
            Arm("MEow", MEow(**SMALL_SETTINGS, shift_hidden_sizes=(64, 64))),
            Arm("SAC", SAC(**SMALL_SETTINGS, temperature=FixedTemperature(0.25))),
            Arm("MEow among goals", _MEOW, env=_MULTI_GOAL_ENV, steps=_STEPS),
            Arm("SAC among goals", _SAC, env=_MULTI_GOAL_ENV, steps=_STEPS),
        ),
        envs=(_PENDULUM_ENV,),
        steps=10_000,
        claims=(
            Superiority("MEow among goals", "SAC among goals", least_visited_goal_share(env=_MULTI_GOAL_ENV)),
            NonInferiority("MEow", "SAC", _RETURN, margin=10.0),
            Superiority("MEow", "SAC", _CALIBRATION_ERROR),
        ),
    ),
    remarks="Entropy coefficients are fixed and equal in both arms of an environment. In the multi-goal environment "
    "the coefficient, the discount, the range of standard deviations, the target network's tau, the episodes of 1,000 "
    "steps and the number of steps follow the authors' code. Visits to goals are counted over 100 sampled episodes of "
    "30 steps that start exactly in the middle. Returns are of sampled actions, as in the settings of that code for "
    "all its tasks. On the pendulum the critic's error compares the minimum soft Q-value with the realized soft "
    "return, entropy included. The networks of the reward shifts have 64 units per layer, like the others. Settings "
    "were changed after preliminary runs with one or two seeds. With training episodes of 30 steps one seed of MEow "
    "pushed into a corner forever: actions within 0.00001 of their bounds are valued as if they were that far inside, "
    "also in the authors' code, so a flow with its mass far beyond is not pulled back. Hence the longer episodes. "
    "With greedy actions, which the claims used at first, MEow returned -371 on the pendulum after 15,000 steps, with "
    "samples -211; the number of steps was then reduced to save time. Not shown: over ten seeds MEow reaches all four "
    "goals in five seeds, SAC in one, which does not decide it; returns on the pendulum are alike. Contradicted: the "
    "critic's error is six tenths larger than SAC's. Likely cause: one network has to be policy and value at once, so "
    "the minimum of two shifts corrects only the level of its values and not their shape, where SAC's critics are "
    "separate networks. Also, the exact soft value is that of the flow's own Q-values, not of the true returns. "
    "Checked again: a second reading against the authors' algorithm found nothing to fix beyond the differences "
    "stated.",
    full=Trial(
        arms=(Arm("MEow", MEow()), Arm("SAC", LARGE_SAC)),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=(Superiority("MEow", "SAC", final_return("sampled")),),
        max_looks=1,
    ),
)

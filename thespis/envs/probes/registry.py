"""Registry of all probes by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.envs.probes.actions import (
    ActionBoundProbe,
    ActionMaskProbe,
    DelayedCreditProbe,
    MatchProbe,
    TargetProbe,
    TMazeProbe,
)
from thespis.envs.probes.data_streams import EpisodeTagProbe, RandomStreamProbe
from thespis.envs.probes.multi_agent import ChangingAgentsProbe, GeneralSumProbe, TwoStepGameProbe
from thespis.envs.probes.probe import Probe
from thespis.envs.probes.spaces import DictSpaceProbe, ImageProbe, MultiDiscreteProbe
from thespis.envs.probes.values import (
    CONTINUOUS_ACTION,
    ConstantRewardProbe,
    ObservedRewardProbe,
    RandomTerminationProbe,
    RewardSequenceProbe,
)

_TRUNCATION_BUGS = "a time limit treated as termination, or ignored"
_TERMINATION_BUGS = "values that flow across a termination, advantages off by one"
_DISCOUNT_BUGS = "returns discounted once too often or once too rarely, n-step returns from the wrong reward"
_EPISODE_END_BUGS = "truncation and termination confused where both occur"
_ALIGNMENT_BUGS = "one episode's reward credited to another, observations and rewards misaligned"
_DELAYED_REWARDS = (0.0, 0.0, 0.0, 0.0, 1.0)


def _make_probe(name: str, environment: Any, catches: str, **rest: Any) -> Probe:
    environment = dataclasses.replace(environment, name=name)
    return Probe(name, environment, catches, environment.known_values, **rest)


def _value_probe(name: str, environment: Any, catches: str) -> Probe:
    return _make_probe(name, environment, catches, policy="any")


_PROBE_LIST = [
    _value_probe("constant", ConstantRewardProbe(10), _TRUNCATION_BUGS),
    _value_probe("constant-continuous", ConstantRewardProbe(10, CONTINUOUS_ACTION), _TRUNCATION_BUGS),
    _value_probe("constant-1000", ConstantRewardProbe(1000), _TRUNCATION_BUGS),
    _value_probe("constant-1000-continuous", ConstantRewardProbe(1000, CONTINUOUS_ACTION), _TRUNCATION_BUGS),
    _value_probe("ending", RewardSequenceProbe(), _TERMINATION_BUGS),
    _value_probe("ending-continuous", RewardSequenceProbe(action=CONTINUOUS_ACTION), _TERMINATION_BUGS),
    _value_probe("delayed", RewardSequenceProbe(_DELAYED_REWARDS), _DISCOUNT_BUGS),
    _value_probe("delayed-continuous", RewardSequenceProbe(_DELAYED_REWARDS, CONTINUOUS_ACTION), _DISCOUNT_BUGS),
    _value_probe("coin", RandomTerminationProbe(), _EPISODE_END_BUGS),
    _value_probe("coin-continuous", RandomTerminationProbe(action=CONTINUOUS_ACTION), _EPISODE_END_BUGS),
    _value_probe("signal", ObservedRewardProbe(), _ALIGNMENT_BUGS),
    _value_probe("signal-continuous", ObservedRewardProbe(CONTINUOUS_ACTION), _ALIGNMENT_BUGS),
    _make_probe("choice", MatchProbe((1,)), "an advantage or a gradient of the wrong sign"),
    _make_probe("amount", TargetProbe((0.5,)), "a gradient through the action of the wrong sign or scale"),
    _make_probe("match", MatchProbe(), "advantages paired with another step's observation or action"),
    _make_probe("match-continuous", TargetProbe(), "advantages paired with another step's observation or action"),
    _make_probe(
        "bound", ActionBoundProbe(), "log-probabilities of clipped or squashed actions, actions in the wrong units"
    ),
    _make_probe("masked", ActionMaskProbe(), "illegal actions that are taken or counted in values"),
    _make_probe("late", DelayedCreditProbe(), "credit that does not reach the action which earned it"),
    _make_probe(
        "maze",
        TMazeProbe(),
        "memory lost within an episode or kept across its end",
        optimal_policy=TMazeProbe().optimal_action,
    ),
    _make_probe("pair", MultiDiscreteProbe(), "log-probabilities of several choices summed wrongly"),
    _make_probe("hybrid", DictSpaceProbe(), "parts of a dict space mixed up or left out"),
    _make_probe("picture", ImageProbe(), "image bytes that are wrongly cast, scaled twice or not scaled"),
    _value_probe(
        "coded", EpisodeTagProbe(), "wrong next observations, filler rows, windows that cross an episode's end"
    ),
    _value_probe(
        "coded-continuous", EpisodeTagProbe(CONTINUOUS_ACTION), "wrong next observations, filler rows, crossed ends"
    ),
    _make_probe("two-step", TwoStepGameProbe(), "values of agents that are summed where they should be mixed"),
    _make_probe(
        "shifts",
        ChangingAgentsProbe(),
        "absent agents that are counted, masks and cues of the wrong agent",
    ),
    _make_probe("meeting", GeneralSumProbe(), "critics that see another agent's action, rewards of the other side"),
    _value_probe(
        "seeds",
        RandomStreamProbe(),
        "seeds that do not control the environment, or environments that share a random stream",
    ),
]

PROBES: dict[str, Probe] = {probe.name: probe for probe in _PROBE_LIST}
"""Every probe under its name, without the prefix ``probe:``."""

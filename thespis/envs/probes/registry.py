"""All probes by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.envs.probes.choices import Bound, Late, Masked, Match, Maze, Target
from thespis.envs.probes.probe import Probe
from thespis.envs.probes.shapes import Hybrid, Pair, Picture
from thespis.envs.probes.streams import Coded, Seeds
from thespis.envs.probes.teams import Meeting, Shifts, TwoStep
from thespis.envs.probes.values import ANY_AMOUNT, Coin, Constant, Corridor, Signal

_CUT = "a time limit treated as an end, or not cut at all"
_END = "values that flow across a true end, advantages off by one"
_DELAY = "returns discounted once too often or too rarely, n-step returns from the wrong reward"
_BOTH = "truncation and termination confused where both occur"
_LEAK = "one episode's reward credited to another, observations and rewards misaligned"
_DELAYED = (0.0, 0.0, 0.0, 0.0, 1.0)


def _probe(name: str, environment: Any, catches: str, **rest: Any) -> Probe:
    environment = dataclasses.replace(environment, name=name)
    return Probe(name, environment, catches, environment.known, **rest)


def _any(name: str, environment: Any, catches: str) -> Probe:
    return _probe(name, environment, catches, policy="any")


_ALL = [
    _any("constant", Constant(10), _CUT),
    _any("constant-continuous", Constant(10, ANY_AMOUNT), _CUT),
    _any("constant-1000", Constant(1000), _CUT),
    _any("constant-1000-continuous", Constant(1000, ANY_AMOUNT), _CUT),
    _any("ending", Corridor(), _END),
    _any("ending-continuous", Corridor(action=ANY_AMOUNT), _END),
    _any("delayed", Corridor(_DELAYED), _DELAY),
    _any("delayed-continuous", Corridor(_DELAYED, ANY_AMOUNT), _DELAY),
    _any("coin", Coin(), _BOTH),
    _any("coin-continuous", Coin(action=ANY_AMOUNT), _BOTH),
    _any("signal", Signal(), _LEAK),
    _any("signal-continuous", Signal(ANY_AMOUNT), _LEAK),
    _probe("choice", Match((1,)), "an advantage or a gradient of the wrong sign"),
    _probe("amount", Target((0.5,)), "a gradient through the action of the wrong sign or scale"),
    _probe("match", Match(), "advantages paired with another step's observation or action"),
    _probe("match-continuous", Target(), "advantages paired with another step's observation or action"),
    _probe("bound", Bound(), "log-probabilities of clipped or squashed actions, actions in the wrong units"),
    _probe("masked", Masked(), "illegal actions that are taken or counted in values"),
    _probe("late", Late(), "credit that does not reach the action which earned it"),
    _probe("maze", Maze(), "memory lost within an episode or kept across its end", best=Maze().best),
    _probe("pair", Pair(), "log-probabilities of several choices summed wrongly"),
    _probe("hybrid", Hybrid(), "parts of a dict mixed up or left out"),
    _probe("picture", Picture(), "bytes that are cast, scaled twice or not at all"),
    _any("coded", Coded(), "wrong next observations, filler rows, windows that cross an episode's end"),
    _any("coded-continuous", Coded(ANY_AMOUNT), "wrong next observations, filler rows, crossed ends"),
    _probe("two-step", TwoStep(), "values of agents that are summed where they should be mixed"),
    _probe("shifts", Shifts(), "agents that are counted while they are not there, masks and cues of the wrong agent"),
    _probe("meeting", Meeting(), "critics that see the wrong action of the wrong agent, rewards of the other side"),
    _any("seeds", Seeds(), "seeds that do not control the world, or worlds that share a stream"),
]

PROBES: dict[str, Probe] = {probe.name: probe for probe in _ALL}
"""Every probe under its name, without the prefix ``probe:``."""

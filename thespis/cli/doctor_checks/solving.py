"""Methods that know the game they play: they must solve one whose value is known."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from thespis.cli.doctor_checks.check import Failed, Warned
from thespis.core.contracts import Method
from thespis.core.feeds import Rollouts
from thespis.curricula.fixed import Fixed
from thespis.envs import registry
from thespis.evaluation.exploitability import judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.anchors import Magnet
from thespis.learners.crowd import EachAlone
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.methods.games.mmd import MMD, mirror_descent

_GAME, _VALUE = "kuhn_poker", -1 / 18  # Kuhn (1950)


class Solver(NamedTuple):
    """A method, the blocks it is given, and how exploitable it may then be; uniform play is by 0.458."""

    method: Method
    blocks: int
    near: float


def solvers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    feed = Rollouts(length=16, envs=64)
    mirror = dataclasses.replace(mirror_descent(), hidden=(32,), minibatch=512, anchor=Magnet(halfway=10.0), feed=feed)
    found = [
        Solver(CFR(iterations=100), 10, 0.02),
        Solver(CFRPlus(iterations=20), 10, 0.02),
        Solver(EachAlone(MMD(mirror)), 150, 0.2),
    ]
    return [(f"{solver.method.name} on {_GAME}", lambda solver=solver: _solves(*solver)) for solver in found]


def _solves(method: Method, blocks: int, near: float) -> str:
    if importlib.util.find_spec("pgx") is None:
        raise Warned('not tried: games need pgx, pip install "thespis[games]"')
    world: Any = registry.compiled(f"pgx:{_GAME}")
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 10)  # pyright: ignore
    states = loop.learner(loop.advance(loop.init(), blocks)).method
    found = judge_method(method, states, world.game)[0]
    if found.exploitability > near or abs(found.values[0] - _VALUE) > near:
        raise Failed(
            f"{method.name} plays {_GAME} with exploitability {found.exploitability:.3g} and value "
            f"{found.values[0]:.3g}, and it is worth {_VALUE:.3g}: report it"
        )
    return f"best replies to what it learnt win {found.exploitability:.2g} beyond it; value {found.values[0]:.4f}"

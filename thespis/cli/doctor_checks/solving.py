"""Methods that know the game they play: they must solve one whose value is known."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from thespis.cli.doctor_checks.check import Failed, Warned
from thespis.core.contracts import Method
from thespis.curricula.fixed import Fixed
from thespis.envs import registry
from thespis.evaluation.exploitability import judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus

_GAME, _VALUE = "kuhn_poker", -1 / 18  # Kuhn (1950)
_NEAR = 0.02


def solvers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    methods = CFR(iterations=100), CFRPlus(iterations=20)
    return [(f"{method.name} on {_GAME}", lambda method=method: _solves(method)) for method in methods]


def _solves(method: Method) -> str:
    if importlib.util.find_spec("pgx") is None:
        raise Warned('not tried: games need pgx, pip install "thespis[games]"')
    world: Any = registry.compiled(f"pgx:{_GAME}")
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, 1, [0], 10)
    states = loop.learner(loop.advance(loop.init(), 10)).method
    found = judge_method(method, states, world.game)[0]
    if found.exploitability > _NEAR or abs(found.values[0] - _VALUE) > _NEAR:
        raise Failed(
            f"{method.name} plays {_GAME} with exploitability {found.exploitability:.3g} and value "
            f"{found.values[0]:.3g}, and it is worth {_VALUE:.3g}: report it"
        )
    return f"best replies to what it learnt win {found.exploitability:.2g} beyond it; value {found.values[0]:.4f}"

"""Methods that know the game they play: they must solve one whose value is known."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from thespis.actors.positions import GameModel
from thespis.cli.doctor_checks.check import Failed, Warned
from thespis.core.contracts import Method
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.curricula.fixed import Fixed
from thespis.envs import registry
from thespis.evaluation.exploitability import judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.games.alphazero import AlphaZero
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.nets.residual import Flat

_GAME, _VALUE = "kuhn_poker", -1 / 18  # Kuhn (1950)
_NEAR = 0.02
_SEARCHED, _SURE = "tic_tac_toe", 0.3
_BEFORE_A_WIN = (0, 3, 1, 4), (8, 3, 1, 4, 0)  # the first player, then the second


def solvers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    methods = CFR(iterations=100), CFRPlus(iterations=20)
    found = [(f"{method.name} on {_GAME}", lambda method=method: _solves(method)) for method in methods]
    return [*found, (f"{AlphaZero.name} on {_SEARCHED}", _foresees)]


def _foresees() -> str:
    """The net's value, without search, one move before a win: good for the one to move, whoever it is."""
    world = _world(_SEARCHED)
    feed = Rollouts(length=32, envs=32)
    method = AlphaZero(board=Flat(), hidden=(64,), simulations=8, opening=9, temperature=2.0, feed=feed)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, feed.envs, [0], 40 * 1024)
    learnt = jax.tree.map(lambda x: x[0], loop.learner(loop.advance(loop.init(), 40)).method)
    play, values = jax.jit(world.game.play), []
    for moves in _BEFORE_A_WIN:
        position = world.game.start(key_of(0))
        for move in moves:
            position = play(position, jnp.int32(move), key_of(0))
        values.append(float(learnt.opinion(GameModel(world.game, learnt.opinion).seen(position))[1]))
    if min(values) < _SURE:
        told = ", ".join(f"{value:.2f}" for value in values)
        raise Failed(f"{method.name} expects {told} of positions that the player to move wins at once: report it")
    return f"it expects at least {min(values):.2f} of positions that the player to move wins at once, of either seat"


def _solves(method: Method) -> str:
    world = _world(_GAME)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, 1, [0], 10)
    states = loop.learner(loop.advance(loop.init(), 10)).method
    found = judge_method(method, states, world.game)[0]
    if found.exploitability > _NEAR or abs(found.values[0] - _VALUE) > _NEAR:
        raise Failed(
            f"{method.name} plays {_GAME} with exploitability {found.exploitability:.3g} and value "
            f"{found.values[0]:.3g}, and it is worth {_VALUE:.3g}: report it"
        )
    return f"best replies to what it learnt win {found.exploitability:.2g} beyond it; value {found.values[0]:.4f}"


def _world(name: str) -> Any:
    if importlib.util.find_spec("pgx") is None or importlib.util.find_spec("mctx") is None:
        raise Warned('not tried: games need pgx and mctx, pip install "thespis[games]"')
    return registry.compiled(f"pgx:{name}")

"""Methods that know the game they play: they must solve one whose value is known."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from thespis.cli.doctor_checks.check import Failed, Warned
from thespis.core.contracts import Method, Mode
from thespis.core.errors import DISTRIBUTION
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.curricula.fixed import Fixed
from thespis.envs import registry
from thespis.evaluation.exploitability import judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.crowd import EachAlone
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.games.alphazero import AlphaZero
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.methods.games.mmd import MMD, mirror_descent
from thespis.methods.games.nfsp import NFSP
from thespis.nets.residual import Flat

_GAME, _VALUE = "kuhn_poker", -1 / 18  # Kuhn (1950)
_SEARCHED, _SURE, _LEARNT = "tic_tac_toe", 0.9, 0.3
_BEFORE_A_WIN = (0, 3, 1, 4), (0, 3, 1, 8), (4, 1, 0, 2)  # of the first player
_OF_THE_SECOND = (8, 3, 1, 4, 0)


class Solver(NamedTuple):
    """A method, the blocks it is given, and how exploitable it may then be; uniform play is by 0.458."""

    method: Any
    blocks: int
    near: float


def solvers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    feed = Rollouts(length=16, envs=64)
    mirror = dataclasses.replace(mirror_descent(), hidden=(32,), minibatch=512, feed=feed)
    tried = [
        Solver(CFR(iterations=100), 10, 0.02),
        Solver(CFRPlus(iterations=20), 10, 0.02),
        Solver(EachAlone(MMD(mirror)), 150, 0.3),
        Solver(EachAlone(dataclasses.replace(NFSP(), capacity=20_000)), 150, 0.3),
    ]
    found = [(f"{solver.method.name} on {_GAME}", lambda solver=solver: _solves(*solver)) for solver in tried]
    return [*found, (f"{AlphaZero.name} on {_SEARCHED}", _foresees)]


def _foresees() -> str:
    """One move before a win: search finds it for either player, and the net alone expects it, on average."""
    world = _world(_SEARCHED)
    feed = Rollouts(length=32, envs=32)
    method = AlphaZero(board=Flat(), hidden=(64,), simulations=8, opening=9, temperature=1e3, feed=feed)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, feed.envs, [0], 40 * 1024)
    learnt = jax.tree.map(lambda x: x[0], loop.learner(loop.advance(loop.init(), 40)).method)
    player = method.policy(learnt, Mode.EXPLOIT)
    play, places = jax.jit(world.game.play), []
    for moves in (*_BEFORE_A_WIN, _OF_THE_SECOND):
        position = world.game.start(key_of(0))
        for move in moves:
            position = play(position, jnp.int32(move), key_of(0))
        places.append(position)
    positions = jax.tree.map(lambda *x: jnp.stack(x), *places)
    root = player.model.look(positions)
    found = player.search(player.model, root, jax.vmap(world.game.legal)(positions), key_of(0)).value
    expects, sees = float(root.value[:-1].mean()), float(jnp.min(found[jnp.array([0, -1])]))
    if sees < _SURE or expects < _LEARNT:
        raise Failed(
            f"of positions that are won at once {method.name} expects {expects:.2f} on average and its search finds "
            f"{sees:.2f}, where both should be near 1: report it"
        )
    return f"positions that are won at once: search finds {sees:.2f}, and the net alone expects {expects:.2f}"


def _solves(method: Method, blocks: int, near: float) -> str:
    world = _world(_GAME)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 10)  # pyright: ignore
    states = loop.learner(loop.advance(loop.init(), blocks)).method
    found = judge_method(method, states, world.game)[0]
    if found.exploitability > near or abs(found.values[0] - _VALUE) > near:
        raise Failed(
            f"{method.name} plays {_GAME} with exploitability {found.exploitability:.3g} and value "
            f"{found.values[0]:.3g}, and it is worth {_VALUE:.3g}: report it"
        )
    return f"best replies to what it learnt win {found.exploitability:.2g} beyond it; value {found.values[0]:.4f}"


def _world(name: str) -> Any:
    if importlib.util.find_spec("pgx") is None or importlib.util.find_spec("mctx") is None:
        raise Warned(f'not tried: games need pgx and mctx, pip install "{DISTRIBUTION}[games]"')
    return registry.compiled(f"pgx:{name}")

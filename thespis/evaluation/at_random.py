"""How a policy fares against one that plays at random: exactly, in games of few enough positions.

Greedy play answers every position in one way, so that only what the others may do has to be followed: all games are
played at once, each as likely as the choices that led to it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.game_trees import Enumerable
from thespis.core.keys import key_of
from thespis.core.records import TimeStep
from thespis.core.spaces import Text, Tree
from thespis.envs.games.everyone import SEATS

_MOST = 65_536  # games at a time
_FEW = 64


@dataclasses.dataclass(frozen=True)
class Fortunes:
    """Probabilities of what becomes of a game; they sum to 1."""

    won: float
    drawn: float
    lost: float


@dataclasses.dataclass
class _Games:
    """Games under way ``[game, ...]``: the world's states, what is seen, the method's memory, how likely each is."""

    state: PyTree
    seen: TimeStep
    memory: PyTree
    chance: Float[np.ndarray, " game"]

    def rows(self, at: Int[np.ndarray, " chosen"], chance: Float[np.ndarray, " chosen"]) -> _Games:
        """Some of them, behind which games without a chance fill up one of few sizes."""
        room = _FEW
        while room < len(at):
            room *= 4
        state, seen, memory = _taken((self.state, self.seen, self.memory), np.resize(at, room))
        return _Games(state, seen, memory, np.pad(chance, (0, room - len(at))))


@jax.jit
def _taken(tree: PyTree, places: Int[Array, " place"]) -> PyTree:
    return jax.tree.map(lambda x: x[places], tree)


def against_random(method: Method, state: PyTree, world: Environment, seat: int) -> Fortunes:
    """What greedy play of one ``seat`` of ``world`` comes to, whose other seats take any legal choice, all alike often.

    ``method`` is for all seats of the world, ``state`` what it has learnt. Raises ``UserError`` where the world is no
    game without chance, or games are too many.
    """
    spec, key = world.spec, key_of(0)  # nothing is drawn: no chance in the world, nor in greedy play
    if not isinstance(spec.game, Enumerable) or len(spec.game.openings()[0]) > 1:
        raise UserError(f"{spec.name} is no game that always begins alike: its fortunes are not counted")
    policy, fortunes = method.policy(state, Mode.EXPLOIT), np.zeros(3)
    act = jax.jit(lambda memory, seen: method.act(policy, memory, seen.view, key)[:2])
    step = jax.jit(lambda state, action: jax.vmap(world.step, (0, 0, None))(state, {SEATS: action}, key))
    turn = jax.jit(lambda state: tuple(jax.vmap(f)(state) for f in (spec.game.player, spec.game.legal)))
    begun, seen = jax.jit(lambda: jax.tree.map(lambda x: x[None], world.reset((), key)))()
    games = _Games(begun, seen, method.begin(policy, 1), np.ones(1)).rows(np.zeros(1, int), np.ones(1))
    while games.chance.any():
        said, games.memory = act(games.memory, games.seen)
        parent, actions, chance = _branches(world, games, turn, np.asarray(said[SEATS]), seat)
        if len(parent) > _MOST:
            raise UserError(f"{spec.name} has more than {_MOST} games at a time: they are not followed")
        games = games.rows(parent, chance)
        games.state, games.seen = step(games.state, np.resize(actions, (len(games.chance), *actions.shape[1:])))
        assert games.seen.each is not None
        earned, over = np.asarray(games.seen.each[SEATS].reward[:, seat]), np.asarray(games.seen.terminated)
        fortunes += [games.chance[over & fate].sum() for fate in (earned > 0, earned == 0, earned < 0)]
        games.chance[over] = 0.0
        left = np.flatnonzero(games.chance)
        games = games.rows(left, games.chance[left]) if len(left) else games
    return Fortunes(*map(float, fortunes))


def _branches(
    world: Environment, games: _Games, turn: Any, said: Int[np.ndarray, "game player *action"], seat: int
) -> tuple[Int[np.ndarray, " branch"], Int[np.ndarray, "branch player *action"], Float[np.ndarray, " branch"]]:
    """How games may go on: which game, what all do, and how likely it is. One way where ``seat`` moves.

    ``turn`` says of the states of games who is to move, and what may be done.
    """
    choices = _choices(world)
    mover, legal = map(np.asarray, turn(games.state))
    parent, actions, chance = [], [], []
    for i in np.flatnonzero(games.chance):
        may = [said[i]] if mover[i] == seat else [np.broadcast_to(c, said[i].shape) for c in choices[legal[i]]]
        parent += [i] * len(may)
        actions += may
        chance += [games.chance[i] / len(may)] * len(may)
    return np.array(parent), np.stack(actions), np.array(chance)


def _choices(world: Environment) -> Int[np.ndarray, "choice *action"]:
    """What each choice is as an action of one seat."""
    space = world.spec.action
    assert isinstance(space, Tree)
    one = dict(space.parts)[SEATS]
    if not isinstance(one, Text):
        assert world.spec.game is not None
        return np.arange(world.spec.game.rules.actions)
    return np.array([np.resize([*ids, *[-1] * one.length], one.length) for ids in one.choices])

"""Playing: games of the same players in the same seats, side by side.

There is a program for each player and one for the world, not one for each pair: many players are compiled quickly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from thespis.arena.players import Player
from thespis.core.contracts import Environment
from thespis.core.keys import fold, per_index
from thespis.core.records import EnvSpec, TimeStep, View

LONGEST = 10_000
"""Steps after which a game of a world without a limit is cut and counted as it is."""


class Games(NamedTuple):
    """What came of games: ``payoffs[game, seat]``; ``length`` in steps; ``trail`` tells games of other moves apart."""

    payoffs: Float[Array, "game seat"]
    length: Int[Array, " game"]
    trail: UInt32[Array, " game"]


class Going(NamedTuple):
    """Games under way: states of the worlds, what is seen of them, which are over, and what came of them so far."""

    state: PyTree
    view: View
    over: Bool[Array, " game"]
    games: Games


def seats_of(spec: EnvSpec) -> int:
    """Seats are all agents, group by group."""
    return sum(group.count for group in spec.groups)


def play(world: Environment, players: tuple[Player, ...], seats: tuple[int, ...], n: int, key: Key[Array, ""]) -> Games:
    """``n`` games with ``players[seats[i]]`` in seat i. The same key gives the same games.

    A player is asked once a step, for all its seats; of its answer the actions of its seats are taken.
    """
    sitting, keys = jnp.array(seats), [fold(key, f"player/{i}") for i in range(len(players))]
    going, memories = begin(world, n, fold(key, "worlds")), [remember(player, n) for player in players]
    for tick in range(world.spec.time_limit or LONGEST):
        asked = [answer(p, m, going.view, k, np.int32(tick)) for p, m, k in zip(players, memories, keys, strict=True)]
        memories = [memory for _, memory in asked]
        actions = tuple(action for action, _ in asked)
        going = step(world, going, actions, sitting, fold(key, "worlds"), np.int32(tick))
        if going.over.all():
            break
    return going.games


@eqx.filter_jit
def begin(world: Environment, n: int, key: Key[Array, ""]) -> Going:
    """Fresh games."""
    spec = world.spec
    state, begun = jax.vmap(lambda key: world.reset(spec.params, fold(key, "reset")))(per_index(key, n))
    games = Games(jnp.zeros((n, seats_of(spec))), jnp.zeros(n, "int32"), jnp.zeros(n, "uint32"))
    return Going(state, begun.view, jnp.zeros(n, bool), games)


@eqx.filter_jit
def remember(player: Player, n: int) -> PyTree:
    """A player's memory of fresh games."""
    return player.begin(n)


@eqx.filter_jit
def answer(player: Player, memory: PyTree, view: View, key: Key[Array, ""], tick: Any):
    """What a player does in all seats, and its memory after it."""
    return player.act(memory, view, fold(key, "act", tick))


@eqx.filter_jit
def step(
    world: Environment,
    going: Going,
    actions: tuple[PyTree, ...],
    seats: Int[Array, " seat"],
    key: Key[Array, ""],
    tick: Any,
) -> Going:
    """The games after one step, in which seat i does what the answer of number ``seats[i]`` has for it."""
    spec, keys = world.spec, per_index(key, len(going.over))
    taken = _taken(spec, seats, actions)
    state, told = jax.vmap(world.step)(going.state, taken, jax.vmap(lambda key: fold(key, "step", tick))(keys))
    won = jnp.where(going.over[:, None], 0.0, _by_seat(spec, told))
    trail = jnp.where(going.over, going.games.trail, _marked(going.games.trail, spec, going.view, taken))
    games = Games(going.games.payoffs + won, going.games.length + ~going.over, trail)
    return Going(state, told.view, going.over | told.terminated | told.truncated, games)


def _taken(spec: EnvSpec, seats: Int[Array, " seat"], actions: tuple[PyTree, ...]) -> PyTree:
    """Of every player the actions of its own seats, by group ``[game, agent, ...]``."""
    found, first = {}, 0
    for group in spec.groups:
        sitting = seats[first : first + group.count]
        first += group.count

        def choose(*answers: Array, sitting: Array = sitting) -> Array:
            chosen = answers[0]
            for number, answer in enumerate(answers[1:], 1):
                chosen = jnp.where((sitting == number).reshape(-1, *[1] * (answer.ndim - 2)), answer, chosen)
            return chosen

        found[group.name] = jax.tree.map(choose, *(action[group.name] for action in actions))
    return found


def _by_seat(spec: EnvSpec, step: TimeStep) -> Float[Array, "game seat"]:
    each = step.each
    assert each is not None, "a world of many agents says what a step was for each"
    return jnp.concatenate([each[group.name].reward for group in spec.groups], axis=1)


def _marked(trail: UInt32[Array, " game"], spec: EnvSpec, view: View, actions: PyTree) -> UInt32[Array, " game"]:
    """The trail after these actions; what those do who do not decide leaves no mark."""
    alive = view.alive
    assert alive is not None, "a world of many agents says who decides"
    for group in spec.groups:
        decides = alive[group.name][..., None]
        for leaf in jax.tree.leaves(actions[group.name]):
            bits = jax.lax.bitcast_convert_type(leaf.astype("float32"), jnp.uint32)
            bits = jnp.where(decides, bits.reshape(*decides.shape[:2], -1) + jnp.uint32(1), 0).reshape(len(bits), -1)
            places = jnp.arange(1, bits.shape[1] + 1, dtype="uint32") * jnp.uint32(2654435769)
            trail = _mixed(trail + _mixed(bits ^ places).sum(axis=1, dtype="uint32"))
    return trail


def _mixed(bits: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Every bit spread over all."""
    for shift in (16, 15):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(0x9E3779B1)
    return bits ^ (bits >> 16)

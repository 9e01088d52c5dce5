"""Playing: games of the same players in the same seats, side by side in one program."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
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


class _Going(NamedTuple):
    """Games under way."""

    state: PyTree
    view: View
    memories: list[PyTree]
    over: Bool[Array, " game"]
    games: Games


def seats_of(spec: EnvSpec) -> int:
    """Seats are all agents, group by group."""
    return sum(group.count for group in spec.groups)


@eqx.filter_jit
def play(world: Environment, players: tuple[Player, ...], seats: tuple[int, ...], n: int, key: Key[Array, ""]) -> Games:
    """``n`` games with ``players[seats[i]]`` in seat i. The same key gives the same games.

    A player is asked once a step, for all its seats; of its answer the actions of its seats are taken.
    """
    spec, keys = world.spec, per_index(fold(key, "worlds"), n)
    state, begun = jax.vmap(lambda key: world.reset(spec.params, fold(key, "reset")))(keys)
    games = Games(jnp.zeros((n, len(seats))), jnp.zeros(n, "int32"), jnp.zeros(n, "uint32"))
    over, memories = jnp.zeros(n, bool), [player.begin(n) for player in players]

    def step(carry: tuple[Array, _Going]) -> tuple[Array, _Going]:
        tick, (state, view, memories, over, games) = carry
        asked = [p.act(m, view, fold(key, f"player/{i}", tick)) for i, (p, m) in enumerate(zip(players, memories))]
        actions = _taken(spec, seats, [action for action, _ in asked])
        state, told = jax.vmap(world.step)(state, actions, jax.vmap(lambda key: fold(key, "step", tick))(keys))
        won = jnp.where(over[:, None], 0.0, _by_seat(spec, told))
        trail = jnp.where(over, games.trail, _marked(games.trail, spec, view, actions))
        games = Games(games.payoffs + won, games.length + ~over, trail)
        return tick + 1, _Going(state, told.view, [m for _, m in asked], over | told.terminated | told.truncated, games)

    def going_on(carry: tuple[Array, _Going]) -> Bool[Array, ""]:
        return (carry[0] < (spec.time_limit or LONGEST)) & ~carry[1].over.all()

    start = jnp.zeros((), "int32"), _Going(state, begun.view, memories, over, games)
    return jax.lax.while_loop(going_on, step, start)[1].games


def _taken(spec: EnvSpec, seats: tuple[int, ...], actions: list[PyTree]) -> PyTree:
    """Of every player the actions of its own seats, by group ``[game, agent, ...]``."""
    found, first = {}, 0
    for group in spec.groups:
        sitting = jnp.array(seats[first : first + group.count])
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

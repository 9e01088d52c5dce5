"""Matches: many games of the same players in the same seats, played in parallel.

There is one compiled program per player and one for the environment, not one per pair, so many players compile fast.
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
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.runtime.keys import fold, indexed_keys

MAX_GAME_STEPS = 10_000
"""Steps after which a game without a time limit is cut, and counted as it is."""


class GameResults(NamedTuple):
    """Results of games: ``payoffs[game, seat]``, ``lengths`` in steps, hashes of the games' sequences of moves."""

    payoffs: Float[Array, "game seat"]
    lengths: Int[Array, " game"]
    move_hashes: UInt32[Array, " game"]


class GamesState(NamedTuple):
    """State of unfinished games: environment states, views, which games are over, and results so far."""

    env_states: PyTree
    view: View
    done: Bool[Array, " game"]
    results: GameResults


def num_seats(spec: EnvSpec) -> int:
    """Number of seats: all agents of all groups."""
    return sum(group.num_agents for group in spec.groups)


def play_games(
    env: Environment, players: tuple[Player, ...], seating: tuple[int, ...], num_games: int, key: Key[Array, ""]
) -> GameResults:
    """Play ``num_games`` games with ``players[seating[i]]`` in seat i. The same key gives the same games.

    A player acts once per step for all seats; only the actions of its own seats are used.
    """
    seat_players, keys = jnp.array(seating), [fold(key, f"player/{i}") for i in range(len(players))]
    games, player_memories = (
        reset_games(env, num_games, fold(key, "worlds")),
        [init_memory(player, num_games) for player in players],
    )
    for tick in range(env.spec.time_limit or MAX_GAME_STEPS):
        outputs = [
            player_act(p, m, games.view, k, np.int32(tick))
            for p, m, k in zip(players, player_memories, keys, strict=True)
        ]
        player_memories = [memory for _, memory in outputs]
        actions = tuple(action for action, _ in outputs)
        games = step_games(env, games, actions, seat_players, fold(key, "worlds"), np.int32(tick))
        if games.done.all():
            break
    return games.results


@eqx.filter_jit
def reset_games(env: Environment, num_games: int, key: Key[Array, ""]) -> GamesState:
    """First states of new games, one for each key."""
    spec = env.spec
    state, first = jax.vmap(lambda key: env.reset(spec.params, fold(key, "reset")))(indexed_keys(key, num_games))
    results = GameResults(
        jnp.zeros((num_games, num_seats(spec))), jnp.zeros(num_games, "int32"), jnp.zeros(num_games, "uint32")
    )
    return GamesState(state, first.view, jnp.zeros(num_games, bool), results)


@eqx.filter_jit
def init_memory(player: Player, num_games: int) -> PyTree:
    """A player's memory at the start of games."""
    return player.init_memory(num_games)


@eqx.filter_jit
def player_act(player: Player, memory: PyTree, view: View, key: Key[Array, ""], step: Any):
    """A player's actions in all seats, and its next memory."""
    return player.act(memory, view, fold(key, "act", step))


@eqx.filter_jit
def step_games(
    env: Environment,
    going: GamesState,
    actions: tuple[PyTree, ...],
    seating: Int[Array, " seat"],
    key: Key[Array, ""],
    step: Any,
) -> GamesState:
    """One step of all games, in which seat i takes its action from ``actions[seating[i]]``."""
    spec, keys = env.spec, indexed_keys(key, len(going.done))
    joint_action = _select_actions(spec, seating, actions)
    state, time_step = jax.vmap(env.step)(
        going.env_states, joint_action, jax.vmap(lambda key: fold(key, "step", step))(keys)
    )
    rewards = jnp.where(going.done[:, None], 0.0, _rewards_by_seat(spec, time_step))
    hashes = jnp.where(
        going.done, going.results.move_hashes, _update_hashes(going.results.move_hashes, spec, going.view, joint_action)
    )
    results = GameResults(going.results.payoffs + rewards, going.results.lengths + ~going.done, hashes)
    return GamesState(state, time_step.view, going.done | time_step.terminated | time_step.truncated, results)


def _select_actions(spec: EnvSpec, seating: Int[Array, " seat"], actions: tuple[PyTree, ...]) -> PyTree:
    """Joint action by group ``[game, agent, ...]``, with each seat's action from the player in that seat."""
    selected, first = {}, 0
    for group in spec.groups:
        sitting = seating[first : first + group.num_agents]
        first += group.num_agents

        def choose(*answers: Array, sitting: Array = sitting) -> Array:
            chosen = answers[0]
            for number, candidate in enumerate(answers[1:], 1):
                chosen = jnp.where((sitting == number).reshape(-1, *[1] * (candidate.ndim - 2)), candidate, chosen)
            return chosen

        selected[group.name] = jax.tree.map(choose, *(action[group.name] for action in actions))
    return selected


def _rewards_by_seat(spec: EnvSpec, time_step: TimeStep) -> Float[Array, "game seat"]:
    outcomes = time_step.agent_outcomes
    assert outcomes is not None, "a multi-agent environment returns outcomes per agent"
    return jnp.concatenate([outcomes[group.name].reward for group in spec.groups], axis=1)


def _update_hashes(
    hashes: UInt32[Array, " game"], spec: EnvSpec, view: View, actions: PyTree
) -> UInt32[Array, " game"]:
    """Hashes of the games' moves after these actions; actions of agents that are not to move are ignored."""
    alive = view.alive
    assert alive is not None, "a multi-agent environment says which agents are to move"
    for group in spec.groups:
        acts = alive[group.name][..., None]
        for leaf in jax.tree.leaves(actions[group.name]):
            bits = jax.lax.bitcast_convert_type(leaf.astype("float32"), jnp.uint32)
            bits = jnp.where(acts, bits.reshape(*acts.shape[:2], -1) + jnp.uint32(1), 0).reshape(len(bits), -1)
            positions = jnp.arange(1, bits.shape[1] + 1, dtype="uint32") * jnp.uint32(2654435769)
            hashes = _mix_bits(hashes + _mix_bits(bits ^ positions).sum(axis=1, dtype="uint32"))
    return hashes


def _mix_bits(bits: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Mix bits so that every input bit affects every output bit."""
    for shift in (16, 15):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(0x9E3779B1)
    return bits ^ (bits >> 16)

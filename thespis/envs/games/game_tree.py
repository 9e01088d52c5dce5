"""Game trees: small games enumerated into flat arrays, and the exact analysis of tabular policies on them.

Games are enumerated level by level. Equal game states are one node, so that a game of perfect information is as large
as its number of states, not of histories. A player's **information state** is its observation when it is to move: all
nodes that the player cannot tell apart have the same number.

The analysis gives reach probabilities, values, counterfactual regrets, best responses and exploitability. A policy is a
table ``[info_state, action]`` of probabilities, 0 for illegal actions; it holds the policies of all players. The
functions of the analysis are pure JAX functions; ``tree`` is static. Results have the policy's precision.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from thespis.core.contracts import Game
from thespis.core.errors import UserError
from thespis.runtime.keys import seed_key

MAX_NODES = 200_000
"""Largest number of nodes of an enumerated game."""

_CHUNK_ROWS = 512  # game states per call of a compiled function


@runtime_checkable
class EnumerableGame(Protocol):
    """A :class:`~thespis.core.contracts.Game` whose chance events all happen in ``init``: then only moves decide."""

    def initial_states(self) -> tuple[Float[np.ndarray, " opening"], PyTree]:
        """The probabilities of all initial states, and these states, leading axis ``[opening]``.

        Raises ``UserError`` for a game with later chance events.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class GameTree:
    """An enumerated game. Nodes are ordered by the number of moves before them; the first ones are the initial states.

    ``level_offsets[d] : level_offsets[d + 1]`` are the nodes after ``d`` moves. ``current_player`` is the player to
    move and ``info_state`` its information state (-1 in terminal nodes); ``children`` follows each legal action (-1:
    none); ``rewards`` are all players' rewards for the move that led to a node. For each information state:
    ``info_state_player``, the player to move; ``action_mask``, its legal actions; ``info_state_observation``, its
    observation (see :func:`flatten_observation`); and ``example_states``, one of its game states.
    """

    game: Game
    level_offsets: tuple[int, ...]
    initial_probs: Float[np.ndarray, " opening"]
    current_player: Int[np.ndarray, " node"]
    info_state: Int[np.ndarray, " node"]
    children: Int[np.ndarray, "node action"]
    rewards: Float[np.ndarray, "node player"]
    info_state_player: Int[np.ndarray, " info_state"]
    action_mask: Bool[np.ndarray, "info_state action"]
    info_state_observation: Float[np.ndarray, "info_state numbers"]
    example_states: PyTree


def flatten_observation(player: Int[Array, ""], observation: PyTree) -> Float[Array, " numbers"]:
    """A player's number and observation as one flat row of floats."""
    parts = [jnp.asarray(player), *jax.tree.leaves(observation)]
    return jnp.concatenate([jnp.ravel(part).astype("float32") for part in parts])


@functools.cache
def build_game_tree(game: Game, max_nodes: int = MAX_NODES) -> GameTree:
    """Enumerate ``game``; cached per process.

    Raises:
        UserError: if chance events go on after ``init``, the game has more than ``max_nodes`` nodes, or a player's
        observation does not contain everything it has observed and done before (no perfect recall).
    """
    if not isinstance(game, EnumerableGame):
        raise UserError(f"{game.spec.name} cannot be enumerated: it has no initial_states()")
    with jax.ensure_compile_time_eval():  # also works while a method's init is being compiled
        tree = _expand_game(game, *game.initial_states(), max_nodes)
    _check_info_states(tree)
    return tree


def _expand_game(game: Game, chance: Any, initial_states: PyTree, max_nodes: int) -> GameTree:
    inspect, step = (
        _map_rows(functools.partial(_inspect_state, game)),
        _map_rows(lambda p, move: game.step(p, move, seed_key(0))),
    )
    level, starts, levels = jax.tree.map(np.asarray, initial_states), [0], []
    while True:
        terminal, *columns_of_level = inspect(level)
        rows, moves = np.nonzero(columns_of_level[1] & ~terminal[:, None])
        starts.append(starts[-1] + len(terminal))
        children = np.full(columns_of_level[1].shape, -1, "int32")
        levels.append((terminal, *columns_of_level, children, level))
        if not len(rows):
            break
        if starts[-1] + len(rows) > max_nodes:
            raise UserError(f"{game.spec.name} is too large to be enumerated: it has more than {max_nodes:,} positions")
        after = step(jax.tree.map(lambda x, rows=rows: x[rows], level), moves.astype("int32"))
        unique, inverse = _unique_rows(_to_bytes(after))
        children[rows, moves] = starts[-1] + inverse
        level = jax.tree.map(lambda x, unique=unique: x[unique], after)
    columns = [jax.tree.map(lambda *x: np.concatenate(x), *column) for column in zip(*levels, strict=True)]
    terminal, player, legal, payoff, observations, children, positions = columns
    return _add_info_states(
        game, tuple(starts), chance, terminal, player, legal, payoff, observations, children, positions
    )


def _add_info_states(game, starts, chance, over, player, legal, payoff, seen, children, positions) -> GameTree:
    active = np.flatnonzero(~over)
    first, index = _unique_rows(_to_bytes(seen[active]))
    information = np.full(len(over), -1, "int32")
    information[active] = index
    representatives = active[first]
    return GameTree(
        game,
        starts,
        chance,
        np.where(over, -1, player),
        information,
        children,
        payoff.astype("float64"),
        player[representatives],
        legal[representatives],
        seen[representatives],
        jax.tree.map(lambda x: x[representatives], positions),
    )


def _inspect_state(game: Game, position: PyTree) -> tuple[Array, ...]:
    player = game.current_player(position)
    observation = flatten_observation(player, game.observe(position, player))
    return game.is_terminal(position), player, game.action_mask(position), game.rewards(position), observation


def _map_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` over numpy rows, in chunks of a fixed size, so that it is compiled once for any number of rows."""
    compiled = jax.jit(jax.vmap(function))

    def over(*rows: PyTree) -> PyTree:
        count = len(jax.tree.leaves(rows)[0])
        pieces = []
        for start in range(0, count, _CHUNK_ROWS):
            index = np.minimum(np.arange(start, start + _CHUNK_ROWS), count - 1)
            pieces.append(compiled(*jax.tree.map(lambda x, index=index: x[index], rows)))
        return jax.tree.map(lambda *x: np.concatenate(x)[:count], *pieces)

    return over


def _to_bytes(rows: PyTree) -> Shaped[np.ndarray, "row bytes"]:
    leaves = jax.tree.leaves(rows)
    count = len(leaves[0])
    columns = [np.ascontiguousarray(leaf).reshape(count, -1).view("uint8") for leaf in leaves if leaf.size]
    return np.concatenate(columns, axis=1)


def _unique_rows(rows: Shaped[np.ndarray, "row bytes"]) -> tuple[Int[np.ndarray, " unique"], Int[np.ndarray, " row"]]:
    """Indices of the first row of each distinct kind, in order, and for every row the index of its kind."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[number].astype("int32")


def _check_info_states(tree: GameTree) -> None:
    """Check perfect recall: an information state must determine the player's earlier observations and actions."""
    name, players = tree.game.spec.name, tree.rewards.shape[1]
    depth = np.repeat(np.arange(len(tree.level_offsets) - 1), np.diff(tree.level_offsets))
    active = np.flatnonzero(tree.info_state >= 0)
    info_states = tree.info_state[active]
    consistent = tree.game.spec.perfect_information or _constant_in_groups(
        info_states, _last_decisions(tree, players)[active, tree.current_player[active]]
    )
    if not (consistent and _constant_in_groups(info_states, depth[active])):
        raise UserError(
            f"{name} has no perfect recall: observations do not contain all that a player has observed and done"
        )
    if not np.array_equal(tree.action_mask[info_states], tree.children[active] >= 0):
        raise UserError(f"{name} cannot be analysed: the legal actions of a player depend on what it does not observe")


def _constant_in_groups(group: Int[np.ndarray, " row"], value: Int[np.ndarray, " row"]) -> bool:
    pairs = np.unique(np.stack([group, value], axis=1), axis=0)
    return len(pairs) == len(np.unique(group))


def _last_decisions(tree: GameTree, players: int) -> Int[np.ndarray, "node player"]:
    """For every player and node, the last information state and action before it, as one number; -1 before any."""
    last = np.full((len(tree.current_player), players), -1, "int64")
    rows, moves = np.nonzero(tree.children >= 0)
    for start, end in zip(tree.level_offsets[:-1], tree.level_offsets[1:], strict=True):
        in_level = (rows >= start) & (rows < end)
        node, move = rows[in_level], moves[in_level]
        child, mover = tree.children[node, move], tree.current_player[node]
        last[child] = last[node]
        last[child, mover] = tree.info_state[node] * tree.children.shape[1] + move
    return last


TabularPolicy = Float[Array, "info_state action"]
NodeValues = Float[Array, "node player"]


def reach_probs(tree: GameTree, policy: TabularPolicy) -> tuple[NodeValues, NodeValues]:
    r"""Reach probabilities of each node: by each player's own actions, and by the others' actions and chance.

    :math:`\pi_i^\sigma(h)` and :math:`\pi_{-i}^\sigma(h)` of Zinkevich et al. (2007). Where several paths lead to a
    node they are added.
    """
    players = tree.rewards.shape[1]
    chance = jnp.asarray(tree.initial_probs, policy.dtype)[:, None] * jnp.ones(players, policy.dtype)
    own, others = [jnp.ones_like(chance)], [chance]
    for depth in range(len(tree.level_offsets) - 2):
        start, end, next_end = tree.level_offsets[depth : depth + 3]
        rows, moves = np.nonzero(tree.children[start:end] >= 0)
        into = tree.children[start:end][rows, moves] - end
        chosen = policy[tree.info_state[start:end][rows], moves][:, None]
        mine = tree.current_player[start:end][rows][:, None] == np.arange(players)
        nothing = jnp.zeros((next_end - end, players), policy.dtype)
        own.append(nothing.at[into].add(own[depth][rows] * jnp.where(mine, chosen, 1.0)))
        others.append(nothing.at[into].add(others[depth][rows] * jnp.where(mine, 1.0, chosen)))
    return jnp.concatenate(own), jnp.concatenate(others)


def node_values(tree: GameTree, policy: TabularPolicy) -> tuple[NodeValues, Float[Array, "node action"]]:
    """Every player's expected return from each node, including the reward of the move into it, and the action values.

    Action values are those of the player to move.
    """
    levels: list[Array] = []
    choices: list[Array] = []
    for start, end in _reversed_levels(tree):
        after = _child_values(tree, start, end, levels)
        chosen = policy[np.maximum(tree.info_state[start:end], 0)]
        levels.append(jnp.asarray(tree.rewards[start:end], policy.dtype) + jnp.einsum("na,nap->np", chosen, after))
        choices.append(jnp.take_along_axis(after, _current_player_index(tree, start, end), axis=2)[..., 0])
    return jnp.concatenate(levels[::-1]), jnp.concatenate(choices[::-1])


def counterfactual_regrets(tree: GameTree, policy: TabularPolicy) -> tuple[TabularPolicy, Float[Array, " info_state"]]:
    """Counterfactual regrets of every action, and each player's own reach probabilities of its information states.

    The regret is the gain of an action over the policy, weighted by the probability that chance and the other players
    lead there (Zinkevich et al., 2007). The reach probability counts the player's own actions only.
    """
    own, others = reach_probs(tree, policy)
    choices = node_values(tree, policy)[1]
    active = np.flatnonzero(tree.info_state >= 0)
    information, mover = tree.info_state[active], tree.current_player[active]
    nothing = jnp.zeros_like(policy)
    value = nothing.at[information].add(others[active, mover][:, None] * choices[active])
    num_nodes = np.bincount(information, minlength=len(tree.info_state_player))
    arriving = nothing[:, 0].at[information].add(own[active, mover]) / num_nodes
    baseline = jnp.sum(policy * value, axis=1, keepdims=True)
    return jnp.where(tree.action_mask, value - baseline, 0.0), arriving


def expected_returns(tree: GameTree, policy: TabularPolicy) -> Float[Array, " player"]:
    """Every player's expected return from the start of the game."""
    return jnp.asarray(tree.initial_probs, policy.dtype) @ node_values(tree, policy)[0][: len(tree.initial_probs)]


def best_response_value(tree: GameTree, policy: TabularPolicy, player: int) -> Float[Array, ""]:
    """The expected return of a best response of ``player`` to the policies of all others."""
    others = reach_probs(tree, policy)[1][:, player]
    levels: list[Array] = []
    for start, end in _reversed_levels(tree):
        after = _child_values(tree, start, end, levels)[..., 0]
        information = np.maximum(tree.info_state[start:end], 0)
        chosen = policy[information]
        best = jnp.zeros_like(policy).at[information].add(others[start:end, None] * after)
        best = jnp.argmax(jnp.where(tree.action_mask, best, -jnp.inf), axis=1)[information]
        mine = tree.current_player[start:end] == player
        wins = jnp.where(mine, after[np.arange(end - start), best], jnp.sum(chosen * after, axis=1))
        payoff = jnp.asarray(tree.rewards[start:end, player], policy.dtype)
        levels.append((payoff + wins)[:, None])
    return jnp.asarray(tree.initial_probs, policy.dtype) @ levels[-1][:, 0]


def exploitability(tree: GameTree, policy: TabularPolicy) -> Float[Array, ""]:
    """Exploitability: the mean over players of a best response's gain over the policy; 0 for a Nash equilibrium.

    Half of NashConv for two players (Lanctot et al., 2017), which is what OpenSpiel calls exploitability.
    """
    players = tree.rewards.shape[1]
    best = jnp.stack([best_response_value(tree, policy, player) for player in range(players)])
    return jnp.mean(best - expected_returns(tree, policy))


def uniform_policy(tree: GameTree) -> Float[np.ndarray, "info_state action"]:
    """The policy that gives every legal action the same probability."""
    return tree.action_mask / tree.action_mask.sum(axis=1, keepdims=True)


def _reversed_levels(tree: GameTree) -> list[tuple[int, int]]:
    return list(zip(tree.level_offsets[:-1], tree.level_offsets[1:], strict=True))[::-1]


def _child_values(tree: GameTree, start: int, end: int, levels: list[Array]) -> Float[Array, "node action columns"]:
    """Values of the nodes after each action, from those of the next level; 0 where there is no such node."""
    children = tree.children[start:end]
    exists: Bool[np.ndarray, "node action"] = children >= 0
    if not levels:
        return jnp.zeros((*children.shape, tree.rewards.shape[1]))
    return jnp.where(exists[..., None], levels[-1][np.where(exists, children - end, 0)], 0.0)


def _current_player_index(tree: GameTree, start: int, end: int) -> Int[np.ndarray, "node one one"]:
    return np.maximum(tree.current_player[start:end], 0)[:, None, None]

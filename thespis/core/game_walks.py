"""What follows from how a small game is played: reach, values, regrets, best responses. Exact, over all of its nodes.

A policy is a table ``[information, action]`` of probabilities, 0 where a choice is illegal; it holds the policies of
all players. All functions are pure and of JAX; ``tree`` is static. Numbers have the precision of the policy.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from thespis.core.game_trees import GameTree

Policy = Float[Array, "information action"]
Numbers = Float[Array, "node player"]


def reach(tree: GameTree, policy: Policy) -> tuple[Numbers, Numbers]:
    r"""How likely each node is by the choices of each player alone, and by those of all others and chance.

    :math:`\pi_i^\sigma(h)` and :math:`\pi_{-i}^\sigma(h)` of Zinkevich et al. (2007). Where several ways lead to a node
    they are added.
    """
    players = tree.payoff.shape[1]
    chance = jnp.asarray(tree.chance, policy.dtype)[:, None] * jnp.ones(players, policy.dtype)
    own, others = [jnp.ones_like(chance)], [chance]
    for depth in range(len(tree.levels) - 2):
        start, end, next_end = tree.levels[depth : depth + 3]
        rows, moves = np.nonzero(tree.children[start:end] >= 0)
        into = tree.children[start:end][rows, moves] - end
        chosen = policy[tree.information[start:end][rows], moves][:, None]
        mine = tree.player[start:end][rows][:, None] == np.arange(players)
        nothing = jnp.zeros((next_end - end, players), policy.dtype)
        own.append(nothing.at[into].add(own[depth][rows] * jnp.where(mine, chosen, 1.0)))
        others.append(nothing.at[into].add(others[depth][rows] * jnp.where(mine, 1.0, chosen)))
    return jnp.concatenate(own), jnp.concatenate(others)


def values(tree: GameTree, policy: Policy) -> tuple[Numbers, Float[Array, "node action"]]:
    """What every player still wins from each node, the move into it counted; and the one to move, by its choice."""
    levels: list[Array] = []
    choices: list[Array] = []
    for start, end in _backwards(tree):
        after = _following(tree, start, end, levels)
        chosen = policy[np.maximum(tree.information[start:end], 0)]
        levels.append(jnp.asarray(tree.payoff[start:end], policy.dtype) + jnp.einsum("na,nap->np", chosen, after))
        choices.append(jnp.take_along_axis(after, _mover(tree, start, end), axis=2)[..., 0])
    return jnp.concatenate(levels[::-1]), jnp.concatenate(choices[::-1])


def regrets(tree: GameTree, policy: Policy) -> tuple[Policy, Float[Array, " information"]]:
    """Counterfactual regrets of every choice, and how likely each player is to come to its information states.

    What a choice would have won beyond the policy, weighted by how likely chance and the others lead there (Zinkevich
    et al., 2007). The second is by the player's own choices alone.
    """
    own, others = reach(tree, policy)
    choices = values(tree, policy)[1]
    going = np.flatnonzero(tree.information >= 0)
    information, mover = tree.information[going], tree.player[going]
    nothing = jnp.zeros_like(policy)
    value = nothing.at[information].add(others[going, mover][:, None] * choices[going])
    alike = np.bincount(information, minlength=len(tree.owner))
    arriving = nothing[:, 0].at[information].add(own[going, mover]) / alike
    baseline = jnp.sum(policy * value, axis=1, keepdims=True)
    return jnp.where(tree.legal, value - baseline, 0.0), arriving


def outcome(tree: GameTree, policy: Policy) -> Float[Array, " player"]:
    """What every player wins on average."""
    return jnp.asarray(tree.chance, policy.dtype) @ values(tree, policy)[0][: len(tree.chance)]


def best_response(tree: GameTree, policy: Policy, player: int) -> Float[Array, ""]:
    """What ``player`` would win on average if it knew the policies of all others."""
    others = reach(tree, policy)[1][:, player]
    levels: list[Array] = []
    for start, end in _backwards(tree):
        after = _following(tree, start, end, levels)[..., 0]
        information = np.maximum(tree.information[start:end], 0)
        chosen = policy[information]
        best = jnp.zeros_like(policy).at[information].add(others[start:end, None] * after)
        best = jnp.argmax(jnp.where(tree.legal, best, -jnp.inf), axis=1)[information]
        mine = tree.player[start:end] == player
        wins = jnp.where(mine, after[np.arange(end - start), best], jnp.sum(chosen * after, axis=1))
        payoff = jnp.asarray(tree.payoff[start:end, player], policy.dtype)
        levels.append((payoff + wins)[:, None])
    return jnp.asarray(tree.chance, policy.dtype) @ levels[-1][:, 0]


def exploitability(tree: GameTree, policy: Policy) -> Float[Array, ""]:
    """The mean over players of what a best response wins beyond the policy; 0 for a Nash equilibrium.

    Half of NashConv for two players (Lanctot et al., 2017), which is what OpenSpiel calls exploitability.
    """
    players = tree.payoff.shape[1]
    best = jnp.stack([best_response(tree, policy, player) for player in range(players)])
    return jnp.mean(best - outcome(tree, policy))


def uniform(tree: GameTree) -> Float[np.ndarray, "information action"]:
    """Every legal choice with the same probability."""
    return tree.legal / tree.legal.sum(axis=1, keepdims=True)


def _backwards(tree: GameTree) -> list[tuple[int, int]]:
    return list(zip(tree.levels[:-1], tree.levels[1:], strict=True))[::-1]


def _following(tree: GameTree, start: int, end: int, levels: list[Array]) -> Float[Array, "node action columns"]:
    """Values of the nodes that each choice leads to, from those of the level after; 0 where there is none."""
    children = tree.children[start:end]
    exists: Bool[np.ndarray, "node action"] = children >= 0
    if not levels:
        return jnp.zeros((*children.shape, tree.payoff.shape[1]))
    return jnp.where(exists[..., None], levels[-1][np.where(exists, children - end, 0)], 0.0)


def _mover(tree: GameTree, start: int, end: int) -> Int[np.ndarray, "node one one"]:
    return np.maximum(tree.player[start:end], 0)[:, None, None]

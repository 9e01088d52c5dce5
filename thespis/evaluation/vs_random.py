"""Exact win, draw and loss probabilities of a greedy policy against uniformly random opponents, in small games.

A greedy policy has one action in each position, so only the opponents' actions branch. All games are played at once,
breadth first, each weighted by the probability of the opponents' choices that led to it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import TimeStep
from thespis.core.spaces import CompositeSpace, Text
from thespis.envs.games.game_tree import EnumerableGame
from thespis.envs.games.self_play import PLAYER_GROUP
from thespis.runtime.keys import seed_key

_MAX_GAMES = 65_536  # games at a time
_MIN_ROWS = 64


@dataclasses.dataclass(frozen=True)
class OutcomeProbabilities:
    """Probabilities of a win, a draw and a loss; they sum to 1."""

    win: float
    draw: float
    loss: float


@dataclasses.dataclass
class _GameBatch:
    """Unfinished games ``[game, ...]``: environment states, time steps, the method's memory, and probabilities."""

    state: PyTree
    time_step: TimeStep
    memory: PyTree
    probability: Float[np.ndarray, " game"]

    def select_rows(self, indices: Int[np.ndarray, " chosen"], probability: Float[np.ndarray, " chosen"]) -> _GameBatch:
        """The games at ``indices``, padded with games of probability 0 to one of a few sizes (few compilations)."""
        num_rows = _MIN_ROWS
        while num_rows < len(indices):
            num_rows *= 4
        state, time_step, memory = _gather((self.state, self.time_step, self.memory), np.resize(indices, num_rows))
        return _GameBatch(state, time_step, memory, np.pad(probability, (0, num_rows - len(indices))))


@jax.jit
def _gather(tree: PyTree, indices: Int[Array, " place"]) -> PyTree:
    return jax.tree.map(lambda x: x[indices], tree)


def evaluate_vs_random(method: Method, state: PyTree, env: Environment, seat: int) -> OutcomeProbabilities:
    """Outcome probabilities of greedy play in ``seat`` of ``env`` against uniformly random legal play in the others.

    ``method`` plays all seats of the environment, ``state`` is its training state. Raises ``UserError`` if the
    environment is not an enumerable game with a single initial state, or if there are too many games to enumerate.
    """
    spec, key = env.spec, seed_key(0)  # never used: neither the game nor greedy play is random
    if not isinstance(spec.game, EnumerableGame) or len(spec.game.initial_states()[0]) > 1:
        raise UserError(
            f"{spec.name} has no exact outcome probabilities: use an enumerable game with a single initial state"
        )
    policy, totals = method.policy(state, Mode.EXPLOIT), np.zeros(3)
    act = jax.jit(lambda memory, time_step: method.act(policy, memory, time_step.view, key)[:2])
    step = jax.jit(lambda state, action: jax.vmap(env.step, (0, 0, None))(state, {PLAYER_GROUP: action}, key))
    turn_info = jax.jit(
        lambda state: tuple(jax.vmap(f)(state) for f in (spec.game.current_player, spec.game.action_mask))
    )
    start, time_step = jax.jit(lambda: jax.tree.map(lambda x: x[None], env.reset((), key)))()
    games = _GameBatch(start, time_step, method.init_memory(policy, 1), np.ones(1)).select_rows(
        np.zeros(1, int), np.ones(1)
    )
    while games.probability.any():
        actions, games.memory = act(games.memory, games.time_step)
        parent, branch_actions, chance = _branches(env, games, turn_info, np.asarray(actions[PLAYER_GROUP]), seat)
        if len(parent) > _MAX_GAMES:
            raise UserError(f"{spec.name} has more than {_MAX_GAMES} games at a time: use a smaller game")
        games = games.select_rows(parent, chance)
        games.state, games.time_step = step(
            games.state, np.resize(branch_actions, (len(games.probability), *branch_actions.shape[1:]))
        )
        assert games.time_step.agent_outcomes is not None
        rewards, ended = (
            np.asarray(games.time_step.agent_outcomes[PLAYER_GROUP].reward[:, seat]),
            np.asarray(games.time_step.terminated),
        )
        totals += [games.probability[ended & outcome].sum() for outcome in (rewards > 0, rewards == 0, rewards < 0)]
        games.probability[ended] = 0.0
        remaining = np.flatnonzero(games.probability)
        games = games.select_rows(remaining, games.probability[remaining]) if len(remaining) else games
    return OutcomeProbabilities(*map(float, totals))


def _branches(
    env: Environment, games: _GameBatch, turn_info: Any, said: Int[np.ndarray, "game player *action"], seat: int
) -> tuple[Int[np.ndarray, " branch"], Int[np.ndarray, "branch player *action"], Float[np.ndarray, " branch"]]:
    """Continuations of the games: parent game, joint action and probability of each. A single one where ``seat`` moves.

    ``turn_info`` maps the states of games to the player to move and the action mask.
    """
    choices = _choice_actions(env)
    player, legal = map(np.asarray, turn_info(games.state))
    parent, actions, chance = [], [], []
    for i in np.flatnonzero(games.probability):
        options = [said[i]] if player[i] == seat else [np.broadcast_to(c, said[i].shape) for c in choices[legal[i]]]
        parent += [i] * len(options)
        actions += options
        chance += [games.probability[i] / len(options)] * len(options)
    return np.array(parent), np.stack(actions), np.array(chance)


def _choice_actions(env: Environment) -> Int[np.ndarray, "choice *action"]:
    """Each choice of the game as an action of a single player."""
    space = env.spec.action_space
    assert isinstance(space, CompositeSpace)
    player_space = dict(space.spaces)[PLAYER_GROUP]
    if not isinstance(player_space, Text):
        assert env.spec.game is not None
        return np.arange(env.spec.game.spec.num_actions)
    return np.array(
        [
            np.resize([*tokens, *[-1] * player_space.max_length], player_space.max_length)
            for tokens in player_space.choices
        ]
    )

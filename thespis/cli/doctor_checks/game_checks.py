"""Checks of game-solving methods: each must solve a game with a known value."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from thespis.cli.doctor_checks.check import CheckFailure, CheckWarning
from thespis.core.contracts import Method, Mode
from thespis.core.errors import DISTRIBUTION
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.evaluation.exploitability import evaluate_method
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.methods.games.alphazero import AlphaZero
from thespis.methods.games.cfr import CFR
from thespis.methods.games.cfr_plus import CFRPlus
from thespis.methods.games.mmd import MMD, default_ppo
from thespis.methods.games.nfsp import NFSP
from thespis.runtime.keys import seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

_GAME, _VALUE = "kuhn_poker", -1 / 18  # Kuhn (1950)
_SEARCH_GAME, _MIN_SEARCH_VALUE, _MIN_NETWORK_VALUE = "tic_tac_toe", 0.9, 0.3
_FIRST_PLAYER_WINS = (0, 3, 1, 4), (0, 3, 1, 8), (4, 1, 0, 2)  # moves of both players
_SECOND_PLAYER_WIN = (8, 3, 1, 4, 0)


class GameCase(NamedTuple):
    """A method, its number of training blocks, and the tolerated exploitability; uniform play has 0.458."""

    method: Any
    num_blocks: int
    tolerance: float


def game_checks() -> list[tuple[str, Callable[[], str]]]:
    """Names and functions of the checks."""
    feed = Rollouts(num_steps=16, num_envs=64)
    mmd_ppo = dataclasses.replace(default_ppo(), hidden_sizes=(32,), minibatch_size=512, feed=feed)
    cases = [
        GameCase(CFR(num_iterations=100), 10, 0.02),
        GameCase(CFRPlus(num_iterations=20), 10, 0.02),
        GameCase(IndependentLearners(MMD(mmd_ppo)), 150, 0.3),
        GameCase(IndependentLearners(dataclasses.replace(NFSP(), reservoir_size=20_000)), 150, 0.3),
    ]
    checks = [(f"{case.method.name} on {_GAME}", lambda case=case: _check_exploitability(*case)) for case in cases]
    return [*checks, (f"{AlphaZero.name} on {_SEARCH_GAME}", _check_alphazero)]


def _check_alphazero() -> str:
    """One move before a win: search must find it for either player, and the network alone must expect it on average."""
    game_env = _make_game(_SEARCH_GAME)
    feed = Rollouts(num_steps=32, num_envs=32)
    method = AlphaZero(
        board_encoder=None, hidden_sizes=(64,), num_simulations=8, num_sampling_moves=9, temperature=1e3, feed=feed
    )
    loop = CompiledLoop(
        Components(method, EnvironmentReward(), FixedCurriculum()), game_env, feed.num_envs, [0], 40 * 1024
    )
    state = jax.tree.map(lambda x: x[0], loop.learner_state(loop.advance(loop.init(), 40)).method)
    policy = method.policy(state, Mode.EXPLOIT)
    play, position_list = jax.jit(game_env.game.step), []
    for moves in (*_FIRST_PLAYER_WINS, _SECOND_PLAYER_WIN):
        position = game_env.game.init(seed_key(0))
        for move in moves:
            position = play(position, jnp.int32(move), seed_key(0))
        position_list.append(position)
    positions = jax.tree.map(lambda *x: jnp.stack(x), *position_list)
    root = policy.model.evaluate(positions)
    search_values = policy.search(policy.model, root, jax.vmap(game_env.game.action_mask)(positions), seed_key(0)).value
    network_value, search_value = float(root.value[:-1].mean()), float(jnp.min(search_values[jnp.array([0, -1])]))
    if search_value < _MIN_SEARCH_VALUE or network_value < _MIN_NETWORK_VALUE:
        raise CheckFailure(
            f"in positions with a winning move {method.name}'s network expects {network_value:.2f} on average and "
            f"search finds {search_value:.2f}, where both should be near 1: report it"
        )
    return f"positions with a winning move: search finds {search_value:.2f}, the network expects {network_value:.2f}"


def _check_exploitability(method: Method, num_blocks: int, tolerance: float) -> str:
    game_env = _make_game(_GAME)
    components = Components(method, EnvironmentReward(), FixedCurriculum())
    loop = CompiledLoop(components, game_env, method.feed.num_envs, [0], 10)  # pyright: ignore
    states = loop.learner_state(loop.advance(loop.init(), num_blocks)).method
    result = evaluate_method(method, states, game_env.game)[0]
    if result.exploitability > tolerance or abs(result.on_policy_values[0] - _VALUE) > tolerance:
        raise CheckFailure(
            f"{method.name} plays {_GAME} with exploitability {result.exploitability:.3g} and value "
            f"{result.on_policy_values[0]:.3g}, but the game's value is {_VALUE:.3g}: report it"
        )
    return f"exploitability {result.exploitability:.2g}; value {result.on_policy_values[0]:.4f}"


def _make_game(name: str) -> Any:
    if importlib.util.find_spec("pgx") is None or importlib.util.find_spec("mctx") is None:
        raise CheckWarning(f'not checked: games need pgx and mctx, pip install "{DISTRIBUTION}[games]"')
    return registry.make_compiled(f"pgx:{name}")

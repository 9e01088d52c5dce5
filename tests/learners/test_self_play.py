"""AlphaZero self-play: targets and loss against brute force, and play against a perfect tic-tac-toe player."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import alphazero as alphazero_benchmark

from thespis.actors.tree_search import GameModel
from thespis.core.records import Transition
from thespis.curricula.fixed import FixedCurriculum
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.envs.rollout import select_rows
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.games.alphazero import policy_value_loss, search_targets, zero_sum_values
from thespis.runtime.keys import indexed_keys
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

GAME, KEY, TIME, ROWS = Pgx("tic_tac_toe"), jax.random.key(0), 14, 6
VALUE = 0.5
"""The network's value of every position, for the player to move."""


def constant_network(observation):
    return jnp.zeros(9), jnp.asarray(VALUE)


@pytest.fixture(scope="module")
def games():
    """Random games ``[time, row]``, restarted where they end, with random search policies and values."""
    env = SelfPlayEnv(GAME)
    reset, env_step = jax.vmap(lambda key: env.reset((), key)), jax.vmap(env.step)

    def tick(carry, key):
        state, current, is_first = carry
        noise, policy_key, value_key = jax.random.split(key, 3)
        action = jnp.argmax(
            jnp.where(current.action_mask["seats"], jax.random.uniform(noise, (ROWS, 2, 9)), -1.0), axis=-1
        )
        next_state, next_step = env_step(state, {"seats": action.astype("int32")}, indexed_keys(key, ROWS))
        policy = jax.random.dirichlet(policy_key, jnp.ones(9), (ROWS,))
        value = jax.random.uniform(value_key, (ROWS,), minval=-1.0)
        is_random = jax.random.bernoulli(value_key, 0.1, (ROWS,))
        steps = Transition(
            current.view,
            {"seats": action},
            next_step.reward,
            next_step.terminated,
            next_step.truncated,
            next_step.view,
            is_first,
            {"policy": policy, "value": value, "drawn": is_random},
            agent_outcomes=next_step.agent_outcomes,
        )
        reset_state = reset(indexed_keys(key, ROWS))
        state, current = select_rows(next_step.terminated, reset_state, (next_state, next_step))
        return (state, current, next_step.terminated), steps

    init_state = (*reset(indexed_keys(KEY, ROWS)), jnp.ones(ROWS, bool))
    return jax.jit(lambda keys: jax.lax.scan(tick, init_state, keys)[1])(jax.random.split(KEY, TIME))


def expected_target(steps, row, t, trace):
    """The value target of one position, move by move, as a sum over all n-step returns."""
    mover = np.asarray(steps.view.alive["seats"])[:, row].argmax(axis=1)
    reward, terminated = np.asarray(steps.agent_outcomes["seats"].reward)[:, row], np.asarray(steps.terminated)[:, row]
    value, player, weight, total = np.asarray(steps.extras["value"])[:, row], mover[t], 1.0, 0.0
    is_random = np.asarray(steps.extras["drawn"])[:, row]
    if is_random[t]:
        return value[t]
    for s in range(t, TIME):
        if terminated[s]:
            return total + weight * reward[s, player]
        if s == TIME - 1:
            to_move = int(np.asarray(steps.next_view.alive["seats"])[s, row].argmax())
            return total + weight * (VALUE if to_move == player else -VALUE)
        next_value = value[s + 1] if mover[s + 1] == player else -value[s + 1]
        if is_random[s + 1]:
            return total + weight * next_value
        total += weight * (1.0 - trace) * next_value
        weight *= trace
    raise AssertionError


@pytest.mark.long
@pytest.mark.parametrize("trace", [1.0, 0.7])
def test_value_targets_match_game_outcomes(games, trace):
    targets = jax.jit(lambda steps: search_targets(GameModel(GAME, constant_network), steps, trace))(games)
    expected = [[expected_target(games, row, t, trace) for row in range(ROWS)] for t in range(TIME)]
    np.testing.assert_allclose(targets.outcome, expected, atol=1e-5)
    ended = np.asarray(games.terminated) & ~np.asarray(games.extras["drawn"])
    assert ended.sum() > ROWS / 2 and set(np.round(np.asarray(targets.outcome)[ended], 3)) <= {0.0, 1.0}
    np.testing.assert_array_equal(targets.policy, games.extras["policy"])


def test_loss_matches_the_paper(games):
    targets = search_targets(GameModel(GAME, constant_network), games, 1.0)
    mask = np.asarray(targets.action_mask)
    policy = np.where(mask, np.asarray(targets.policy), 0.0)
    targets = dataclasses.replace(targets, policy=jnp.asarray(policy))
    loss, metrics = policy_value_loss(constant_network, targets, 2.0)
    cross_entropy = (policy.sum(axis=-1) * np.log(mask.sum(axis=-1))).mean()  # the network is uniform over legal moves
    squared_error = ((VALUE - np.asarray(targets.outcome)) ** 2).mean()
    np.testing.assert_allclose(
        [loss, metrics["policy_loss"], metrics["value_loss"]],
        [cross_entropy + 2 * squared_error, cross_entropy, squared_error],
        rtol=1e-5,
    )


def test_zero_sum_values_negate_for_the_opponent():
    np.testing.assert_array_equal(
        zero_sum_values(jnp.array([0.5, 0.25]), jnp.array([0, 1])), [[0.5, -0.5], [-0.25, 0.25]]
    )


def test_perfect_player_finds_known_best_moves():
    assert alphazero_benchmark.best_moves((0,) * 9, 1) == (0, tuple(range(9)))  # every opening draws
    assert alphazero_benchmark.best_moves((1, 1, 0, -1, -1, 0, 0, 0, 0), 1) == (1, (2,))
    corner = alphazero_benchmark.best_moves((1, 0, 0, 0, 0, 0, 0, 0, 0), -1)
    assert corner == (0, (4,))  # only the centre draws after a corner


@pytest.mark.slow
def test_trained_player_never_loses_at_tic_tac_toe():
    method, env = alphazero_benchmark.eval_method("tic_tac_toe"), SelfPlayEnv(GAME)
    loop = CompiledLoop(
        Components(method, EnvironmentReward(), FixedCurriculum()), env, method.feed.num_envs, [0], 10**6
    )
    carry = loop.advance(loop.init(), 300_000 // loop.steps_per_block)
    state = jax.tree.map(lambda x: x[0], loop.learner_state(carry).method)
    for player in (0, 1):
        assert alphazero_benchmark.play_games("tic_tac_toe", state, player, 200, seed=player).min() >= 0

"""Opponent pool: members, win rates, opponent samplers against known distributions, and exact resumption."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from small_envs import ANY_ROLLOUT
from synthetic_batches import quick_key

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.records import EpisodeStats
from thespis.curricula.opponent_pool import (
    EquilibriumOpponent,
    LatestOpponent,
    OpponentPool,
    PFSPOpponent,
    UniformOpponent,
)
from thespis.data.feeds import Rollouts
from thespis.envs.games.opponents import OpponentEnv
from thespis.envs.games.pgx import Pgx
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.runtime.keys import seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

PLAYER = PPO(hidden_sizes=(8,))
ENV = OpponentEnv(Pgx("kuhn_poker"), PLAYER)


@jax.jit
def _make_policy(key):
    return PLAYER.policy(PLAYER.init(ENV.spec, key), Mode.EXPLORE)


def make_policy(seed):
    return _make_policy(quick_key(seed))


def episode_stats(member, returns, policy):
    """One step in which every environment ends a game against its ``member``."""
    return _episode_stats(np.asarray(member, "int32")[None], np.asarray(returns, "float32")[None], policy)


@jax.jit
def _episode_stats(member, returns, policy):
    n = member.shape[1]
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (1, n, *jnp.shape(x))), ENV.spec.params)
    params = type(params)(params.policy, params.random_policy, params.seat, member)
    return EpisodeStats(jnp.ones((1, n), bool), returns, jnp.ones((1, n), "int32"), params, policy)


def trees_equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.slow
def test_snapshots_join_at_intervals_and_replace_the_oldest():
    pool = OpponentPool(capacity=3, snapshot_interval=4)
    state = pool.init(ENV.spec, seed_key(0))
    assert bool(pool.draw(state, seed_key(0), 5).params.random_policy.all()), "the initial member plays at random"
    update = jax.jit(lambda state, stats, key: pool.update(state, ANY_ROLLOUT, None, stats, key))
    for seed in range(1, 4):
        state, _ = update(state, episode_stats([0, 0, 0, 0], [1, 1, 0, -1], make_policy(seed)), seed_key(seed))
    members = [jax.tree.map(lambda x, i=i: x[i], state.policies) for i in range(3)]
    assert (
        trees_equal(members[1], make_policy(1))
        and trees_equal(members[2], make_policy(2))
        and trees_equal(members[0], make_policy(3))
    )
    assert int(state.num_joined) == 4
    params = pool.draw(state, seed_key(1), 200).params
    assert not params.random_policy.any() and set(np.asarray(params.pool_index)) == {0, 1, 2}
    assert trees_equal(jax.tree.map(lambda x: x[7], params.policy), members[int(params.pool_index[7])])


@pytest.mark.long
def test_win_rates_match_hand_values():
    pool = OpponentPool(capacity=2, snapshot_interval=100, ema_rate=0.5)
    key, update, player_policy = (
        quick_key(0),
        jax.jit(lambda state, stats, key: pool.update(state, ANY_ROLLOUT, None, stats, key)),
        make_policy(1),
    )
    state, _ = update(
        jax.jit(lambda k: pool.init(ENV.spec, k))(key), episode_stats([0, 0], [2.0, -1.0], player_policy), key
    )
    np.testing.assert_allclose(state.win_rates, [0.25 * 0.5 + 0.75 * 0.5, 0.5])
    state, _ = update(state, episode_stats([0, 0], [1.0, 1.0], player_policy), key)
    np.testing.assert_allclose(state.win_rates[0], 0.25 * 0.5 + 0.75 * 1.0)


def test_opponent_probabilities():
    present, age = np.array([True, True, True, False]), np.array([2, 0, 1, 3], "int32")
    win_rates, matrix = np.array([0.9, 0.5, 0.0, 0.0], "float32"), np.full((4, 4), 0.5, "float32")
    for sampler, expected in (
        (LatestOpponent(), [1, 0, 0, 0]),
        (UniformOpponent(), [1 / 3, 1 / 3, 1 / 3, 0]),
        (PFSPOpponent(), np.array([0.01, 0.25, 1.0, 0]) / 1.26),
    ):
        np.testing.assert_allclose(jax.jit(sampler.probs)(present, age, win_rates, matrix), expected, atol=1e-5)


EQUILIBRIUM = jax.jit(EquilibriumOpponent().probs)


@pytest.mark.parametrize("seed", range(4))
def test_equilibrium_opponent_cannot_be_exploited(seed):
    """No member gains more than 0.01 against it; a linear program confirms that the value of the game is zero."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=(6, 6))
    matrix = (a + 1.0 - a.T) / 2.0  # win rates: the row's wins are the column's losses
    present = np.array([True] * 5 + [False])
    raw_probs = EQUILIBRIUM(present, np.arange(6, dtype="int32"), np.zeros(6, "float32"), matrix.astype("float32"))
    probs = np.asarray(raw_probs)
    assert probs[5] == 0 and probs.sum() == pytest.approx(1.0, abs=1e-5)
    game = matrix[:5, :5] - 0.5
    solution = linprog(
        np.r_[np.zeros(5), -1.0],
        A_ub=np.c_[-game.T, np.ones(5)],
        b_ub=np.zeros(5),
        A_eq=[[1.0] * 5 + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * 5 + [(None, None)],
    )
    assert -solution.fun == pytest.approx(0.0, abs=1e-6)
    assert (game @ probs[:5]).max() < 0.01


@pytest.mark.slow
def test_pool_resumes_bit_for_bit(tmp_path):
    """A run that is saved, loaded and continued ends with the same bits as an uninterrupted run."""
    method = dataclasses.replace(PLAYER, minibatch_size=16, num_epochs=2, feed=Rollouts(8, num_envs=4))
    pool = OpponentPool(capacity=3, snapshot_interval=60, opponent_sampler=PFSPOpponent())
    loop = CompiledLoop(
        Components(method, EnvironmentReward(), pool), OpponentEnv(Pgx("kuhn_poker"), method), 4, [0, 1], 1000
    )
    uninterrupted = loop.advance(loop.init(), 8)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "checkpoint", loop.snapshot(carry), {})
    loaded, _ = checkpoint.load(tmp_path / "checkpoint", loop.checkpoint_template())
    carry, missing = loop.restore(loaded)
    assert not missing
    carry = loop.advance(carry, 5)
    assert int(np.asarray(carry.learner.curriculum.num_joined)[0]) > 3, "members came and went"
    assert_same_bits(loop.snapshot(uninterrupted), loop.snapshot(carry), "resumed")


def test_only_games_have_opponents():
    with pytest.raises(UserError, match="no game with opponents"):
        thespis.train("ppo", "CartPole-v1", steps=10, curriculum="uniform")
    with pytest.raises(UserError, match="unknown opponents"):
        thespis.train("ppo", "pgx:kuhn_poker", steps=10, curriculum="yesterday")
    with pytest.raises(UserError, match="capacity"):
        OpponentPool(capacity=1).init(ENV.spec, seed_key(0))

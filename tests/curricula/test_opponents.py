"""A pool of past selves: who is in it, who is drawn, and that it survives a stop."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key
from scipy.optimize import linprog

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.core.laws import same_bits
from thespis.core.records import Outcomes
from thespis.curricula.choosing import Equilibrium, HardFirst, Latest, Uniformly
from thespis.curricula.opponents import PastSelves
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.versus import Versus
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint

PLAYER = PPO(hidden=(8,))
WORLD = Versus(Pgx("kuhn_poker"), PLAYER)


@jax.jit
def _policy(key):
    return PLAYER.policy(PLAYER.init(WORLD.spec, key), Mode.EXPLORE)


def policy(seed):
    return _policy(quick_key(seed))


def outcomes(member, returns, by):
    """One tick in which every environment ends a game against its ``member``."""
    return _outcomes(np.asarray(member, "int32")[None], np.asarray(returns, "float32")[None], by)


@jax.jit
def _outcomes(member, returns, by):
    n = member.shape[1]
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (1, n, *jnp.shape(x))), WORLD.spec.params)
    params = type(params)(params.policy, params.uniform, params.seat, member)
    return Outcomes(jnp.ones((1, n), bool), returns, jnp.ones((1, n), "int32"), params, by)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.slow
def test_members_join_in_turn_and_the_oldest_leaves():
    pool = PastSelves(capacity=3, every=4)
    state = pool.init(WORLD.spec, key_of(0))
    assert bool(pool.draw(state, key_of(0), 5).uniform.all()), "the beginner plays at random"
    update = jax.jit(pool.update)
    for seed in range(1, 4):
        state, _ = update(state, outcomes([0, 0, 0, 0], [1, 1, 0, -1], policy(seed)), key_of(seed))
    held = [jax.tree.map(lambda x, i=i: x[i], state.policies) for i in range(3)]
    assert same(held[1], policy(1)) and same(held[2], policy(2)) and same(held[0], policy(3))
    assert int(state.joined) == 4
    drawn = pool.draw(state, key_of(1), 200)
    assert not drawn.uniform.any() and set(np.asarray(drawn.member)) == {0, 1, 2}
    assert same(jax.tree.map(lambda x: x[7], drawn.policy), held[int(drawn.member[7])])


def test_points_are_counted_for_each():
    pool = PastSelves(capacity=2, every=100, rate=0.5)
    key, update, by = quick_key(0), jax.jit(pool.update), policy(1)
    state, _ = update(jax.jit(lambda k: pool.init(WORLD.spec, k))(key), outcomes([0, 0], [2.0, -1.0], by), key)
    np.testing.assert_allclose(state.points, [0.25 * 0.5 + 0.75 * 0.5, 0.5])
    state, _ = update(state, outcomes([0, 0], [1.0, 1.0], by), key)
    np.testing.assert_allclose(state.points[0], 0.25 * 0.5 + 0.75 * 1.0)


def test_chances():
    there, age = np.array([True, True, True, False]), np.array([2, 0, 1, 3], "int32")
    points, matrix = np.array([0.9, 0.5, 0.0, 0.0], "float32"), np.full((4, 4), 0.5, "float32")
    for choice, wanted in (
        (Latest(), [1, 0, 0, 0]),
        (Uniformly(), [1 / 3, 1 / 3, 1 / 3, 0]),
        (HardFirst(), np.array([0.01, 0.25, 1.0, 0]) / 1.26),
    ):
        np.testing.assert_allclose(jax.jit(choice.chances)(there, age, points, matrix), wanted, atol=1e-5)


EQUILIBRIUM = jax.jit(Equilibrium().chances)


@pytest.mark.parametrize("seed", range(4))
def test_the_equilibrium_cannot_be_exploited(seed):
    """Its value against the best member is within 0.01 of what a linear programme finds: nothing to gain."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=(6, 6))
    matrix = (a + 1.0 - a.T) / 2.0  # points: what one wins the other loses
    there = np.array([True] * 5 + [False])
    of = EQUILIBRIUM(there, np.arange(6, dtype="int32"), np.zeros(6, "float32"), matrix.astype("float32"))
    chances = np.asarray(of)
    assert chances[5] == 0 and chances.sum() == pytest.approx(1.0, abs=1e-5)
    game = matrix[:5, :5] - 0.5
    best = linprog(
        np.r_[np.zeros(5), -1.0], A_ub=np.c_[-game.T, np.ones(5)], b_ub=np.zeros(5),
        A_eq=[[1.0] * 5 + [0.0]], b_eq=[1.0], bounds=[(0, None)] * 5 + [(None, None)],
    )  # fmt: skip
    assert -best.fun == pytest.approx(0.0, abs=1e-6)
    assert (game @ chances[:5]).max() < 0.01


@pytest.mark.slow
def test_a_pool_is_resumed_as_it_was(tmp_path):
    """Stopped and continued from a file, it ends with the bits of one that went straight through."""
    method = dataclasses.replace(PLAYER, minibatch=16, epochs=2, feed=Rollouts(8, envs=4))
    pool = PastSelves(capacity=3, every=60, choice=HardFirst())
    loop = CompiledLoop(Parts(method, EnvironmentReward(), pool), Versus(Pgx("kuhn_poker"), method), 4, [0, 1], 1000)
    straight = loop.advance(loop.init(), 8)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "checkpoint", loop.snapshot(carry), {})
    found, _ = checkpoint.load(tmp_path / "checkpoint", loop.like())
    carry, lost = loop.restore(found)
    assert not lost
    carry = loop.advance(carry, 5)
    assert int(np.asarray(carry.learner.curriculum.joined)[0]) > 3, "members came and went"
    same_bits(loop.snapshot(straight), loop.snapshot(carry), "resumed as it was")


def test_only_games_have_opponents():
    with pytest.raises(UserError, match="no game with opponents"):
        thespis.train("ppo", "CartPole-v1", steps=10, curriculum="past")
    with pytest.raises(UserError, match="unknown opponents"):
        thespis.train("ppo", "pgx:kuhn_poker", steps=10, curriculum="yesterday")
    with pytest.raises(UserError, match="capacity"):
        PastSelves(capacity=1).init(WORLD.spec, key_of(0))

"""Targets of self-play are how games really ended, by brute force; and what is learnt never loses at tic-tac-toe."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import alphazero as judging

from thespis.actors.positions import GameModel
from thespis.core.keys import per_index
from thespis.core.records import Transition
from thespis.curricula.fixed import Fixed
from thespis.envs.games.everyone import Everyone
from thespis.envs.games.pgx import Pgx
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.self_play import by_seat, lesson_loss, lessons_of
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts, where

GAME, KEY, TIME, ROWS = Pgx("tic_tac_toe"), jax.random.key(0), 14, 6
LEFT = 0.5
"""What the net says of every position, for the player to move."""


def opinion(observation):
    return jnp.zeros(9), jnp.asarray(LEFT)


@pytest.fixture(scope="module")
def games():
    """Random games ``[time, row]``, begun anew where they end, with random policies and values of a search."""
    world = Everyone(GAME)
    reset, step = jax.vmap(lambda key: world.reset((), key)), jax.vmap(world.step)

    def tick(carry, key):
        state, now, first = carry
        noise, policy_key, value_key = jax.random.split(key, 3)
        action = jnp.argmax(jnp.where(now.legal["seats"], jax.random.uniform(noise, (ROWS, 2, 9)), -1.0), axis=-1)
        after, came = step(state, {"seats": action.astype("int32")}, per_index(key, ROWS))
        policy = jax.random.dirichlet(policy_key, jnp.ones(9), (ROWS,))
        value = jax.random.uniform(value_key, (ROWS,), minval=-1.0)
        steps = Transition(
            now.view, {"seats": action}, came.reward, came.terminated, came.truncated, came.view, first,
            {"policy": policy, "value": value}, each=came.each,
        )  # fmt: skip
        fresh = reset(per_index(key, ROWS))
        state, now = where(came.terminated, fresh, (after, came))
        return (state, now, came.terminated), steps

    begun = (*reset(per_index(KEY, ROWS)), jnp.ones(ROWS, bool))
    return jax.jit(lambda keys: jax.lax.scan(tick, begun, keys)[1])(jax.random.split(KEY, TIME))


def by_hand(steps, row, t, trace):
    """The target of one position, walked through move by move, as a sum over where the walk may stop."""
    mover = np.asarray(steps.view.alive["seats"])[:, row].argmax(axis=1)
    reward, over = np.asarray(steps.each["seats"].reward)[:, row], np.asarray(steps.terminated)[:, row]
    value, me, weight, total = np.asarray(steps.extras["value"])[:, row], mover[t], 1.0, 0.0
    for s in range(t, TIME):
        if over[s]:
            return total + weight * reward[s, me]
        if s == TIME - 1:
            to_move = int(np.asarray(steps.next_view.alive["seats"])[s, row].argmax())
            return total + weight * (LEFT if to_move == me else -LEFT)
        following = value[s + 1] if mover[s + 1] == me else -value[s + 1]
        total += weight * (1.0 - trace) * following
        weight *= trace
    raise AssertionError


@pytest.mark.parametrize("trace", [1.0, 0.7])
def test_targets_are_how_games_ended(games, trace):
    lessons = jax.jit(lambda steps: lessons_of(GameModel(GAME, opinion), steps, trace))(games)
    wanted = [[by_hand(games, row, t, trace) for row in range(ROWS)] for t in range(TIME)]
    np.testing.assert_allclose(lessons.outcome, wanted, atol=1e-5)
    ended = np.asarray(games.terminated)
    assert ended.sum() > ROWS and set(np.round(np.asarray(lessons.outcome)[ended], 3)) <= {0.0, 1.0}
    np.testing.assert_array_equal(lessons.policy, games.extras["policy"])


def test_the_loss_is_that_of_the_paper(games):
    lessons = lessons_of(GameModel(GAME, opinion), games, 1.0)
    legal = np.asarray(lessons.legal)
    policy = np.where(legal, np.asarray(lessons.policy), 0.0)
    lessons = dataclasses.replace(lessons, policy=jnp.asarray(policy))
    loss, metrics = lesson_loss(opinion, lessons, 2.0)
    cross = (policy.sum(axis=-1) * np.log(legal.sum(axis=-1))).mean()  # all legal moves are alike to this net
    squared = ((LEFT - np.asarray(lessons.outcome)) ** 2).mean()
    np.testing.assert_allclose(
        [loss, metrics["policy_loss"], metrics["value_loss"]], [cross + 2 * squared, cross, squared], rtol=1e-5
    )


def test_a_value_is_worth_the_opposite_to_the_other():
    np.testing.assert_array_equal(by_seat(jnp.array([0.5, 0.25]), jnp.array([0, 1])), [[0.5, -0.5], [-0.25, 0.25]])


def test_the_perfect_player_knows_the_game():
    assert judging.best_moves((0,) * 9, 1) == (0, tuple(range(9)))  # every opening holds the draw
    assert judging.best_moves((1, 1, 0, -1, -1, 0, 0, 0, 0), 1) == (1, (2,))
    corner = judging.best_moves((1, 0, 0, 0, 0, 0, 0, 0, 0), -1)
    assert corner == (0, (4,))  # the centre alone answers a corner


@pytest.mark.slow
def test_it_learns_never_to_lose_at_tic_tac_toe():
    method, world = judging.playing("tic_tac_toe"), Everyone(GAME)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 10**6)
    carry = loop.advance(loop.init(), 300_000 // loop.block_steps)
    state = jax.tree.map(lambda x: x[0], loop.learner(carry).method)
    for seat in (0, 1):
        assert judging.contest("tic_tac_toe", state, seat, 200, seed=seat).min() >= 0

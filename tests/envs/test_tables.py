"""Many tables of one game: each is the game that it would be alone, and who is done waits for the last one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.keys import fold, key_of, per_index
from thespis.core.spaces import random_action
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.tables import LEARNERS, Tables
from thespis.envs.games.versus import Versus
from thespis.methods.online.ppo import PPO

PLAYER = PPO(hidden=(8,))
TABLE = Versus(Pgx("kuhn_poker"), PLAYER)
COUNT, TICKS = 3, 3


@pytest.mark.slow
def test_it_keeps_the_laws_of_worlds():
    check_environment(Tables(TABLE, COUNT), ticks=8)


def chosen(legal, key):
    return random_action(TABLE.spec.action, key, legal)


@jax.jit
def together(params, key):
    """Time steps ``[time, ...]`` of games in which everybody takes legal moves at random."""
    world = Tables(TABLE, COUNT)

    def tick(carry, here):
        state, told = carry
        moves = jax.vmap(chosen)(told.legal[LEARNERS], per_index(here, COUNT))
        return (world.step(state, {LEARNERS: moves}, here),) * 2

    begun = world.reset(params, fold(key, "reset"))
    return begun[1], jax.lax.scan(tick, begun, per_index(key, TICKS))[1][1]


@jax.jit
def alone(params, key, i):
    """The same game at the table of number ``i``, without the others."""

    def tick(carry, here):
        state, told = carry
        own = per_index(here, COUNT)[i]
        return (TABLE.step(state, chosen(told.legal, own), own),) * 2

    begun = TABLE.reset(jax.tree.map(lambda x: x[i], params), per_index(fold(key, "reset"), COUNT)[i])
    return begun[1], jax.lax.scan(tick, begun, per_index(key, TICKS))[1][1]


@pytest.mark.slow
def test_each_game_is_what_it_would_be_alone():
    params = Tables(TABLE, COUNT).spec.params
    params = eqx.tree_at(lambda p: (p.seat, p.uniform), params, (jnp.array([0, 1, 0]), jnp.array([True, True, False])))
    lengths = set()
    for seed in range(6):
        begun, told = together(params, key_of(seed))
        over = np.asarray(told.each[LEARNERS].gone)
        before = np.concatenate([np.zeros((1, COUNT), bool), over[:-1]])
        np.testing.assert_array_equal(told.alive[LEARNERS], ~over)
        np.testing.assert_array_equal(told.reward, told.each[LEARNERS].reward[:, 0])
        np.testing.assert_array_equal(told.terminated, over.all(axis=1))
        assert bool(begun.alive[LEARNERS].all())
        for i in range(COUNT):
            first, mine = alone(params, key_of(seed), i)
            np.testing.assert_array_equal(over[:, i], mine.terminated)
            np.testing.assert_array_equal(
                told.each[LEARNERS].reward[:, i], np.where(before[:, i], 0.0, np.asarray(mine.reward))
            )
            for axis, many, one in ((0, begun, first), (1, told, mine)):
                seen = jax.tree.map(
                    lambda x, i=i, axis=axis: np.take(np.asarray(x), i, axis), many.observation[LEARNERS]
                )
                jax.tree.map(np.testing.assert_array_equal, seen, one.observation)
        lengths |= {tuple(np.argmax(over, axis=0))}
    assert any(len(set(each)) > 1 for each in lengths), "some waited for others"

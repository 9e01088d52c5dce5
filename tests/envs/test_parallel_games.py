"""League environment: many games side by side, each against the same game alone; finished games wait for the last."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.core.spaces import random_action
from thespis.envs.games.opponents import LEAGUE_GROUP, LeagueEnv, OpponentEnv
from thespis.envs.games.pgx import Pgx
from thespis.methods.online.ppo import PPO
from thespis.runtime.keys import fold, indexed_keys, seed_key

PLAYER = PPO(hidden_sizes=(8,))
GAME_ENV = OpponentEnv(Pgx("kuhn_poker"), PLAYER)
NUM_GAMES, TICKS = 3, 3


@pytest.mark.slow
def test_contract():
    check_environment(LeagueEnv(GAME_ENV, NUM_GAMES), num_steps=8)


def random_move(legal, key):
    return random_action(GAME_ENV.spec.action_space, key, legal)


@jax.jit
def play_together(params, key):
    """Time steps ``[time, ...]`` of all games with random legal moves."""
    env = LeagueEnv(GAME_ENV, NUM_GAMES)

    def tick(carry, step_key):
        state, step = carry
        moves = jax.vmap(random_move)(step.action_mask[LEAGUE_GROUP], indexed_keys(step_key, NUM_GAMES))
        return (env.step(state, {LEAGUE_GROUP: moves}, step_key),) * 2

    init = env.reset(params, fold(key, "reset"))
    return init[1], jax.lax.scan(tick, init, indexed_keys(key, TICKS))[1][1]


@jax.jit
def play_alone(params, key, i):
    """Game ``i`` of the same games, played alone."""

    def tick(carry, step_key):
        state, step = carry
        game_key = indexed_keys(step_key, NUM_GAMES)[i]
        return (GAME_ENV.step(state, random_move(step.action_mask, game_key), game_key),) * 2

    init = GAME_ENV.reset(jax.tree.map(lambda x: x[i], params), indexed_keys(fold(key, "reset"), NUM_GAMES)[i])
    return init[1], jax.lax.scan(tick, init, indexed_keys(key, TICKS))[1][1]


@pytest.mark.slow
def test_each_game_matches_the_game_played_alone():
    params = LeagueEnv(GAME_ENV, NUM_GAMES).spec.params
    params = eqx.tree_at(
        lambda p: (p.seat, p.random_policy), params, (jnp.array([0, 1, 0]), jnp.array([True, True, False]))
    )
    lengths = set()
    for seed in range(6):
        first_step, steps = play_together(params, seed_key(seed))
        over = np.asarray(steps.agent_outcomes[LEAGUE_GROUP].terminated)
        before = np.concatenate([np.zeros((1, NUM_GAMES), bool), over[:-1]])
        np.testing.assert_array_equal(steps.alive[LEAGUE_GROUP], ~over)
        np.testing.assert_array_equal(steps.reward, steps.agent_outcomes[LEAGUE_GROUP].reward[:, 0])
        np.testing.assert_array_equal(steps.terminated, over.all(axis=1))
        assert bool(first_step.alive[LEAGUE_GROUP].all())
        for i in range(NUM_GAMES):
            first_alone, steps_alone = play_alone(params, seed_key(seed), i)
            np.testing.assert_array_equal(over[:, i], steps_alone.terminated)
            np.testing.assert_array_equal(
                steps.agent_outcomes[LEAGUE_GROUP].reward[:, i],
                np.where(before[:, i], 0.0, np.asarray(steps_alone.reward)),
            )
            for axis, together, alone in ((0, first_step, first_alone), (1, steps, steps_alone)):
                obs = jax.tree.map(
                    lambda x, i=i, axis=axis: np.take(np.asarray(x), i, axis), together.observation[LEAGUE_GROUP]
                )
                jax.tree.map(np.testing.assert_array_equal, obs, alone.observation)
        lengths |= {tuple(np.argmax(over, axis=0))}
    assert any(len(set(times)) > 1 for times in lengths), "some games waited for others"

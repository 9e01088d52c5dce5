"""The random game's exact returns against episodes that are played, and against every joint plan."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.keys import key_of, per_index
from thespis.envs.compiled.stochastic_game import SECOND, THIRD, StochasticGame
from thespis.envs.registry import compiled

WORLDS = [f"thespis.envs.compiled.stochastic_game:{name}" for name in ("StochasticGame", "SECOND", "THIRD")]
SMALL = StochasticGame(agents=2, choices=2, states=2, limit=3)


def test_it_keeps_the_contract_and_is_drawn_anew_for_each_number():
    check_environment(SMALL)
    games = [compiled(world) for world in WORLDS]
    assert games[1:] == [SECOND, THIRD]
    rewards = np.stack([game.tables().reward for game in games])
    assert rewards.shape == (3, 6, 64) and len(np.unique(rewards)) > 1100 and 0 <= rewards.min() <= rewards.max() <= 1
    np.testing.assert_allclose(games[0].tables().chance.sum(-1), 1.0, atol=1e-5)


def test_the_worth_of_policies_is_the_mean_return_of_episodes():
    """Of agents that differ, in a game where the order of their choices matters."""
    game = StochasticGame(agents=3, choices=2, states=3, limit=4)
    policies = jax.random.dirichlet(key_of(3), jnp.full(2, 0.5), (3, 3))

    def episode(key):
        reset_key, *keys = jax.random.split(key, 1 + game.limit)
        state, answer = game.reset((), reset_key)
        total = jnp.zeros(())
        for k in keys:
            choose_key, step_key = jax.random.split(k)
            chances = policies[jnp.arange(3), jnp.argmax(answer.observation["agent"], axis=-1)]
            done = jax.vmap(jax.random.categorical)(jax.random.split(choose_key, 3), jnp.log(chances))
            state, answer = game.step(state, {"agent": done.astype("int32")}, step_key)
            total += answer.reward
        return total, answer.truncated

    totals, over = jax.jit(jax.vmap(episode))(per_index(key_of(1), 20_000))
    assert over.all()
    error = totals.std() / np.sqrt(totals.size)
    assert float(game.worth(policies)) == pytest.approx(float(totals.mean()), abs=4 * float(error))
    swapped = [float(game.worth(jnp.roll(policies, turn, axis=0))) for turn in (1, 2)]
    assert np.abs(np.array(swapped) - float(totals.mean())).max() > 10 * float(error)  # it could have been told


def test_the_best_return_is_that_of_the_best_of_all_plans():
    """A plan is a joint choice for every state and time: 4^6 of them, each by its own recursion."""
    tables = jax.tree.map(lambda x: np.asarray(x, np.float64), SMALL.tables())
    best = -np.inf
    for plan in itertools.product(range(4), repeat=6):
        worth = np.zeros(2)
        for time in range(3):
            done = np.array(plan[2 * time : 2 * time + 2])
            worth = tables.reward[[0, 1], done] + tables.chance[[0, 1], done] @ worth
        best = max(best, worth.mean())
    assert float(SMALL.best()) == pytest.approx(best, rel=1e-5)
    alike = jnp.full((2, 2, 2), 0.5)
    assert float(SMALL.worth(alike)) < best - 0.1

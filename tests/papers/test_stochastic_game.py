"""Stochastic game: exact returns against sampled episodes, and the optimal return against all joint plans."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.registry import make_compiled
from thespis.papers.decentralized_policy_optimization.envs import STOCHASTIC_GAME_1, STOCHASTIC_GAME_2, StochasticGame
from thespis.runtime.keys import indexed_keys, seed_key

ENVS = [
    f"thespis.papers.decentralized_policy_optimization.envs:{name}"
    for name in ("StochasticGame", "STOCHASTIC_GAME_1", "STOCHASTIC_GAME_2")
]
SMALL = StochasticGame(num_agents=2, num_actions=2, num_states=2, time_limit=3)


def test_contract_and_distinct_random_games():
    check_environment(SMALL)
    games = [make_compiled(env) for env in ENVS]
    assert games[1:] == [STOCHASTIC_GAME_1, STOCHASTIC_GAME_2]
    rewards = np.stack([game.model().rewards for game in games])
    assert rewards.shape == (3, 6, 64) and len(np.unique(rewards)) > 1100 and 0 <= rewards.min() <= rewards.max() <= 1
    np.testing.assert_allclose(games[0].model().transition_probs.sum(-1), 1.0, atol=1e-5)


def test_expected_return_matches_sampled_episodes():
    """With different policies of the agents, in a game where their order matters."""
    game = StochasticGame(num_agents=3, num_actions=2, num_states=3, time_limit=4)
    policies = jax.random.dirichlet(seed_key(3), jnp.full(2, 0.5), (3, 3))

    def episode(key):
        reset_key, *keys = jax.random.split(key, 1 + game.time_limit)
        state, timestep = game.reset((), reset_key)
        total = jnp.zeros(())
        for k in keys:
            choose_key, step_key = jax.random.split(k)
            probs = policies[jnp.arange(3), jnp.argmax(timestep.observation["agent"], axis=-1)]
            actions = jax.vmap(jax.random.categorical)(jax.random.split(choose_key, 3), jnp.log(probs))
            state, timestep = game.step(state, {"agent": actions.astype("int32")}, step_key)
            total += timestep.reward
        return total, timestep.truncated

    totals, over = jax.jit(jax.vmap(episode))(indexed_keys(seed_key(1), 20_000))
    assert over.all()
    error = totals.std() / np.sqrt(totals.size)
    assert float(game.expected_return(policies)) == pytest.approx(float(totals.mean()), abs=4 * float(error))
    swapped = [float(game.expected_return(jnp.roll(policies, turn, axis=0))) for turn in (1, 2)]
    # the test would detect a wrong order
    assert np.abs(np.array(swapped) - float(totals.mean())).max() > 10 * float(error)


def test_optimal_return_matches_enumeration_of_plans():
    """A plan is a joint action for every state and time: 4^6 of them, each by its own recursion."""
    tables = jax.tree.map(lambda x: np.asarray(x, np.float64), SMALL.model())
    best = -np.inf
    for plan in itertools.product(range(4), repeat=6):
        value = np.zeros(2)
        for time in range(3):
            actions = np.array(plan[2 * time : 2 * time + 2])
            value = tables.rewards[[0, 1], actions] + tables.transition_probs[[0, 1], actions] @ value
        best = max(best, value.mean())
    assert float(SMALL.optimal_return()) == pytest.approx(best, rel=1e-5)
    uniform = jnp.full((2, 2, 2), 0.5)
    assert float(SMALL.expected_return(uniform)) < best - 0.1

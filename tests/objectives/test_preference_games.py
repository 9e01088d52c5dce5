"""Preference games: cyclic tables, equilibria, and which steps converge."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.objectives import preference_games as games

NUM_STEPS = 20_000


@pytest.mark.parametrize("num_responses", [3, 10, 11])
def test_tables_are_complementary_and_cyclic(num_responses):
    table = games.cyclic_preferences(num_responses, seed=2)
    np.testing.assert_allclose(table + table.T, 1.0, atol=1e-6)
    assert ((table >= 0) & (table <= 1)).all()
    num_beaten = (table > 0.6).sum(axis=1)
    assert (abs(num_beaten - (num_responses - 1) / 2) <= 1).all()
    assert not np.array_equal(table, games.cyclic_preferences(num_responses, seed=3))


def test_three_without_noise_are_rock_paper_scissors():
    table = games.cyclic_preferences(3, noise=0.0, strength=1.0)
    assert sorted(table.ravel()) == [0.0] * 3 + [0.5] * 3 + [1.0] * 3
    assert float(games.exploitability(jnp.asarray(table), jnp.full(3, 1 / 3))) == pytest.approx(0, abs=1e-6)
    assert float(games.exploitability(jnp.asarray(table), jnp.array([1.0, 0, 0]))) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_the_equilibrium_is_not_exploitable(seed):
    table = games.cyclic_preferences(10, seed)
    policy = jnp.asarray(games.equilibrium(table), "float32")
    assert float(games.exploitability(jnp.asarray(table), policy)) == pytest.approx(0, abs=1e-5)
    best = jnp.zeros(10).at[np.argmax(table @ np.full(10, 0.1))].set(1.0)
    assert float(games.exploitability(jnp.asarray(table), best)) > 0.1


def test_dominated_responses_lose_and_are_not_of_the_equilibrium():
    table = games.add_dominated(games.cyclic_preferences(3, seed=1, strength=0.4, noise=0.1), 7, 0.95)
    np.testing.assert_allclose(table + table.T, 1.0, atol=1e-6)
    assert (table[:3, 3:] == np.float32(0.95)).all() and (table[3:, 3:] == 0.5).all()
    policy = games.equilibrium(table)
    np.testing.assert_allclose(policy[3:], 0.0, atol=1e-9)
    assert float(games.exploitability(jnp.asarray(table), jnp.asarray(policy))) == pytest.approx(0, abs=1e-6)
    assert float(games.exploitability(jnp.asarray(table), jnp.full(10, 0.1))) > 0.3


def test_geometric_mixture_by_hand():
    first, second = np.array([0.5, 0.25, 0.25]), np.array([0.1, 0.1, 0.8])
    product = first**0.7 * second**0.3
    mixture = jnp.exp(games.geometric_mixture(jnp.log(first), jnp.log(second), 0.3))
    np.testing.assert_allclose(mixture, product / product.sum(), rtol=1e-5)


def exploitabilities(table, step):
    """Exploitability ``[iteration]`` of the policies from a random one on."""
    begin = jax.nn.log_softmax(jax.random.normal(jax.random.key(1), (len(table),)))

    def body(log_policy, _):
        new = step(log_policy)
        return new, games.exploitability(table, jnp.exp(new))

    return np.asarray(jax.jit(lambda x: jax.lax.scan(body, x, None, NUM_STEPS)[1])(begin))


def test_nash_md_and_inpo_converge_where_self_play_cycles():
    """On ten random cyclic tables of ten responses. INPO's step is that of its exact loss (see its test)."""
    kl_coef, step_size = 0.01, 0.1
    uniform = jnp.full(10, -jnp.log(10.0))
    for seed in range(10):
        table = jnp.asarray(games.cyclic_preferences(10, seed))

        def nash_md(policy, table=table):
            return games.nash_md_step(policy, uniform, table, kl_coef, step_size)

        def inpo(policy, table=table):
            mixture = games.geometric_mixture(policy, uniform, kl_coef * step_size)
            return games.mirror_descent_step(mixture, games.win_rates(table, jnp.exp(policy)), step_size)

        def self_play(policy, table=table):
            return games.mirror_descent_step(policy, games.win_rates(table, jnp.exp(policy)), step_size)

        assert exploitabilities(table, nash_md)[-1] <= 0.01
        assert exploitabilities(table, inpo)[-1] <= 0.01
        late = exploitabilities(table, self_play)[NUM_STEPS // 2 :]
        assert late.mean() > 0.2
        assert (late > 0.1).mean() > 0.9

"""Pair trading against the distribution of its price and a cash account; risky path against dynamic programming."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.convex_scoring_risk_sensitive_ac.envs import (
    FLAT_PAIR_TRADING,
    PAIR_TRADING,
    RISKY_PATH,
    VOLATILE_PAIR_TRADING,
    PairTrading,
    PairTradingState,
    ReturnObservation,
    RiskyPath,
)

KAPPA, MEAN, SIGMA, PHI, PSI, STEPS = 2.0, 1.0, 0.2, 0.005, 0.5, 5


def rollout(env, orders, episodes=1, start=None):
    """States and time steps of ``orders``, leaves ``[time, episode]``."""

    def episode(key):
        state, _ = env.reset(env.spec.params, key)
        state = state if start is None else start

        def step(state, inputs):
            order, key = inputs
            state, timestep = env.step(state, order, key)
            return state, (state, timestep)

        return jax.lax.scan(step, state, (orders, jax.random.split(key, len(orders))))[1]

    return jax.jit(jax.vmap(episode, out_axes=1))(jax.random.split(jax.random.key(0), episodes))


def trading_state(price, holding, env=None):
    params = (env or PairTrading()).spec.params
    return PairTradingState(jnp.float32(price), jnp.float32(holding), jnp.int32(0), params)


def test_price_moments():
    """One step against closed forms, many steps against the stationary distribution."""
    dt = 1 / STEPS
    states, _ = rollout(PairTrading(), jnp.zeros((1, 1)), 20_000, trading_state(1.5, 0.0))
    prices = np.asarray(states.price)[0]
    assert prices.mean() == pytest.approx(MEAN + 0.5 * np.exp(-KAPPA * dt), abs=0.003)
    assert prices.var() == pytest.approx(SIGMA**2 * (1 - np.exp(-2 * KAPPA * dt)) / (2 * KAPPA), rel=0.04)
    states, _ = rollout(PairTrading(), jnp.zeros((30, 1)), 5_000)
    assert np.var(np.asarray(states.price)[-1]) == pytest.approx(SIGMA**2 / (2 * KAPPA), rel=0.08)


@pytest.mark.parametrize(("env", "holding_cost"), [(PairTrading(), PSI), (VOLATILE_PAIR_TRADING.env, 0.005)])
def test_rewards_match_the_cash_account(env, holding_cost):
    """Orders are filled at the current prices, and the holding is sold at the last price at the end."""
    orders = np.array([[1.5], [-2.0], [9.0], [2.0], [-1.0]])
    states, timesteps = rollout(env, jnp.asarray(orders), 3, trading_state(0.8, 4.0, env))
    prices, holdings = np.asarray(states.price), np.asarray(states.holding)
    for i in range(3):
        bought = np.diff(np.concatenate([[4.0], holdings[:, i]]))
        cash = -(bought * prices[:, i]).sum() + holdings[-1, i] * prices[-1, i] - 4.0 * 0.8
        fees = PHI * (np.clip(orders[:, 0], -2, 2) ** 2).sum() + holding_cost * holdings[-1, i] ** 2
        assert np.asarray(timesteps.reward)[:, i].sum() == pytest.approx(cash - fees, abs=1e-4)
    assert holdings[:, 0].tolist() == [5.0, 3.0, 5.0, 5.0, 4.0]
    assert np.asarray(timesteps.terminated)[:, 0].tolist() == [False] * 4 + [True]


def test_volatile_prices():
    """Prices move five times as much; who never trades neither gains nor loses."""
    env = VOLATILE_PAIR_TRADING.env
    states, _ = rollout(env, jnp.zeros((1, 1)), 20_000, trading_state(1.5, 0.0, env))
    variance = 1.0 * (1 - np.exp(-2 * KAPPA / STEPS)) / (2 * KAPPA)
    assert np.asarray(states.price)[0].var() == pytest.approx(variance, rel=0.04)
    _, timesteps = rollout(VOLATILE_PAIR_TRADING, jnp.zeros((STEPS, 1)), 50)
    assert not np.any(timesteps.reward) and np.asarray(timesteps.terminated)[-1].all()


def test_return_is_observed():
    _, timesteps = rollout(ReturnObservation(PairTrading(), scale=2.0), jnp.ones((5, 1)), 4)
    earned = np.cumsum(timesteps.reward, axis=0)
    np.testing.assert_allclose(np.asarray(timesteps.observation["earned"])[..., 0], earned / 2, atol=1e-6)


def test_spread_of_initial_holdings_and_prices():
    keys = jax.random.split(jax.random.key(2), 4_000)
    states = jax.vmap(lambda key: PairTrading().reset(PairTrading().spec.params, key)[0])(keys)
    assert np.std(states.price) == pytest.approx(4 * SIGMA / np.sqrt(2 * KAPPA), rel=0.05)
    assert np.std(states.holding) == pytest.approx(10 / np.sqrt(12), rel=0.05) and np.abs(states.holding).max() <= 5
    assert FLAT_PAIR_TRADING.reset(FLAT_PAIR_TRADING.spec.params, keys[0])[0].env_state.holding == 0


@pytest.mark.parametrize("env", [PAIR_TRADING, RISKY_PATH])
def test_contract(env):
    check_environment(env)


RISKS, LENGTH, LOSS, LIMIT = (0.1, 0.04, 0.0), 4, 6, 12


def reference_step(lane, column, action):
    """Reference step: next lane and column, and the probability of the additional cost ``LOSS``."""
    if action == 2:
        return lane, min(column + 1, LENGTH), RISKS[lane] if column < LENGTH else 0.0
    return min(max(lane + (1, -1)[action], 0), 2), column, 0.0


def min_expected_score(score):
    """The minimal expected score of the total cost, over all policies that observe the cost so far."""

    @functools.cache
    def value(lane, column, time, cost):
        if (lane, column) == (0, LENGTH) or time == LIMIT:
            return score(cost)
        scores = []
        for action in range(3):
            to_lane, to_column, chance = reference_step(lane, column, action)
            outcomes = (1 - chance, cost + 1), (chance, cost + 1 + LOSS)
            scores.append(sum(p * value(to_lane, to_column, time + 1, c) for p, c in outcomes if p))
        return min(scores)

    return value(0, 0, 0, 0)


def min_shortfall(level):
    """The minimal expected shortfall, over all auxiliary variables: the kinks lie at the possible costs."""
    return min(
        min_expected_score(lambda cost, v=v: v + max(cost - v, 0) / (1 - level)) for v in range(4, 12 + 4 * LOSS + 1)
    )


def test_optimal_scores_of_the_risky_path():
    """The lowest lane minimizes the mean cost; the safe lane (8 steps) the mean of the worst fifth."""
    assert min_expected_score(lambda cost: cost) == pytest.approx(4 + 4 * 0.1 * LOSS)
    assert min_shortfall(0.8) == pytest.approx(8.0)


def test_every_step_matches_the_reference():
    env = RiskyPath()
    for lane in range(3):
        for column in range(LENGTH + 1):
            for action in range(3):
                state = type(env.reset((), jax.random.key(0))[0])(*(jnp.int32(x) for x in (lane, column, 0)))
                after, timestep = env.step(state, jnp.int32(action), jax.random.key(0))
                to_lane, to_column, _ = reference_step(lane, column, action)
                assert (int(after.lane), int(after.column)) == (to_lane, to_column)
                assert bool(timestep.terminated) == ((to_lane, to_column) == (0, LENGTH))


def test_frequency_of_losses():
    env = RiskyPath()
    state, _ = env.reset((), jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 20_000)
    rewards = jax.jit(jax.vmap(lambda key: env.step(state, jnp.int32(2), key)[1].reward))(keys)
    assert set(np.unique(rewards).tolist()) == {-1.0, -7.0}
    assert np.mean(np.asarray(rewards) == -7.0) == pytest.approx(0.1, abs=0.01)

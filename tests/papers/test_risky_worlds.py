"""Pair trading against the law of its price and against cash; the risky path against every way to walk it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.accumulated import Accumulated
from thespis.envs.compiled.pair_trading import FLAT, PairTrading, Position
from thespis.envs.compiled.pair_trading import TOLD as PAIRS
from thespis.envs.compiled.risky_path import TOLD as PATH
from thespis.envs.compiled.risky_path import RiskyPath
from thespis.evidence.claims import AtLeast
from thespis.papers.convex_scoring_risk_sensitive_ac import PAPER

KAPPA, MEAN, SIGMA, PHI, PSI, STEPS = 2.0, 1.0, 0.2, 0.005, 0.5, 5


def played(world, orders, episodes=1, start=None):
    """States and answers of ``orders``, leaves ``[time, episode]``."""

    def one(key):
        state, _ = world.reset(world.spec.params, key)
        state = state if start is None else start

        def step(state, inputs):
            order, key = inputs
            state, answer = world.step(state, order, key)
            return state, (state, answer)

        return jax.lax.scan(step, state, (orders, jax.random.split(key, len(orders))))[1]

    return jax.jit(jax.vmap(one, out_axes=1))(jax.random.split(jax.random.key(0), episodes))


def at(price, held):
    return Position(jnp.float32(price), jnp.float32(held), jnp.int32(0), PairTrading().spec.params)


def test_prices_follow_the_law_of_their_process():
    """Moments of one step in closed form, and of many steps: the stationary law."""
    dt = 1 / STEPS
    states, _ = played(PairTrading(), jnp.zeros((1, 1)), 20_000, at(1.5, 0.0))
    prices = np.asarray(states.price)[0]
    assert prices.mean() == pytest.approx(MEAN + 0.5 * np.exp(-KAPPA * dt), abs=0.003)
    assert prices.var() == pytest.approx(SIGMA**2 * (1 - np.exp(-2 * KAPPA * dt)) / (2 * KAPPA), rel=0.04)
    states, _ = played(PairTrading(), jnp.zeros((30, 1)), 5_000)
    assert np.var(np.asarray(states.price)[-1]) == pytest.approx(SIGMA**2 / (2 * KAPPA), rel=0.08)


def test_gains_are_what_the_cash_says():
    """Buying and selling at the prices of the fills, with all that is held sold at the end at the last price."""
    orders = np.array([[1.5], [-2.0], [9.0], [2.0], [-1.0]])
    states, answers = played(PairTrading(), jnp.asarray(orders), 3, at(0.8, 4.0))
    prices, held = np.asarray(states.price), np.asarray(states.held)
    for i in range(3):
        bought = np.diff(np.concatenate([[4.0], held[:, i]]))
        cash = -(bought * prices[:, i]).sum() + held[-1, i] * prices[-1, i] - 4.0 * 0.8
        fees = PHI * (np.clip(orders[:, 0], -2, 2) ** 2).sum() + PSI * held[-1, i] ** 2
        assert np.asarray(answers.reward)[:, i].sum() == pytest.approx(cash - fees, abs=1e-4)
    assert held[:, 0].tolist() == [5.0, 3.0, 5.0, 5.0, 4.0]
    assert np.asarray(answers.terminated)[:, 0].tolist() == [False] * 4 + [True]


def test_what_was_earned_is_seen():
    _, answers = played(Accumulated(PairTrading(), unit=2.0), jnp.ones((5, 1)), 4)
    earned = np.cumsum(answers.reward, axis=0)
    np.testing.assert_allclose(np.asarray(answers.observation["earned"])[..., 0], earned / 2, atol=1e-6)


def test_holdings_and_prices_begin_as_wide_as_told():
    keys = jax.random.split(jax.random.key(2), 4_000)
    begun = jax.vmap(lambda key: PairTrading().reset(PairTrading().spec.params, key)[0])(keys)
    assert np.std(begun.price) == pytest.approx(4 * SIGMA / np.sqrt(2 * KAPPA), rel=0.05)
    assert np.std(begun.held) == pytest.approx(10 / np.sqrt(12), rel=0.05) and np.abs(begun.held).max() <= 5
    assert FLAT.reset(FLAT.spec.params, keys[0])[0].inner.held == 0


@pytest.mark.parametrize("world", [PAIRS, PATH])
def test_they_keep_the_laws(world):
    check_environment(world)


RISKS, LENGTH, LOSS, LIMIT = (0.1, 0.04, 0.0), 4, 6, 12


def stepped(lane, column, action):
    """Where an action leads, and with which chance it costs ``LOSS`` more."""
    if action == 2:
        return lane, min(column + 1, LENGTH), RISKS[lane] if column < LENGTH else 0.0
    return min(max(lane + (1, -1)[action], 0), 2), column, 0.0


def least(score):
    """The least expectation of a score of the whole cost, over all that a walker may do that knows its cost so far."""

    @functools.cache
    def value(lane, column, time, cost):
        if (lane, column) == (0, LENGTH) or time == LIMIT:
            return score(cost)
        found = []
        for action in range(3):
            to_lane, to_column, chance = stepped(lane, column, action)
            ends = (1 - chance, cost + 1), (chance, cost + 1 + LOSS)
            found.append(sum(p * value(to_lane, to_column, time + 1, c) for p, c in ends if p))
        return min(found)

    return value(0, 0, 0, 0)


def shortfall(level):
    """The best possible, over all auxiliary numbers: a kink lies at every cost."""
    return min(least(lambda cost, v=v: v + max(cost - v, 0) / (1 - level)) for v in range(4, 12 + 4 * LOSS + 1))


def test_the_best_ways_are_those_that_the_trial_knows():
    """On average the lowest lane is best; of the worst fifth of all costs the safe one, for 8 steps in all."""
    assert least(lambda cost: cost) == pytest.approx(4 + 4 * 0.1 * LOSS)
    assert shortfall(0.8) == pytest.approx(8.0)
    bounds = [claim.bound for claim in PAPER.miniature.claims if isinstance(claim, AtLeast)]
    assert bounds == [-8.25, -6.65]


def test_every_step_is_as_told():
    world = RiskyPath()
    for lane in range(3):
        for column in range(LENGTH + 1):
            for action in range(3):
                state = type(world.reset((), jax.random.key(0))[0])(*(jnp.int32(x) for x in (lane, column, 0)))
                after, answer = world.step(state, jnp.int32(action), jax.random.key(0))
                to_lane, to_column, _ = stepped(lane, column, action)
                assert (int(after.lane), int(after.column)) == (to_lane, to_column)
                assert bool(answer.terminated) == ((to_lane, to_column) == (0, LENGTH))


def test_losses_come_as_often_as_they_should():
    world = RiskyPath()
    state, _ = world.reset((), jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 20_000)
    paid = jax.jit(jax.vmap(lambda key: world.step(state, jnp.int32(2), key)[1].reward))(keys)
    assert set(np.unique(paid).tolist()) == {-1.0, -7.0}
    assert np.mean(np.asarray(paid) == -7.0) == pytest.approx(0.1, abs=0.01)

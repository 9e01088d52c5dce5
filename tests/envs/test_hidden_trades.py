"""Hidden trades: successes, rewards, beliefs and observations against loops in Python, and the best return."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.compiled.hidden_trades import GROUP, HIDDEN, HiddenTrades
from thespis.runtime.keys import seed_key

ENV = HiddenTrades(num_trades=2, skilled_prob=0.7, unskilled_prob=0.2, num_steps=3)


def reward_of(env: HiddenTrades, jobs, successes) -> int:
    pieces = [0] * env.num_trades
    for job, success in zip(jobs, successes, strict=True):
        pieces[job] += bool(success)
    return min(pieces)


def expected_reward(env: HiddenTrades, trades, jobs) -> float:
    """By enumeration of all outcomes."""
    probs = [env.skilled_prob if t == j else env.unskilled_prob for t, j in zip(trades, jobs, strict=True)]
    return sum(
        reward_of(env, jobs, outcome) * np.prod([p if x else 1 - p for p, x in zip(probs, outcome, strict=True)])
        for outcome in itertools.product((0, 1), repeat=len(jobs))
    )


@pytest.mark.long
@pytest.mark.parametrize("jobs", [(0, 0, 1, 1), (1, 0, 1, 0), (0, 1, 1, 1), (0, 0, 0, 0)])
def test_rewards_match_enumeration(jobs):
    trades = (0, 1, 1, 0)
    state = eqx.tree_at(lambda s: s.trades, ENV.reset((), seed_key(0))[0], jnp.array(trades, "int32"))
    keys = jax.random.split(seed_key(1), 8_000)
    after, step = jax.vmap(lambda key: ENV.step(state, {GROUP: jnp.array(jobs, "int32")}, key))(keys)
    assert abs(float(step.reward.mean()) - expected_reward(ENV, trades, jobs)) < 0.03
    for successes, reward in zip(np.asarray(after.successes)[:50], np.asarray(step.reward)[:50], strict=True):
        assert reward == reward_of(ENV, jobs, successes)


def test_best_return_is_that_of_workers_at_their_trades():
    for env in (ENV, HiddenTrades(num_per_trade=1), HIDDEN):
        trades = [i // env.num_per_trade for i in range(env.num_workers)]
        assert env.optimal_return() == pytest.approx(env.num_steps * expected_reward(env, trades, trades))


def test_every_episode_has_as_many_workers_of_each_trade_in_another_order():
    states, _ = jax.vmap(lambda key: HIDDEN.reset((), key))(jax.random.split(seed_key(2), 300))
    trades = np.asarray(states.trades)
    np.testing.assert_array_equal(np.sort(trades, axis=1), np.tile([0, 0, 1, 1, 2, 2], (300, 1)))
    np.testing.assert_allclose(trades.mean(axis=0), 1.0, atol=0.2)


@pytest.mark.long
def test_beliefs_and_observations_match_a_record_of_all_steps():
    env = HiddenTrades(num_trades=3, num_per_trade=1, skilled_prob=0.7, unskilled_prob=0.2, trades_visible=True)
    state, step = env.reset((), seed_key(3))
    odds = np.ones((3, 3))
    for time in range(1, env.num_steps + 1):
        jobs = np.random.default_rng(time).integers(0, 3, 3).astype("int32")
        state, step = env.step(state, {GROUP: jnp.array(jobs)}, jax.random.fold_in(seed_key(4), time))
        successes, trades = np.asarray(state.successes), np.asarray(state.trades)
        for worker, trade in itertools.product(range(3), range(3)):
            prob = 0.7 if trade == jobs[worker] else 0.2
            odds[worker, trade] *= prob if successes[worker] else 1 - prob
            seen = np.asarray(step.observation[GROUP])[worker]
            assert seen[trade] == (jobs[worker] == trade)
            assert seen[3 + trade] == (jobs[worker] == trade and successes[worker])
            assert seen[7 + trade] == (trades[worker] == trade)
        assert np.allclose(np.asarray(step.observation[GROUP])[:, 6], time / env.num_steps)
        np.testing.assert_allclose(env.beliefs(state), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)
        np.testing.assert_array_equal(step.privileged[-10:-1].reshape(3, 3).argmax(axis=1), trades)
    assert bool(step.terminated)
    np.testing.assert_allclose(env.reset((), seed_key(3))[1].observation[GROUP][:, :7], 0.0)


@pytest.mark.long
def test_contract_and_errors():
    check_environment(ENV)
    with pytest.raises(UserError, match="two trades"):
        HiddenTrades(num_trades=1)
    with pytest.raises(UserError, match="unskilled_prob=0"):
        HiddenTrades(unskilled_prob=0.0)

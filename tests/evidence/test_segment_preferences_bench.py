"""Bench of preferences between segments: its measures of a best, a random and a circling policy, by hand."""

import types

import jax.numpy as jnp
import numpy as np

from thespis.evidence.benches import segment_preferences as bench
from thespis.papers.regret_preference_model.planning import action_values, optimal_values


def policies(logits):
    """A finished run of one seed, whose policy has these logits."""
    method = types.SimpleNamespace(policy=lambda state, mode: types.SimpleNamespace(logits=state))
    return types.SimpleNamespace(method=method, states=jnp.asarray(logits)[None], config={"env": bench.ENVS[0]})


def test_returns_and_missed_goals_of_known_policies():
    tables = bench.GRID_A.tables
    dynamics = tables.next_state, tables.is_terminal
    values = optimal_values(tables.rewards, *dynamics, 1.0, 50)
    best = action_values(tables.rewards, values, *dynamics, 1.0)
    circling = np.where(np.asarray(tables.next_state) == np.arange(36)[:, None], 1.0, 0.0)  # stays at walls if it can
    returns, shares = bench.normalized_return(), bench.missed_goals()
    assert np.isclose(returns.compute(policies(best))[0], 1.0, atol=1e-4)
    assert np.isclose(shares.compute(policies(best))[0], 0.0, atol=1e-6)
    sampled = bench.normalized_return(bench.Mode.SAMPLE)
    assert np.isclose(sampled.compute(policies(np.zeros((36, 4))))[0], 0.0, atol=1e-5)
    assert shares.compute(policies(circling))[0] > 0.4


def test_pairs_of_actions_in_the_order_of_their_values():
    tables = bench.GRID_A.tables
    dynamics = tables.next_state, tables.is_terminal
    values = optimal_values(tables.rewards, *dynamics, bench.DISCOUNT, 50)
    best = np.asarray(action_values(tables.rewards, values, *dynamics, bench.DISCOUNT))
    order = bench.ordered_actions()
    assert order.compute(policies(best))[0] == 1 and order.compute(policies(-best))[0] == 0
    logits, agreed, total = np.random.default_rng(0).normal(size=(36, 4)), 0, 0
    for cell in np.flatnonzero(np.asarray(tables.is_start)):
        for i in range(4):
            for j in range(i):
                if abs(best[cell, i] - best[cell, j]) > 1e-3:
                    total += 1
                    agreed += (best[cell, i] > best[cell, j]) == (logits[cell, i] > logits[cell, j])
    assert np.isclose(order.compute(policies(logits))[0], agreed / total)

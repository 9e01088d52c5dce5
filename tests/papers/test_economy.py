"""AI Economist: taxes and utilities by hand, best responses by brute force, Saez's rate where it is exact."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.papers.ai_economist.envs import (
    EQUALITY_ECONOMY,
    Economy,
    EqualityTimesProductivity,
    InverseIncomeWelfare,
    saez_tax_rates,
)
from thespis.runtime.keys import seed_key

ECONOMY = Economy()


def by_hand(rates, labour, skills=ECONOMY.skills, cutoffs=(0.0, 2.0, 5.0)):
    """Incomes, coins and utilities, worker by worker; labour costs a third of its cube at elasticity one half."""
    income = [w * hours for w, hours in zip(skills, labour, strict=True)]
    taxes = []
    for z in income:
        total = 0.0
        for i, rate in enumerate(rates):
            high = cutoffs[i + 1] if i + 1 < len(cutoffs) else float("inf")
            total += rate * max(min(z, high) - cutoffs[i], 0.0)
        taxes.append(total)
    share = sum(taxes) / len(taxes)
    coin = [z - t + share for z, t in zip(income, taxes, strict=True)]
    return income, coin, [c - hours**3 / 3 for c, hours in zip(coin, labour, strict=True)]


def test_rewards_match_computation_by_hand():
    rates, levels = jnp.array([1, 4, 7]), jnp.array([0, 5, 9, 12, 16, 20, 25, 22])
    state, step = ECONOMY.reset((), seed_key(0))
    assert step.alive["planner"].all() and not step.alive["worker"].any()
    state, step = ECONOMY.step(state, {"planner": rates[None], "worker": 0 * levels}, seed_key(0))
    assert step.alive["worker"].all() and not step.alive["planner"].any() and step.reward == 0
    np.testing.assert_allclose(step.observation["worker"][3], [2.0, 0.1, 0.4, 0.7], rtol=1e-6)
    state, step = ECONOMY.step(state, {"planner": 0 * rates[None], "worker": levels}, seed_key(0))
    income, coin, utility = by_hand(np.asarray(rates) / 10, np.asarray(levels) / 10)
    np.testing.assert_allclose(step.agent_outcomes["worker"].reward, utility, rtol=1e-5)
    weight = np.array([1 / max(z, 1) for z in income])
    assert step.terminated and step.reward == pytest.approx(weight @ utility / weight.sum(), rel=1e-5)
    gini = sum(abs(a - b) for a, b in itertools.product(coin, coin)) / (2 * len(coin) * sum(coin))
    expected = np.mean(income) * (1 - gini * 8 / 7)
    assert EqualityTimesProductivity()(*map(jnp.asarray, (income, coin, utility))) == pytest.approx(expected, rel=1e-5)


def test_optimal_labor_is_a_best_response():
    rates, rng = np.array([0.2, 0.5, 0.3]), np.random.default_rng(0)
    best = ECONOMY.optimal_labor(rates)
    utility = jax.jit(lambda labour: ECONOMY.settle_taxes(jnp.asarray(rates, "float32"), labour)[2])
    for worker in range(8):
        labour = rng.uniform(0, 2.5, 8)
        candidates = [
            labour * (np.arange(8) != worker) + hours * (np.arange(8) == worker) for hours in np.arange(26) / 10
        ]
        utilities = [float(utility(jnp.asarray(labour_of_all, "float32"))[worker]) for labour_of_all in candidates]
        assert utilities[round(best[worker] * 10)] == pytest.approx(max(utilities), abs=1e-5)
    fine = ECONOMY.optimal_labor(np.zeros(3), np.linspace(0, 2.5, 2_501))
    np.testing.assert_allclose(fine, np.sqrt(ECONOMY.skills), atol=1e-3)  # w ** e without taxes


def test_saez_rate_is_optimal_for_a_single_bracket():
    """With a single bracket the formula is exact: a fine grid finds the same rate, with fixed welfare weights."""
    skills = tuple(np.linspace(1.2, 5, 200).tolist())  # among many workers, the own share of a tax is negligible
    economy = dataclasses.replace(ECONOMY, skills=skills, bracket_cutoffs=(0.0,))
    (rate,) = saez_tax_rates(economy)
    wage = np.asarray(skills)
    weight = 1 / np.maximum(wage * np.sqrt((1 - rate) * wage), 1)

    def welfare(tau):
        labour = np.sqrt((1 - tau) * wage)
        income = wage * labour
        return weight @ ((1 - tau) * income + tau * income.mean() - labour**3 / 3)

    grid = np.linspace(0, 0.95, 951)
    assert rate == pytest.approx(grid[np.argmax([welfare(tau) for tau in grid])], abs=0.01) and 0.1 < rate < 0.9


def test_saez_welfare_is_above_no_taxes_and_near_the_optimum():
    all_rates = [np.array(rates) / 10 for rates in itertools.product((0, 3, 6, 9), repeat=3)]
    welfare = [ECONOMY.optimal_welfare(rates) for rates in all_rates]
    assert (
        max(welfare) * 0.97
        < ECONOMY.optimal_welfare(saez_tax_rates(ECONOMY))
        > 1.02 * ECONOMY.optimal_welfare(np.zeros(3))
    )


def test_contract():
    check_environment(EQUALITY_ECONOMY, num_steps=6)
    assert isinstance(ECONOMY.welfare, InverseIncomeWelfare) and isinstance(
        EQUALITY_ECONOMY.welfare, EqualityTimesProductivity
    )


def test_fixed_rates_hold_whatever_the_planner_chooses():
    rates, labor = (0.1, 0.24, 0.37), jnp.array([3, 8, 9, 14, 16, 20, 25, 21])
    env = dataclasses.replace(ECONOMY, fixed_rates=rates)
    check_environment(env)
    results = []
    for choice in ([0, 0, 0], [9, 3, 5]):
        state, _ = env.reset((), seed_key(0))
        action = {"planner": jnp.array([choice]), "worker": labor}
        state, timestep = env.step(state, action, seed_key(1))
        np.testing.assert_allclose(timestep.observation["worker"][:, 1:], np.tile(rates, (8, 1)), rtol=1e-6)
        results.append(env.step(state, action, seed_key(2))[1])
    utility = by_hand(rates, np.asarray(labor) * 0.1)[2]
    np.testing.assert_allclose(results[0].agent_outcomes["worker"].reward, utility, rtol=1e-5)
    assert float(results[0].reward) == float(results[1].reward)

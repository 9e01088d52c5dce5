"""An economy by hand: taxes, best replies by brute force, Saez's rate where it is exact."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.keys import key_of
from thespis.envs.compiled.economy import FAIR, Economy, EqualityTimesProductivity, InverseIncome, saez

ECONOMY = Economy()


def by_hand(rates, labour, skills=ECONOMY.skills, cuts=(0.0, 2.0, 5.0)):
    """Incomes, coins and utilities, worker by worker; labour costs a third of its cube where elasticity is a half."""
    income = [w * hours for w, hours in zip(skills, labour, strict=True)]
    due = []
    for z in income:
        total = 0.0
        for i, rate in enumerate(rates):
            high = cuts[i + 1] if i + 1 < len(cuts) else float("inf")
            total += rate * max(min(z, high) - cuts[i], 0.0)
        due.append(total)
    share = sum(due) / len(due)
    coin = [z - t + share for z, t in zip(income, due, strict=True)]
    return income, coin, [c - hours**3 / 3 for c, hours in zip(coin, labour, strict=True)]


def test_everybody_is_paid_as_by_hand():
    rates, levels = jnp.array([1, 4, 7]), jnp.array([0, 5, 9, 12, 16, 20, 25, 22])
    state, step = ECONOMY.reset((), key_of(0))
    assert step.alive["planner"].all() and not step.alive["worker"].any()
    state, step = ECONOMY.step(state, {"planner": rates[None], "worker": 0 * levels}, key_of(0))
    assert step.alive["worker"].all() and not step.alive["planner"].any() and step.reward == 0
    np.testing.assert_allclose(step.observation["worker"][3], [2.0, 0.1, 0.4, 0.7], rtol=1e-6)
    state, step = ECONOMY.step(state, {"planner": 0 * rates[None], "worker": levels}, key_of(0))
    income, coin, utility = by_hand(np.asarray(rates) / 10, np.asarray(levels) / 10)
    np.testing.assert_allclose(step.each["worker"].reward, utility, rtol=1e-5)
    weight = np.array([1 / max(z, 1) for z in income])
    assert step.terminated and step.reward == pytest.approx(weight @ utility / weight.sum(), rel=1e-5)
    gini = sum(abs(a - b) for a, b in itertools.product(coin, coin)) / (2 * len(coin) * sum(coin))
    expected = np.mean(income) * (1 - gini * 8 / 7)
    assert EqualityTimesProductivity()(*map(jnp.asarray, (income, coin, utility))) == pytest.approx(expected, rel=1e-5)


def test_the_best_choice_is_best_whatever_the_others_do():
    rates, rng = np.array([0.2, 0.5, 0.3]), np.random.default_rng(0)
    best = ECONOMY.rational(rates)
    utility = jax.jit(lambda labour: ECONOMY.settled(jnp.asarray(rates, "float32"), labour)[2])
    for worker in range(8):
        labour = rng.uniform(0, 2.5, 8)
        tried = [labour * (np.arange(8) != worker) + hours * (np.arange(8) == worker) for hours in np.arange(26) / 10]
        found = [float(utility(jnp.asarray(each, "float32"))[worker]) for each in tried]
        assert found[round(best[worker] * 10)] == pytest.approx(max(found), abs=1e-5)
    fine = ECONOMY.rational(np.zeros(3), np.linspace(0, 2.5, 2_501))
    np.testing.assert_allclose(fine, np.sqrt(ECONOMY.skills), atol=1e-3)  # w ** e without taxes


def test_one_rate_for_all_is_where_no_other_is_better():
    """With a single bracket the formula is exact: a fine grid finds the same rate, weights held fixed."""
    skills = tuple(np.linspace(1.2, 5, 200).tolist())  # of many, nobody gets back what it pays
    economy = dataclasses.replace(ECONOMY, skills=skills, cuts=(0.0,))
    (rate,) = saez(economy)
    wage = np.asarray(skills)
    weight = 1 / np.maximum(wage * np.sqrt((1 - rate) * wage), 1)

    def welfare(tau):
        labour = np.sqrt((1 - tau) * wage)
        income = wage * labour
        return weight @ ((1 - tau) * income + tau * income.mean() - labour**3 / 3)

    grid = np.linspace(0, 0.95, 951)
    assert rate == pytest.approx(grid[np.argmax([welfare(tau) for tau in grid])], abs=0.01) and 0.1 < rate < 0.9


def test_taxes_by_the_formula_are_worth_more_than_none_and_not_far_from_the_best():
    all_rates = [np.array(rates) / 10 for rates in itertools.product((0, 3, 6, 9), repeat=3)]
    worth = [ECONOMY.worth(rates) for rates in all_rates]
    assert max(worth) * 0.97 < ECONOMY.worth(saez(ECONOMY)) > 1.02 * ECONOMY.worth(np.zeros(3))


def test_an_economy_is_a_world():
    check_environment(FAIR, ticks=6)
    assert isinstance(ECONOMY.welfare, InverseIncome) and isinstance(FAIR.welfare, EqualityTimesProductivity)

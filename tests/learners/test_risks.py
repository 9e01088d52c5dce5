"""Risks as the least of a score, against their closed forms on samples; and what an update is paid."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from cases import CHOICE, ppo

from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.keys import key_of
from thespis.core.samples import random_steps, random_view
from thespis.learners.risks import EntropicValue, Mean, Shortfall, Variance, risk_of
from thespis.methods.online.convex_scoring import ConvexScoring

COSTS = np.random.default_rng(0).gamma(2.0, 1.5, 1_000) - 2.0


def entropic(costs, level):
    """By scipy, over the logarithm of the auxiliary number."""

    def risk(log_v):
        scaled = costs * np.exp(-log_v)
        return np.exp(log_v) * (np.logaddexp.reduce(scaled) - np.log(len(costs) * (1 - level)))

    return scipy.optimize.minimize_scalar(risk, bounds=(-2.0, 4.0), method="bounded").fun


WANTED = {
    "mean": (Mean(), COSTS.mean()),
    "variance": (Variance(), COSTS.var()),
    "mean and variance": (Variance(mean=2.0), COSTS.var() + 2 * COSTS.mean()),
    "shortfall": (Shortfall(0.8), np.sort(COSTS)[-200:].mean()),
    "shortfall of a tenth": (Shortfall(0.9), np.sort(COSTS)[-100:].mean()),
    "entropic": (EntropicValue(0.8), entropic(COSTS, 0.8)),
}


@pytest.mark.parametrize("name", WANTED)
def test_the_least_score_is_the_risk(name):
    """And no other auxiliary number gives less, as far as scores are exact."""
    risk, wanted = WANTED[name]
    costs = jnp.asarray(COSTS, "float32")
    assert risk_of(risk, costs) == pytest.approx(wanted, rel=1e-4)

    def at(v):
        v = risk.within(v)
        return risk.outer(jnp.mean(jax.vmap(risk.score, in_axes=(0, None))(costs, v)), v)

    others = jax.vmap(at)(jnp.linspace(COSTS.max() / 30, 12.0, 200))
    assert float(others.min()) >= wanted - 1e-3 * abs(wanted)


def test_of_a_normal_cost_they_are_those_of_textbooks():
    """In deviations beyond the mean: shortfall ``pdf(z) / (1 - level)``, entropic ``sqrt(-2 log(1 - level))``."""
    quantiles = scipy.stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    costs = jnp.asarray(1.0 + 0.5 * quantiles, "float32")
    tail = scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.8)) / 0.2
    assert risk_of(Shortfall(0.8), costs) == pytest.approx(1.0 + 0.5 * tail, rel=1e-3)
    assert risk_of(EntropicValue(0.8), costs) == pytest.approx(1.0 + 0.5 * np.sqrt(-2 * np.log(0.2)), rel=2e-3)


def scored(risk, steps):
    method = ConvexScoring(ppo(discount=1.0), risk, feed=Episodes(4, envs=3))
    state = dataclasses.replace(made_up.begun(method, CHOICE.spec), auxiliary=jnp.float32(0.7))
    acting = jax.jit(lambda state, steps: made_up.experience(method, state, steps, made_up.quick_key(1)))
    batch = acting(state, steps)
    return batch, method._scored(batch)


@pytest.mark.parametrize("risk", [Shortfall(0.6), Variance(mean=1.0), EntropicValue()])
def test_what_is_paid_sums_to_the_score_of_the_whole_cost(risk):
    batch, paid = scored(risk, random_steps(CHOICE.spec, np.random.default_rng(3), 4, 3))
    for row in range(3):
        there, v = np.asarray(batch.mask)[:, row], batch.steps.extras["auxiliary"][:, row]
        assert (np.asarray(v)[there] == np.asarray(v)[0]).all()
        cost = -np.asarray(batch.steps.reward)[there, row].sum()
        wanted = risk.score(jnp.zeros(()), v[0]) - risk.score(jnp.float32(cost), v[0])
        assert np.asarray(paid.reward)[there, row].sum() == pytest.approx(float(wanted), abs=1e-4)
        assert not np.asarray(paid.reward)[~there, row].any()


def test_of_the_mean_what_is_paid_is_the_worlds_reward():
    batch, paid = scored(Mean(), random_steps(CHOICE.spec, np.random.default_rng(3), 4, 3))
    np.testing.assert_allclose(paid.reward, np.where(batch.mask, batch.steps.reward, 0.0), atol=1e-6)
    assert not batch.steps.extras["auxiliary"].any()


def test_every_episode_has_a_number_of_its_own_and_keeps_it():
    method = ConvexScoring(ppo(), Shortfall(), spread=0.5)
    state = dataclasses.replace(made_up.begun(method, CHOICE.spec), auxiliary=jnp.float32(2.0))
    views = jax.tree.map(jnp.asarray, random_view(CHOICE.spec, np.random.default_rng(0), (400,)))

    def told(mode):
        policy = method.policy(state, mode)
        memory = method.begin(policy, 400)
        _, memory, first = method.act(policy, memory, views, key_of(1))
        _, _, second = method.act(policy, memory, views, key_of(2))
        np.testing.assert_array_equal(first["auxiliary"], second["auxiliary"])
        return np.asarray(first["auxiliary"])

    drawn = told(Mode.EXPLORE)
    assert drawn.mean() == pytest.approx(2.0, abs=0.1) and drawn.std() == pytest.approx(0.5, abs=0.06)
    assert (told(Mode.EXPLOIT) == 2.0).all() and (told(Mode.SAMPLE) == 2.0).all()

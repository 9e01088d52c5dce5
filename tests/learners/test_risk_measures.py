"""Risk measures as minima of convex scores, against closed forms on samples; and the rewards of an update."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import synthetic_batches
from method_cases import CHOICE, ppo

from thespis.core.contracts import Mode
from thespis.core.laws.random_samples import random_transitions, random_view
from thespis.data.feeds import Episodes
from thespis.papers.convex_scoring_risk_sensitive_ac.method import ConvexScoring
from thespis.papers.convex_scoring_risk_sensitive_ac.risk_measures import (
    EntropicVaR,
    ExpectedShortfall,
    MeanCost,
    MeanVariance,
    estimate_risk,
)
from thespis.runtime.keys import seed_key

COSTS = np.random.default_rng(0).gamma(2.0, 1.5, 1_000) - 2.0


def entropic_var(costs, level):
    """Entropic value at risk by scipy, minimized over the logarithm of the auxiliary variable."""

    def risk(log_v):
        scaled = costs * np.exp(-log_v)
        return np.exp(log_v) * (np.logaddexp.reduce(scaled) - np.log(len(costs) * (1 - level)))

    return scipy.optimize.minimize_scalar(risk, bounds=(-2.0, 4.0), method="bounded").fun


RISKS = {
    "mean": (MeanCost(), COSTS.mean()),
    "variance": (MeanVariance(), COSTS.var()),
    "mean and variance": (MeanVariance(mean_coef=2.0), COSTS.var() + 2 * COSTS.mean()),
    "shortfall": (ExpectedShortfall(0.8), np.sort(COSTS)[-200:].mean()),
    "shortfall of a tenth": (ExpectedShortfall(0.9), np.sort(COSTS)[-100:].mean()),
    "entropic": (EntropicVaR(0.8), entropic_var(COSTS, 0.8)),
}


@pytest.mark.parametrize("name", RISKS)
def test_minimal_score_is_the_risk(name):
    """The estimate equals the closed form, and no other auxiliary value gives less, up to rounding."""
    risk, expected = RISKS[name]
    costs = jnp.asarray(COSTS, "float32")
    assert estimate_risk(risk, costs) == pytest.approx(expected, rel=1e-4)

    def risk_at(v):
        v = risk.project_auxiliary(v)
        return risk.outer_function(jnp.mean(jax.vmap(risk.score, in_axes=(0, None))(costs, v)), v)

    others = jax.vmap(risk_at)(jnp.linspace(COSTS.max() / 30, 12.0, 200))
    assert float(others.min()) >= expected - 1e-3 * abs(expected)


def test_risks_of_a_normal_cost_match_textbooks():
    """In deviations above the mean: shortfall ``pdf(z) / (1 - level)``, entropic ``sqrt(-2 log(1 - level))``."""
    quantiles = scipy.stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    costs = jnp.asarray(1.0 + 0.5 * quantiles, "float32")
    tail = scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.8)) / 0.2
    assert estimate_risk(ExpectedShortfall(0.8), costs) == pytest.approx(1.0 + 0.5 * tail, rel=1e-3)
    assert estimate_risk(EntropicVaR(0.8), costs) == pytest.approx(1.0 + 0.5 * np.sqrt(-2 * np.log(0.2)), rel=2e-3)


def score_batch(risk, steps):
    method = ConvexScoring(ppo(discount=1.0), risk, feed=Episodes(4, num_envs=3))
    state = dataclasses.replace(synthetic_batches.init_state(method, CHOICE.spec), auxiliary=jnp.float32(0.7))
    collect = jax.jit(
        lambda state, steps: synthetic_batches.collect_batch(method, state, steps, synthetic_batches.quick_key(1))
    )
    batch = collect(state, steps)
    return batch, method._score_rewards(batch)


@pytest.mark.long
@pytest.mark.parametrize("risk", [ExpectedShortfall(0.6), MeanVariance(mean_coef=1.0), EntropicVaR()])
def test_rewards_sum_to_the_score_of_the_total_cost(risk):
    batch, scored = score_batch(risk, random_transitions(CHOICE.spec, np.random.default_rng(3), 4, 3))
    for row in range(3):
        mask, v = np.asarray(batch.mask)[:, row], batch.steps.extras["auxiliary"][:, row]
        assert (np.asarray(v)[mask] == np.asarray(v)[0]).all()
        cost = -np.asarray(batch.steps.reward)[mask, row].sum()
        expected = risk.score(jnp.zeros(()), v[0]) - risk.score(jnp.float32(cost), v[0])
        assert np.asarray(scored.reward)[mask, row].sum() == pytest.approx(float(expected), abs=1e-4)
        assert not np.asarray(scored.reward)[~mask, row].any()


def test_mean_cost_keeps_the_environment_reward():
    batch, scored = score_batch(MeanCost(), random_transitions(CHOICE.spec, np.random.default_rng(3), 4, 3))
    np.testing.assert_allclose(scored.reward, np.where(batch.mask, batch.steps.reward, 0.0), atol=1e-6)
    assert not batch.steps.extras["auxiliary"].any()


@pytest.mark.long
def test_auxiliary_value_is_constant_within_an_episode():
    method = ConvexScoring(ppo(), ExpectedShortfall(), initial_auxiliary_std=0.5)
    state = dataclasses.replace(synthetic_batches.init_state(method, CHOICE.spec), auxiliary=jnp.float32(2.0))
    views = jax.tree.map(jnp.asarray, random_view(CHOICE.spec, np.random.default_rng(0), (400,)))

    def auxiliary_values(mode):
        policy = method.policy(state, mode)
        memory = method.init_memory(policy, 400)
        _, memory, first = method.act(policy, memory, views, seed_key(1))
        _, _, second = method.act(policy, memory, views, seed_key(2))
        np.testing.assert_array_equal(first["auxiliary"], second["auxiliary"])
        return np.asarray(first["auxiliary"])

    samples = auxiliary_values(Mode.EXPLORE)
    assert samples.mean() == pytest.approx(2.0, abs=0.1) and samples.std() == pytest.approx(0.5, abs=0.06)
    assert (auxiliary_values(Mode.EXPLOIT) == 2.0).all() and (auxiliary_values(Mode.SAMPLE) == 2.0).all()

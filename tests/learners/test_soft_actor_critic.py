"""Soft values, actor step and Gaussian return critic of soft actor-critics, against numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, VECTOR

from thespis.actors.stochastic import SoftActor
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.critics.value_functions import GaussianReturnQ, build_q_function, init_ensemble
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_gaussian_returns
from thespis.learners.off_policy.soft_actor_critic import actor_step, ensemble_min, soft_value
from thespis.learners.optim.optimizers import Adam

KEY, ALPHA = jax.random.key(0), jnp.asarray(0.3)
DISCRETE, CONTINUOUS = EnvSpec("choices", VECTOR, Discrete(4)), EnvSpec("pushes", VECTOR, BOX)
VIEW = View(jnp.array([0.1, -0.2, 0.3]))


def build_networks(spec):
    return SoftActor(spec, (8,), KEY), init_ensemble(lambda k: build_q_function(spec, (8,), k), 3, jax.random.key(1))


def member(critics, i):
    return jax.tree.map(lambda x: x[i], critics)


def test_discrete_soft_value_sums_over_legal_actions():
    actor, critics = build_networks(DISCRETE)
    legal = jnp.array([True, True, False, True])
    value, entropy = soft_value(actor, ensemble_min(critics), ALPHA, View(VIEW.observation, legal), KEY)
    q = np.min([member(critics, i).q_values(VIEW.observation) for i in range(3)], axis=0)[np.asarray(legal)]
    log_probs = np.asarray(actor(View(VIEW.observation, legal)).log_probs)[np.asarray(legal)]
    assert entropy == pytest.approx(-np.sum(np.exp(log_probs) * log_probs), abs=1e-6)
    assert value == pytest.approx(np.sum(np.exp(log_probs) * (q - 0.3 * log_probs)), abs=1e-6)


def test_continuous_soft_value_uses_one_sample():
    actor, critics = build_networks(CONTINUOUS)
    value, entropy = soft_value(actor, ensemble_min(critics), ALPHA, VIEW, KEY)
    action, log_prob = actor(VIEW).sample_with_log_prob(KEY)
    q = min(float(member(critics, i)(VIEW.observation, action[None])[0]) for i in range(3))
    assert entropy == -log_prob
    assert value == pytest.approx(q - 0.3 * float(log_prob), abs=1e-6)


@pytest.mark.parametrize(
    "spec", [DISCRETE, pytest.param(CONTINUOUS, marks=pytest.mark.slow)], ids=["choices", "pushes"]
)
def test_actor_step_increases_the_soft_value(spec):
    actor, critics = build_networks(spec)
    views, keys = View(jax.random.normal(KEY, (32, 3))), jax.random.split(KEY, 32)

    def soft_values(actor):
        return jax.vmap(lambda view, key: soft_value(actor, ensemble_min(critics), ALPHA, view, key)[0])(views, keys)

    adam = Adam(1e-3)
    updated, _, (values, _), norm = actor_step(adam, actor, adam.init(actor), ensemble_min(critics), ALPHA, views, keys)
    np.testing.assert_allclose(values, soft_values(actor), atol=1e-6)
    assert soft_values(updated).mean() > values.mean() and norm > 0


def test_gaussian_return_fits_mean_and_deviation():
    critic = GaussianReturnQ(CONTINUOUS, (16,), KEY)
    rng, rows, adam = np.random.default_rng(0), 512, Adam(1e-2)
    views, action = View(jnp.tile(VIEW.observation, (rows, 1))), jnp.zeros((rows, *BOX.shape))
    opt_state = adam.init(critic)
    zeros = jnp.zeros(rows)

    @jax.jit
    def fit(critic, opt_state, target):
        data = NStepBatch(views, action, zeros, zeros, views)
        return fit_gaussian_returns(adam, critic, opt_state, data, target, min_std=0.1, td_bound=10.0)

    for _ in range(600):
        target = jnp.asarray(rng.normal(2.0, 0.5, rows), "float32")
        critic, opt_state, metrics = fit(critic, opt_state, target)
    assert metrics["value"] == pytest.approx(2.0, abs=0.05)
    assert metrics["deviation"] == pytest.approx(0.5, abs=0.05)

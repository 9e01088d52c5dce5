"""Alignment with finitely many responses: the optimum is compared with numerical maximization."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from thespis.objectives import aligned_policies

RNG = np.random.default_rng(0)
REFERENCE = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(3, 7))), axis=-1)
REWARDS = jnp.asarray(RNG.normal(size=(3, 7)))


def test_the_optimum_is_where_numerical_maximization_ends():
    for beta in (0.2, 1.0, 5.0):
        expected = aligned_policies.optimal_log_probs(REFERENCE, REWARDS, beta)
        for i in range(3):

            def loss(logits, i=i, beta=beta):
                log_probs = jax.nn.log_softmax(logits)
                return -aligned_policies.regularized_reward(log_probs, REFERENCE[i], REWARDS[i], beta)

            gradient = jax.jit(jax.value_and_grad(loss))
            result = minimize(lambda x, f=gradient: [np.asarray(y, "float64") for y in f(x)], np.zeros(7), jac=True)
            probs = np.asarray(jax.nn.softmax(jnp.asarray(result.x)))
            np.testing.assert_allclose(probs, np.exp(expected[i]), atol=5e-3)


def test_the_gap_is_the_difference_of_the_objectives():
    log_probs = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(3, 7))), axis=-1)
    for beta in (0.2, 3.0):
        best = aligned_policies.optimal_log_probs(REFERENCE, REWARDS, beta)
        objectives = [aligned_policies.regularized_reward(x, REFERENCE, REWARDS, beta) for x in (best, log_probs)]
        gap = aligned_policies.optimality_gap(log_probs, REFERENCE, REWARDS, beta)
        np.testing.assert_allclose(gap, objectives[0] - objectives[1], rtol=1e-4)
        assert (gap > 0).all()
        np.testing.assert_allclose(aligned_policies.optimality_gap(best, REFERENCE, REWARDS, beta), 0, atol=1e-5)


def test_a_constant_in_the_rewards_changes_nothing():
    shifted = aligned_policies.optimal_log_probs(REFERENCE, REWARDS + jnp.array([[1.0], [-2.0], [3.0]]), 0.5)
    np.testing.assert_allclose(shifted, aligned_policies.optimal_log_probs(REFERENCE, REWARDS, 0.5), atol=1e-5)


def test_divergence_of_responses_without_probability():
    log_probs = jnp.log(jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(aligned_policies.kl_divergence(log_probs, jnp.log(jnp.array([0.5, 0.5]))), np.log(2))

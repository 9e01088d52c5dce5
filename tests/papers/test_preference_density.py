"""Density from comparisons: labels by Luce's rule, the likelihood of unknown annotators, and recovery of a density."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evidence.benches.mixed_annotators import POINTS, SINGLE_POINTS, preference_probabilities
from thespis.papers.preference_density_view.method import label_log_likelihood


def normal_density(x, mean, scale):
    return np.exp(-0.5 * ((x - mean) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("env", [POINTS, SINGLE_POINTS])
def test_the_larger_of_two_noisy_rewards_is_a_choice_by_luces_rule(env):
    first, second, count = 0.0, 0.9, 20_000
    resets, keys = jax.random.split(jax.random.key(0), count), jax.random.split(jax.random.key(1), (2, count))
    annotators = jax.vmap(lambda key: env.reset((), key)[0])(resets)
    step = jax.vmap(lambda state, point, key: env.step(state, point, key)[1].reward, in_axes=(0, None, 0))
    rewards = [step(annotators, jnp.array([x]), k) for x, k in zip((first, second), keys, strict=True)]
    densities = np.array([[normal_density(x, *p) for p in ((-2, 0.5), (2, 1))] for x in (first, second)])
    if env.annotators == "single":
        mixture = densities @ [0.4, 0.6]
        expected = mixture[0] / mixture.sum()
    else:
        expected = (densities[0] / densities.sum(axis=0)) @ [0.4, 0.6]
    assert abs(float((rewards[0] > rewards[1]).mean()) - expected) < 0.012


def test_likelihood_sums_over_who_may_have_given_the_label():
    shares, margins = np.array([0.3, 0.7]), np.array([[2.0, -1.0], [-0.5, 3.0]])
    expected = np.log((shares[:, None] / (1 + np.exp(-margins))).sum(axis=0))
    np.testing.assert_allclose(label_log_likelihood(jnp.log(shares), jnp.asarray(margins)), expected, rtol=1e-5)
    rewards = jnp.asarray([[0.0, 1.0], [2.0, -1.0]])
    table = preference_probabilities(rewards, jnp.asarray(shares))
    for i, j in itertools.product(range(2), repeat=2):
        ratio = [np.exp(r[i]) / (np.exp(r[i]) + np.exp(r[j])) for r in np.asarray(rewards)]
        np.testing.assert_allclose(table[i, j], shares @ ratio, rtol=1e-5)


def test_a_single_reward_for_two_annotators_is_not_their_mixture():
    """With all preferences of three points known, the best single reward has another softmax than the mixture."""
    densities, shares = np.array([[0.8, 0.15, 0.05], [0.05, 0.15, 0.8]]), np.array([0.4, 0.6])

    def fitted(table):
        def loss(r):
            margins = r[:, None] - r[None]
            return -jnp.sum(table * jax.nn.log_sigmoid(margins))

        reward = jnp.zeros(3)
        for _ in range(300):
            reward -= 0.5 * jax.grad(loss)(reward)
        return np.asarray(jax.nn.softmax(reward))

    mixture = shares @ densities
    luce = preference_probabilities(jnp.log(jnp.asarray(mixture))[None], jnp.ones(1))
    np.testing.assert_allclose(fitted(luce), mixture, atol=1e-3)
    both = preference_probabilities(jnp.log(jnp.asarray(densities)), jnp.asarray(shares))
    assert np.abs(fitted(both) - mixture).max() > 0.04

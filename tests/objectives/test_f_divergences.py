"""f-divergences: generators against their definitions and links, optima against numerical maximization."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from thespis.learners.language.preference_losses import ForwardKLLink, JensenShannonLink, ReverseKLLink
from thespis.objectives import aligned_policies, f_divergences

RNG = np.random.default_rng(0)
REFERENCE = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(2, 6))), axis=-1)
REWARDS = jnp.asarray(RNG.normal(size=(2, 6)))
DIVERGENCES = {
    "reverse KL": (f_divergences.reverse_kl_generator, ReverseKLLink()),
    "forward KL": (f_divergences.forward_kl_generator, ForwardKLLink()),
    "Jensen-Shannon": (f_divergences.jensen_shannon_generator, JensenShannonLink()),
}
pairs = pytest.mark.parametrize(("generator", "link"), DIVERGENCES.values(), ids=DIVERGENCES)


def test_divergences_are_those_by_their_definitions():
    q, p = np.exp(np.asarray(REFERENCE, "float64")), RNG.dirichlet(np.ones(6), size=2)
    mean = (p + q) / 2

    def kl(x, y):
        return (x * np.log(x / y)).sum(axis=1)

    expected = {"reverse KL": kl(p, q), "forward KL": kl(q, p), "Jensen-Shannon": kl(p, mean) + kl(q, mean)}
    for name, (generator, _) in DIVERGENCES.items():
        actual = f_divergences.f_divergence(jnp.log(jnp.asarray(p)), REFERENCE, generator)
        np.testing.assert_allclose(actual, expected[name], rtol=1e-4, atol=1e-5)


@pairs
def test_links_are_derivatives_of_the_generators_to_a_constant(generator, link):
    x = np.linspace(-3, 3, 13)
    ratios = np.exp(x)
    step = 1e-3 * ratios
    with jax.enable_x64(True):
        f = [np.asarray(generator(jnp.log(jnp.asarray(ratios + sign * step)))) for sign in (1, -1)]
        links = np.asarray(link(jnp.asarray(x)))
    slopes = (f[0] - f[1]) / (2 * step)
    np.testing.assert_allclose(slopes, links - links[6], atol=1e-4)
    np.testing.assert_allclose(generator(jnp.zeros(())), 0, atol=1e-6)


@pairs
def test_the_optimum_is_where_numerical_maximization_ends(generator, link):
    beta = 0.4
    ratios = f_divergences.optimal_log_ratios(REFERENCE, REWARDS, beta, link)
    np.testing.assert_allclose(np.exp(REFERENCE + ratios).sum(axis=1), 1.0, atol=1e-4)
    for i in range(2):
        ref, rewards = np.asarray(REFERENCE[i], "float64"), np.asarray(REWARDS[i], "float64")

        def loss(logits, ref=ref, rewards=rewards):
            log_probs = logits - np.log(np.exp(logits).sum())
            with jax.enable_x64(True):
                values = np.asarray(generator(jnp.asarray(log_probs - ref)))
            return beta * np.exp(ref) @ values - np.exp(log_probs) @ rewards

        result = minimize(loss, np.zeros(6))
        probs = np.exp(result.x) / np.exp(result.x).sum()
        np.testing.assert_allclose(np.exp(REFERENCE[i] + ratios[i]), probs, atol=2e-3)
        log_probs = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=6)))
        gap = f_divergences.f_optimality_gap(log_probs, REFERENCE[i], REWARDS[i], beta, generator, link)
        assert gap == pytest.approx(loss(np.asarray(log_probs, "float64")) - result.fun, abs=1e-3)
        assert gap > 0


def test_the_optimum_of_reverse_kl_is_the_closed_form():
    ratios = f_divergences.optimal_log_ratios(REFERENCE, REWARDS, 0.3, ReverseKLLink())
    expected = aligned_policies.optimal_log_probs(REFERENCE, REWARDS, 0.3)
    np.testing.assert_allclose(REFERENCE + ratios, expected, atol=1e-3)

"""Action distributions: densities, samples and KL against quadrature and scipy; masks against exact zeros."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from small_envs import BOX, TREE_ACTION

from thespis.actors.distributions import Categorical, Normal, ProductDistribution, SquashedNormal, multi_categorical
from thespis.core.spaces import MultiDiscrete, tuple_space

KEY = jax.random.key(0)
LOGITS = jnp.array([0.3, -1.0, 2.0, 0.5])


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5), (2.0, -0.5)])
def test_squashed_density_integrates_to_one(mean, log_std):
    policy = SquashedNormal(jnp.array([mean]), jnp.array([log_std]))
    edges = np.linspace(-1.0, 1.0, 400_001)
    middle = jnp.asarray((edges[:-1] + edges[1:]) / 2, "float32")
    density = np.exp(np.asarray(jax.vmap(policy.log_prob)(middle[:, None]), "float64"))
    assert np.sum(density * np.diff(edges)) == pytest.approx(1.0, abs=2e-3)


def test_squashed_density_in_two_dimensions_is_the_product():
    policy = SquashedNormal(jnp.array([0.2, -0.4]), jnp.array([-0.3, 0.1]))
    parts = [SquashedNormal(policy.mean[i : i + 1], policy.log_std[i : i + 1]) for i in range(2)]
    action = jnp.array([0.5, -0.8])
    expected = sum(part.log_prob(action[i : i + 1]) for i, part in enumerate(parts))
    assert policy.log_prob(action) == pytest.approx(float(expected), abs=1e-5)


def test_squashed_log_density_against_scipy():
    policy = SquashedNormal(jnp.array([0.3, -0.2]), jnp.array([-0.5, 0.2]))
    action = np.array([0.6, -0.9])
    u = np.arctanh(action)
    expected = scipy.stats.norm.logpdf(u, [0.3, -0.2], np.exp([-0.5, 0.2])) - np.log(1 - action**2)
    assert policy.log_prob(jnp.asarray(action, "float32")) == pytest.approx(expected.sum(), abs=1e-5)


def test_squashed_sample_log_prob_is_exact_in_saturation():
    """Where tanh rounds to 1 in float32, the log-probability still comes exactly from the value before squashing."""
    policy = SquashedNormal(jnp.array([12.0]), jnp.array([-2.0]))
    action, log_prob = policy.sample_with_log_prob(KEY)
    assert action[0] > 1 - 1e-6
    z = float(jax.random.normal(KEY, (1,))[0])
    u = 12.0 + np.exp(-2.0) * z
    log_slope = np.log(4.0) - 2 * u  # log(1 - tanh(u)^2) for large u
    assert log_prob == pytest.approx(scipy.stats.norm.logpdf(u, 12.0, np.exp(-2.0)) - log_slope, abs=1e-4)


def test_squashed_log_density_is_finite_at_the_bounds():
    policy = SquashedNormal(jnp.zeros(2), jnp.zeros(2))
    value, gradient = jax.value_and_grad(
        lambda mean: SquashedNormal(mean, policy.log_std).log_prob(jnp.array([1.0, -1.0]))
    )(policy.mean)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))


@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.8])
def test_squashed_samples_have_their_density(mean):
    """The mean of 1/density over samples is the width of the box: 2."""
    policy = SquashedNormal(jnp.array([mean]), jnp.array([0.0]))
    _, log_probs = jax.vmap(policy.sample_with_log_prob)(jax.random.split(KEY, 200_000))
    inverse = np.exp(-np.asarray(log_probs, "float64"))
    assert inverse.mean() == pytest.approx(2.0, abs=4 * inverse.std() / np.sqrt(inverse.size) + 0.01)


def test_sampling_and_density_agree_where_both_are_exact():
    for policy in (SquashedNormal(jnp.array([0.3, -0.5]), jnp.array([-1.0, 0.0])), Normal(jnp.ones(2), jnp.zeros(2))):
        action, log_prob = policy.sample_with_log_prob(KEY)
        assert policy.log_prob(action) == pytest.approx(float(log_prob), abs=1e-4)


def test_normal_against_scipy():
    mean, log_std = np.array([[0.5, -2.0], [0.0, 1.0]]), np.array([[0.0, -1.0], [0.5, 0.3]])
    policy = Normal(jnp.asarray(mean, "float32"), jnp.asarray(log_std, "float32"))
    action = np.array([[1.0, -2.5], [3.0, 0.0]])
    oracle = scipy.stats.norm(mean, np.exp(log_std))
    assert policy.log_prob(jnp.asarray(action, "float32")) == pytest.approx(oracle.logpdf(action).sum(), rel=1e-5)
    assert policy.entropy() == pytest.approx(oracle.entropy().sum(), rel=1e-5)
    samples = np.asarray(jax.vmap(policy.sample)(jax.random.split(KEY, 20_000)))
    np.testing.assert_allclose(samples.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(samples.std(0), np.exp(log_std), rtol=0.03)


def test_categorical_against_scipy():
    policy = Categorical(LOGITS)
    probs = np.exp(np.asarray(LOGITS, "float64"))
    oracle = scipy.stats.rv_discrete(values=(np.arange(4), probs / probs.sum()))
    for action in range(4):
        assert policy.log_prob(jnp.int32(action)) == pytest.approx(oracle.logpmf(action), abs=1e-6)
    assert policy.entropy() == pytest.approx(oracle.entropy(), abs=1e-6)
    assert policy.mode() == 2 and policy.mode().dtype == jnp.int32
    samples = np.asarray(jax.vmap(policy.sample)(jax.random.split(KEY, 20_000)))
    np.testing.assert_allclose(np.bincount(samples) / 20_000, probs / probs.sum(), atol=0.015)


def test_masked_actions_have_probability_zero():
    legal = jnp.array([True, False, False, True])
    policy = Categorical(LOGITS, legal)
    assert np.asarray(policy.probs)[[1, 2]].tolist() == [0.0, 0.0]
    allowed = Categorical(LOGITS[jnp.array([0, 3])])
    assert policy.entropy() == pytest.approx(float(allowed.entropy()), abs=1e-6)
    samples = np.asarray(jax.vmap(policy.sample)(jax.random.split(KEY, 5_000)))
    assert set(samples.tolist()) == {0, 3}
    assert policy.mode() == 3  # the likeliest of all, 2, is illegal


def test_masked_actions_get_no_gradient():
    legal = jnp.array([True, False, False, True])

    def total(logits):
        policy = Categorical(logits, legal)
        actions, weights, log_probs = policy.action_samples(KEY)
        return policy.entropy() + policy.log_prob(jnp.int32(0)) + jnp.sum(weights * log_probs * actions)

    gradient = np.asarray(jax.grad(total)(LOGITS))
    assert np.all(np.isfinite(gradient))
    assert gradient[[1, 2]].tolist() == [0.0, 0.0]
    assert np.all(gradient[[0, 3]] != 0)


def test_single_legal_action_is_certain():
    policy = Categorical(LOGITS, jnp.array([False, True, False, False]))
    assert policy.entropy() == 0.0 and policy.log_prob(jnp.int32(1)) == 0.0
    assert np.all(np.isfinite(jax.grad(lambda z: Categorical(z, policy.probs > 0).entropy())(LOGITS)))


def test_categorical_action_samples_give_exact_expectations():
    policy = Categorical(LOGITS, jnp.array([True, True, False, True]))
    payoff = jnp.array([1.0, -3.0, 100.0, 0.5])
    actions, weights, log_probs = policy.action_samples(KEY)
    exact = sum(float(policy.probs[a] * payoff[a]) for a in range(4))
    assert jnp.sum(weights * payoff[actions]) == pytest.approx(exact, rel=1e-6)
    assert -jnp.sum(weights * log_probs) == pytest.approx(float(policy.entropy()), rel=1e-6)


def test_continuous_action_samples_are_one_reparameterized_sample():
    policy = SquashedNormal(jnp.array([0.3, -0.5]), jnp.array([-1.0, 0.0]))
    actions, weights, log_probs = policy.action_samples(KEY)
    action, log_prob = policy.sample_with_log_prob(KEY)
    np.testing.assert_array_equal(actions[0], action)
    assert weights.tolist() == [1.0] and log_probs[0] == log_prob
    gradient = jax.grad(lambda mean: jnp.sum(SquashedNormal(mean, policy.log_std).action_samples(KEY)[0]))(policy.mean)
    np.testing.assert_allclose(gradient, 1 - np.asarray(action) ** 2, rtol=1e-5)  # d tanh(u) / d mean


def tree_policy():
    turns = TREE_ACTION.spaces[2]
    vector = jnp.array([0.1, 0.9, -0.3, 0.0, 0.4])
    parts = (
        Categorical(LOGITS[:3]),
        Normal(jnp.array([0.5, 1.0]), jnp.array([0.0, -1.0])),
        multi_categorical(turns[1], vector, None),
    )
    return ProductDistribution(parts, TREE_ACTION)


def test_product_log_probs_are_sums_over_components():
    policy = tree_policy()
    action, log_prob = policy.sample_with_log_prob(KEY)
    assert set(action) == {"kind", "push", "turns"} and action["turns"].shape == (2,)
    log_probs = [part.log_prob(a) for part, a in zip(policy.components, TREE_ACTION.unpack(action), strict=True)]
    assert log_prob == pytest.approx(float(sum(log_probs)), abs=1e-6)
    assert policy.log_prob(action) == pytest.approx(float(log_prob), abs=1e-6)
    assert policy.entropy() == pytest.approx(float(sum(part.entropy() for part in policy.components)), abs=1e-6)
    mode = policy.mode()
    assert mode["kind"] == 2 and mode["turns"].tolist() == [1, 2]
    np.testing.assert_array_equal(mode["push"], [0.5, 1.0])


def test_multi_categorical_probabilities_sum_to_one():
    space = MultiDiscrete((2, 3))
    legal = jnp.array([True, True, False, True, True])
    policy = multi_categorical(space, jnp.array([0.1, 0.9, -0.3, 0.0, 0.4]), legal)
    probs = {(i, j): float(jnp.exp(policy.log_prob(jnp.array([i, j])))) for i in range(2) for j in range(3)}
    assert sum(probs.values()) == pytest.approx(1.0, abs=1e-6)
    assert probs[0, 0] == probs[1, 0] == 0.0
    entropy = -sum(p * np.log(p) for p in probs.values() if p)
    assert policy.entropy() == pytest.approx(entropy, abs=1e-6)


def test_tuple_actions_are_tuples():
    space = tuple_space(BOX, MultiDiscrete((2, 2)))
    policy = ProductDistribution(
        (Normal(jnp.zeros(2), jnp.zeros(2)), multi_categorical(space.spaces[1][1], jnp.zeros(4), None)), space
    )
    action = policy.sample(KEY)
    assert isinstance(action, tuple) and action[0].shape == (2,) and action[1].shape == (2,)


def test_straight_through_samples_have_gumbel_softmax_gradients():
    """Frequencies against probabilities; the mean gradient of a linear function against Gumbel-softmax in numpy."""
    legal, weights = jnp.array([True, True, False, True]), jnp.array([1.0, -2.0, 5.0, 0.5])
    keys = jax.random.split(KEY, 20_000)

    def payoff(logits, key):
        return jnp.dot(weights, Categorical(logits, legal).straight_through(key))

    samples = np.asarray(jax.vmap(Categorical(LOGITS, legal).straight_through)(keys))
    assert set(np.unique(samples)) == {0.0, 1.0} and np.all(samples.sum(1) == 1)
    np.testing.assert_allclose(samples.mean(0), Categorical(LOGITS, legal).probs, atol=0.015)
    gradient = np.asarray(jax.vmap(jax.grad(payoff), in_axes=(None, 0))(LOGITS, keys)).mean(0)

    noise = np.random.default_rng(0).gumbel(size=(200_000, 4))
    unnormalized = np.where(legal, np.exp(np.asarray(LOGITS) + noise), 0.0)
    softmax = unnormalized / unnormalized.sum(1, keepdims=True)
    expected = (softmax * (np.asarray(weights) - (softmax * np.asarray(weights)).sum(1, keepdims=True))).mean(0)
    assert gradient[2] == 0.0 and np.abs(expected).max() > 0.1
    np.testing.assert_allclose(gradient, expected, atol=0.015)


def test_kl_against_enumeration_and_quadrature():
    legal, other = jnp.array([True, True, False, True]), jnp.array([1.0, 0.0, 3.0, -0.5])
    p, q = (np.exp(np.asarray(x)[[0, 1, 3]]) for x in (LOGITS, other))
    p, q = p / p.sum(), q / q.sum()
    categorical_kl = Categorical(LOGITS, legal).kl(Categorical(other, legal))
    assert categorical_kl == pytest.approx((p * np.log(p / q)).sum(), abs=1e-5)

    means, deviations = ([0.3, -0.2], [0.1, 0.4]), (np.exp([-0.5, 0.2]), np.exp([0.1, -0.3]))
    x = np.linspace(-12, 12, 100_001)
    expected = 0.0
    for i in range(2):
        first, second = (scipy.stats.norm(m[i], d[i]) for m, d in zip(means, deviations, strict=True))
        expected += np.sum(first.pdf(x) * (first.logpdf(x) - second.logpdf(x))) * (x[1] - x[0])
    for kind in (Normal, SquashedNormal):
        a, b = (kind(jnp.array(m), jnp.log(jnp.asarray(d))) for m, d in zip(means, deviations, strict=True))
        assert a.kl(b) == pytest.approx(expected, abs=1e-4)
    space = tuple_space(BOX, TREE_ACTION)
    joint_kl = ProductDistribution((a, Categorical(LOGITS, legal)), space).kl(
        ProductDistribution((b, Categorical(other, legal)), space)
    )
    assert joint_kl == pytest.approx(float(categorical_kl) + expected, abs=1e-4)

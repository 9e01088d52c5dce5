"""Optional components of SAC (mixture policy, filter, causal entropy, resets), each against a known reference."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import synthetic_batches
from method_cases import CHOICE, replay
from small_envs import BOX, VECTOR

from thespis.actors.distributions import SquashedNormal
from thespis.actors.mixture_of_experts import MixtureOfExperts, SquashedNormalMixture
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box
from thespis.learners.off_policy.causal_entropy import (
    CausalEntropy,
    CausalEntropyState,
    causal_effects_on_last,
    causal_order,
)
from thespis.learners.off_policy.dormant_reset import DormantReset, dormant_ratio
from thespis.learners.off_policy.target_filters import LowPassFilter, reflect
from thespis.learners.optim.optimizers import Adam, OptaxOptimizer
from thespis.methods.online.sac import SAC
from thespis.nets.mlp import Linear, uniform_fan_in

KEY = synthetic_batches.quick_key(0)
MIXTURE = SquashedNormalMixture(
    *jax.device_put(
        (
            np.array([0.3, -0.5, 1.0], "float32"),
            np.array([[-0.8, 0.1], [0.5, -0.3], [0.2, 0.9]], "float32"),
            np.log(np.array([[0.2, 0.5], [0.4, 0.3], [1.0, 0.6]], "float32")),
        )
    )
)
LOG_PROB = jax.jit(lambda mixture, action: mixture.log_prob(action))


def density(action):
    """Density of the mixture by scipy: normals before the squashing, divided by the derivative of tanh."""
    u = np.arctanh(action)
    component_densities = scipy.stats.norm(MIXTURE.mean, np.exp(MIXTURE.log_std)).pdf(u).prod(axis=1)
    return float(scipy.special.softmax(MIXTURE.logits) @ component_densities / np.prod(1 - np.asarray(action) ** 2))


@pytest.mark.parametrize("action", [(0.0, 0.0), (0.7, -0.2), (-0.95, 0.9)])
def test_mixture_log_prob_matches_scipy(action):
    assert LOG_PROB(MIXTURE, np.array(action, "float32")) == pytest.approx(np.log(density(np.array(action))), abs=1e-4)


def test_mixture_log_probs_per_dimension_sum_to_the_whole():
    """Log-probabilities of dimensions sum to the sample's; the first is the marginal of the first dimension."""

    @jax.jit
    def sample_log_probs(mixture, key):
        actions, weights, log_probs_per_dim = mixture.action_samples_per_dim(key)
        first = SquashedNormalMixture(mixture.logits, mixture.mean[:, :1], mixture.log_std[:, :1])
        return (
            actions,
            weights,
            log_probs_per_dim,
            jax.vmap(first.log_prob)(actions[:, :1]),
            mixture.action_samples(key)[2],
        )

    actions, weights, log_probs_per_dim, first, log_probs = jax.tree.map(np.asarray, sample_log_probs(MIXTURE, KEY))
    assert np.sum(log_probs_per_dim, axis=1) == pytest.approx([np.log(density(a)) for a in actions], abs=1e-4)
    assert log_probs_per_dim[:, 0] == pytest.approx(first, abs=1e-4)
    assert log_probs == pytest.approx(log_probs_per_dim.sum(axis=1), abs=1e-5)
    assert weights == pytest.approx(scipy.special.softmax(np.asarray(MIXTURE.logits)), abs=1e-6)


def test_mixture_samples_have_its_distribution():
    samples = np.asarray(jax.jit(lambda key: jax.vmap(MIXTURE.sample)(jax.random.split(key, 20_000)))(KEY))[:, 0]
    grid = np.linspace(-0.999, 0.999, 4_001)
    logits, mean, log_std = map(np.asarray, (MIXTURE.logits, MIXTURE.mean, MIXTURE.log_std))
    normals = scipy.stats.norm(mean[:, 0], np.exp(log_std[:, 0]))
    expected = normals.cdf(np.arctanh(grid)[:, None]) @ scipy.special.softmax(logits)
    empirical = np.searchsorted(np.sort(samples), grid) / len(samples)
    assert np.abs(empirical - expected).max() < 0.015


def test_mixture_objective_and_routing():
    inputs = np.array([[0.2, 0.5, 0.3], [1.0, 3.0, -1.0], [0.1, 0.2, 0.3]], "float32")
    weights, best, exact = inputs[0], MixtureOfExperts(3), MixtureOfExperts(3, routing="exact")
    entropy = 0.2 * 0.1 + 0.5 * 0.2 + 0.3 * 0.3
    objectives = jax.jit(
        lambda *inputs: (jax.value_and_grad(best.actor_objective, (0, 1, 2))(*inputs), exact.actor_objective(*inputs))
    )
    (objective, (weight_gradient, value_gradient, entropy_gradient)), exact_objective = objectives(*inputs)
    assert objective == pytest.approx((1.0 + 3.0 - 1.0) / 3 - (0.04 + 0.25 + 0.09) / 3 + entropy)
    assert exact_objective == pytest.approx(0.2 * 1.1 + 0.5 * 3.2 - 0.3 * 0.7)
    assert weight_gradient == pytest.approx(np.array([-0.4, 1.0, -0.6]) / 3)
    assert value_gradient == pytest.approx(np.full(3, 1 / 3))
    assert entropy_gradient == pytest.approx(weights)


def test_winner_routing_trains_the_best_expert_only():
    weights, values, entropy_bonus = np.array([[0.2, 0.5, 0.3], [1.0, 3.0, -1.0], [0.1, 0.2, 0.3]], "float32")
    objective, gradients = jax.value_and_grad(MixtureOfExperts(3, routing="winner").actor_objective, (0, 1, 2))(
        weights, values, entropy_bonus
    )
    assert objective == pytest.approx(3.0 + 0.2 - (0.04 + 0.25 + 0.09) / 3)
    assert gradients[0] == pytest.approx(np.array([-0.4, 1.0, -0.6]) / 3)
    assert gradients[1] == pytest.approx([0, 1, 0]) and gradients[2] == pytest.approx([0, 1, 0])


def test_samples_with_log_densities_of_their_own_experts():
    own = dataclasses.replace(MIXTURE, own_log_probs=True)
    actions, weights, log_probs = own.action_samples(KEY)
    np.testing.assert_array_equal(actions, MIXTURE.action_samples(KEY)[0])
    np.testing.assert_allclose(weights, MIXTURE.weights)
    for i in range(3):
        expert = SquashedNormal(MIXTURE.mean[i], MIXTURE.log_std[i])
        assert log_probs[i] == pytest.approx(float(expert.log_prob(actions[i])), abs=1e-4)
    head = MixtureOfExperts(3, routing="winner")
    outputs = jax.random.normal(KEY, (head.num_outputs(Box((2,), -1.0, 1.0)),))
    assert head.distribution(Box((2,), -1.0, 1.0), outputs, jnp.zeros(0), jnp.zeros(0)).own_log_probs


@pytest.mark.parametrize("routing", ["best", "exact"])
def test_mixture_objective_has_the_gradient_of_the_entropy(routing):
    """The mean gradient over many samples equals that of the entropy, integrated on a grid."""
    u = np.linspace(-9, 9, 4001, dtype="float32")
    logits, log_std = jax.device_put((np.array([0.3, -0.5], "float32"), np.array([[-0.4], [0.2]], "float32")))

    def exact_entropy(mean, log_std):
        mixture = SquashedNormalMixture(logits, mean, log_std)
        normals = jax.scipy.stats.norm.logpdf(u[:, None], mean[:, 0], jnp.exp(log_std[:, 0]))
        density = jnp.exp(normals) @ mixture.weights
        return -jnp.sum(density * (jnp.log(density + 1e-30) - jnp.log1p(-(jnp.tanh(u) ** 2) + 1e-12))) * (u[1] - u[0])

    def sampled_objective(mean, log_std, key):
        _, weights, log_probs = SquashedNormalMixture(logits, mean, log_std).action_samples(key)
        return MixtureOfExperts(2, routing=routing).actor_objective(weights, jnp.zeros(2), -log_probs)

    @jax.jit
    def both(mean, log_std, key):
        gradients = jax.vmap(jax.grad(sampled_objective, (0, 1)), (None, None, 0))(
            mean, log_std, jax.random.split(key, 40_000)
        )
        return gradients, jax.grad(exact_entropy, (0, 1))(mean, log_std)

    for mixture, expected in zip(*both(np.array([[-0.8], [0.5]], "float32"), log_std, KEY), strict=True):
        np.testing.assert_allclose(np.asarray(mixture).mean(axis=0), expected, atol=0.03)


def test_low_pass_filter_damps_high_frequencies():
    """With reflecting bounds a Gaussian filter only scales cosines. Two members; the second is higher by 0.5."""

    actions = np.linspace(-1, 1, 9, dtype="float32")[:, None]

    @jax.jit
    def filtered_min(k, actions, key):
        def build(offset):
            return jax.tree_util.Partial(
                lambda offset, _, actions: offset + jnp.cos(k * jnp.pi * (actions[:, 0] + 1) / 2), offset
            )

        return LowPassFilter(0.2, num_samples=20_000).ensemble_min(jax.vmap(build)(jnp.array([0.0, 0.5])), key)(
            jnp.zeros(1), actions
        )

    for k in (0, 1, 6):
        result = filtered_min(np.float32(k), actions, KEY)
        expected = np.exp(-((k * np.pi * 0.2 / 2) ** 2) / 2) * np.cos(k * np.pi * (actions[:, 0] + 1) / 2)
        assert result == pytest.approx(expected, abs=0.03)


def test_reflect_stays_within_the_bounds():
    x = np.array([-3.5, -1.2, -1.0, 0.3, 1.0, 1.25, 2.9, 5.5], "float32")
    assert jax.jit(reflect)(x) == pytest.approx(np.array([0.5, -0.8, -1.0, 0.3, 1.0, 0.75, -0.9, 0.5]))


def causal_samples(n):
    """Samples of four variables with uniform noise: 2 causes 0; 0, 1 and 2 determine the last."""
    noise = np.random.default_rng(1).uniform(-1, 1, (4, n))
    second = noise[2]
    first = 0.8 * second + noise[0]
    last = 1.5 * first - 0.7 * noise[1] + 0.5 * noise[3]
    return np.stack([first, noise[1], second, last]).astype("float32")


def test_causal_order_and_effects():
    samples = causal_samples(4_000)
    order, effects = np.asarray(jax.jit(causal_order)(samples)), jax.jit(causal_effects_on_last)
    assert order[2] < order[0] < order[3] and order[1] < order[3]
    assert effects(samples) == pytest.approx(np.array([1.5, -0.7, 0.0, 0.0]), abs=0.05)
    other_effects = effects(samples[[3, 1, 2, 0]])  # here the target variable is not last in the causal order
    assert other_effects == pytest.approx(np.array([0.0, 0.0, 0.8, 0.0]), abs=0.05)


def test_causal_entropy_weights_dimensions_by_effect():
    @jax.jit
    def weighted_log_probs(causes, key):
        normal = SquashedNormal(jnp.array([0.3, -0.2]), jnp.array([-1.0, 0.0]))
        actions, _, weighted = CausalEntropy().action_samples(
            CausalEntropyState(causes, jnp.zeros((1, 1))), normal, key
        )
        first_only = SquashedNormal(normal.mean[:1], normal.log_std[:1]).log_prob(actions[0, :1])
        return weighted[0], first_only, normal.action_samples(key)[2][0]

    weighted, first_only, _ = weighted_log_probs(np.array([1.0, 0.0], "float32"), KEY)
    assert weighted == pytest.approx(float(first_only), abs=1e-4)
    unweighted, _, total = weighted_log_probs(np.ones(2, "float32"), KEY)
    assert unweighted == pytest.approx(float(total), abs=1e-5)


@pytest.mark.long
def test_critics_can_have_a_learning_rate_of_their_own():
    """SGD moves every network by its learning rate times the gradient, which is the same in all three cases."""
    spec = EnvSpec("pushes", VECTOR, BOX)
    steps = random_transitions(spec, np.random.default_rng(0), 1, 8)

    def moves(critic_learning_rate):
        method = SAC(
            hidden_sizes=(4,),
            learning_rate=0.1,
            critic_learning_rate=critic_learning_rate,
            optimizer=OptaxOptimizer("sgd()"),
            feed=replay(),
        )
        state, batch = synthetic_batches.init_and_batch(method, spec, steps)
        updated = jax.jit(method.update)(state, batch, KEY)[0]
        change = jax.tree.map(lambda a, b: np.asarray(a - b), updated.critics, state.critics)
        return change, jax.tree.map(np.asarray, updated.actor)

    plain, same, fifth = (moves(rate) for rate in (None, 0.1, 0.02))
    jax.tree.map(np.testing.assert_array_equal, plain, same)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 0.2 * b, atol=1e-6), fifth[0], plain[0])
    assert max(np.abs(x).max() for x in jax.tree.leaves(plain[0])) > 1e-3


def layer(weight):
    return Linear(2, 3, lambda *_: jnp.array(weight), KEY)


def test_dormant_ratio_counts_neurons_without_gradient():
    def ratio(threshold):
        gradients = layer([[3.0, 0.0, 0.1], [4.0, 0.0, 0.0]]), layer([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
        return dormant_ratio(gradients, threshold)

    low, high = jax.jit(lambda: (ratio(0.05), ratio(0.1)))()
    assert low == pytest.approx(1 / 6)
    assert high == pytest.approx(2 / 6)


@jax.jit
def maybe_reset_at(index, key):
    """Networks before and after a possible reset, and the optimizer states."""
    adam, reset = Adam(1e-2), DormantReset(reset_interval=5, min_blend=0.0)
    actor, critics = layer([[3.0, 5.0, 0.1], [4.0, 0.0, 0.0]]), Linear(2, 3, uniform_fan_in, key)
    fresh = reset.init(jax.tree.map(jnp.ones_like, (actor, critics)))
    _, opt = adam.transform().update(layer([[1.0, 0.0, 1.0], [1.0, 0.0, 2.0]]), adam.init(actor), actor)
    networks = actor, critics, critics
    return networks, *reset.maybe_reset(fresh, networks, (opt, opt), (adam, adam), index, key)


@pytest.mark.parametrize(("index", "blend"), [(3, 0.0), (4, 1 / 3)])
def test_networks_are_blended_by_the_dormant_ratio(index, blend):
    old, networks, opts = jax.tree.map(np.asarray, maybe_reset_at(np.int32(index), KEY))
    expected = jax.tree.map(lambda x: (1 - blend) * x + blend, old)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.allclose(a, b, atol=1e-6)), networks, expected))
    assert int(opts[0][0].count) == (0 if blend else 1)


def test_reset_networks_permute_the_initial_weights():
    @jax.jit
    def reset_networks(first_key, other_key, key):
        reset, adam = DormantReset(reset_interval=1, min_blend=1.0, max_blend=1.0), Adam(1e-2)
        first, networks = (Linear(4, 5, uniform_fan_in, key) for key in (first_key, other_key))
        opts = adam.init(networks), adam.init(networks)
        return first, reset.maybe_reset(
            (networks, first), (networks, networks, networks), opts, (adam, adam), jnp.array(0), key
        )[0][1]

    first, result = jax.tree.map(np.asarray, reset_networks(*(synthetic_batches.quick_key(i) for i in range(2)), KEY))
    assert sorted(np.ravel(result.weight)) == pytest.approx(sorted(np.ravel(first.weight)))
    assert np.abs(result.weight - first.weight).mean() > 0.1 * np.abs(first.weight).mean()


@pytest.mark.parametrize(
    "slot", [{"policy_head": MixtureOfExperts()}, {"target_filter": LowPassFilter()}, {"entropy": CausalEntropy()}]
)
def test_components_for_boxes_reject_discrete_actions(slot):
    with pytest.raises(UserError, match="use"):
        jax.eval_shape(lambda key: SAC(hidden_sizes=(8,), feed=replay(), **slot).init(CHOICE.spec, key), KEY)


def test_mixture_of_experts_rejects_an_unbounded_box():
    with pytest.raises(UserError, match="bounds"):
        MixtureOfExperts().num_outputs(Box((2,)))

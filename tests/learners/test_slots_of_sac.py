"""Parts that fill slots of soft actor-critic, each against something that is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
import scipy.stats
from cases import CHOICE, replay

from thespis.actors.distributions import SquashedNormal
from thespis.actors.experts import Experts, SquashedMixture
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.spaces import Box
from thespis.learners.bands import LowPass, mirrored
from thespis.learners.entropies import CausalEntropy, Causes
from thespis.learners.gradient import Adam
from thespis.learners.resets import Dormancy, dormant_share
from thespis.methods.online.sac import SAC
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.objectives.causes import causal_order, effects_on_last

KEY = made_up.quick_key(0)
MIXTURE = SquashedMixture(
    jnp.array([0.3, -0.5, 1.0]),
    jnp.array([[-0.8, 0.1], [0.5, -0.3], [0.2, 0.9]]),
    jnp.log(jnp.array([[0.2, 0.5], [0.4, 0.3], [1.0, 0.6]])),
)


def density(action):
    """Of the mixture, by scipy: normals before the squashing, times its slope."""
    u = np.arctanh(action)
    each = scipy.stats.norm(MIXTURE.mean, np.exp(MIXTURE.log_std)).pdf(u).prod(axis=1)
    return float(jax.nn.softmax(MIXTURE.logits) @ each / np.prod(1 - np.asarray(action) ** 2))


@pytest.mark.parametrize("action", [(0.0, 0.0), (0.7, -0.2), (-0.95, 0.9)])
def test_a_mixture_has_the_density_it_says(action):
    assert MIXTURE.log_prob(jnp.array(action)) == pytest.approx(np.log(density(np.array(action))), abs=1e-4)


def test_a_mixture_is_told_number_by_number():
    """What the numbers' log-densities sum to is the density of the draw; the first is that of the first alone."""
    actions, weights, parts = MIXTURE.candidates_in_parts(KEY)
    assert np.sum(parts, axis=1) == pytest.approx([np.log(density(a)) for a in np.asarray(actions)], abs=1e-4)
    first = SquashedMixture(MIXTURE.logits, MIXTURE.mean[:, :1], MIXTURE.log_std[:, :1])
    assert parts[:, 0] == pytest.approx([float(first.log_prob(a[:1])) for a in actions], abs=1e-4)
    assert MIXTURE.candidates(KEY)[2] == pytest.approx(np.asarray(parts).sum(axis=1), abs=1e-5)
    assert weights == pytest.approx(np.asarray(jax.nn.softmax(MIXTURE.logits)), abs=1e-6)


def test_draws_of_a_mixture_fall_where_its_density_is():
    draws = jax.vmap(MIXTURE.sample)(jax.random.split(KEY, 20_000))[:, 0]
    grid = np.linspace(-0.999, 0.999, 4_001)
    chance = jax.nn.softmax(MIXTURE.logits)
    normals = scipy.stats.norm(MIXTURE.mean[:, 0], np.exp(MIXTURE.log_std[:, 0]))
    below = normals.cdf(np.arctanh(grid)[:, None]) @ np.asarray(chance)
    found = np.searchsorted(np.sort(draws), grid) / len(draws)
    assert np.abs(found - below).max() < 0.015


def test_experts_climb_and_the_best_is_routed_to():
    q, bonus, weights = jnp.array([1.0, 3.0, -1.0]), jnp.array([0.1, 0.2, 0.3]), jnp.array([0.2, 0.5, 0.3])
    best, exact = Experts(3), Experts(3, routing="exact")
    entropy = 0.2 * 0.1 + 0.5 * 0.2 + 0.3 * 0.3
    assert best.rise(weights, q, bonus) == pytest.approx((1.0 + 3.0 - 1.0) / 3 - (0.04 + 0.25 + 0.09) / 3 + entropy)
    assert exact.rise(weights, q, bonus) == pytest.approx(0.2 * 1.1 + 0.5 * 3.2 - 0.3 * 0.7)
    towards = jax.grad(best.rise)(weights, q, bonus)
    assert towards == pytest.approx(np.array([-0.4, 1.0, -0.6]) / 3)
    assert jax.grad(best.rise, argnums=1)(weights, q, bonus) == pytest.approx(np.full(3, 1 / 3))
    assert jax.grad(best.rise, argnums=2)(weights, q, bonus) == pytest.approx(np.asarray(weights))


@pytest.mark.parametrize("routing", ["best", "exact"])
def test_experts_climb_the_entropy_of_the_whole_mixture(routing):
    """By many draws: the slope along means and deviations is that of the entropy, integrated on a grid."""
    u, logits, spread = jnp.linspace(-9, 9, 4001), jnp.array([0.3, -0.5]), jnp.array([[-0.4], [0.2]])

    def integrated(mean, log_std):
        found = SquashedMixture(logits, mean, log_std)
        normals = jax.scipy.stats.norm.logpdf(u[:, None], mean[:, 0], jnp.exp(log_std[:, 0]))
        chance = jnp.exp(normals) @ found.weights
        return -jnp.sum(chance * (jnp.log(chance + 1e-30) - jnp.log1p(-(jnp.tanh(u) ** 2) + 1e-12))) * (u[1] - u[0])

    def drawn(mean, log_std, key):
        _, weights, logs = SquashedMixture(logits, mean, log_std).candidates(key)
        return Experts(2, routing=routing).rise(weights, jnp.zeros(2), -logs)

    mean = jnp.array([[-0.8], [0.5]])
    keys = jax.random.split(KEY, 40_000)
    slopes = jax.jit(jax.vmap(jax.grad(drawn, (0, 1)), (None, None, 0)))(mean, spread, keys)
    for found, wanted in zip(slopes, jax.grad(integrated, (0, 1))(mean, spread), strict=True):
        np.testing.assert_allclose(found.mean(axis=0), wanted, atol=0.03)


def test_a_band_keeps_low_frequencies_and_damps_high_ones():
    """Cosines over a mirrored box are what a normal filter only scales; two members, the second one higher."""

    def critics(k):
        def build(offset):
            return jax.tree_util.Partial(
                lambda offset, _, actions: offset + jnp.cos(k * jnp.pi * (actions[:, 0] + 1) / 2), offset
            )

        return jax.vmap(build)(jnp.array([0.0, 0.5]))

    actions = jnp.linspace(-1, 1, 9)[:, None]
    for k in (0, 1, 6):
        found = LowPass(0.2, samples=20_000).least(critics(k), KEY)(jnp.zeros(1), actions)
        damped = np.exp(-((k * np.pi * 0.2 / 2) ** 2) / 2) * np.cos(k * np.pi * (np.asarray(actions)[:, 0] + 1) / 2)
        assert found == pytest.approx(np.asarray(damped), abs=0.03)


def test_what_is_mirrored_stays_inside():
    x = np.array([-3.5, -1.2, -1.0, 0.3, 1.0, 1.25, 2.9, 5.5])
    assert mirrored(jnp.array(x)) == pytest.approx(np.array([0.5, -0.8, -1.0, 0.3, 1.0, 0.75, -0.9, 0.5]))


def caused(n):
    """Four numbers: 2 causes 0, both and 1 cause the last; noises are uniform."""
    noise = np.random.default_rng(1).uniform(-1, 1, (4, n))
    second = noise[2]
    first = 0.8 * second + noise[0]
    last = 1.5 * first - 0.7 * noise[1] + 0.5 * noise[3]
    return jnp.array(np.stack([first, noise[1], second, last]), "float32")


def test_causes_are_told_from_effects():
    x = caused(4_000)
    order = np.asarray(causal_order(x))
    assert order[2] < order[0] < order[3] and order[1] < order[3]
    assert effects_on_last(x) == pytest.approx(np.array([1.5, -0.7, 0.0, 0.0]), abs=0.05)
    backwards = effects_on_last(x[jnp.array([3, 1, 2, 0])])  # what is asked for does not come last in the order
    assert backwards == pytest.approx(np.array([0.0, 0.0, 0.8, 0.0]), abs=0.05)


def test_entropy_is_paid_by_cause():
    entropy, normal = CausalEntropy(), SquashedNormal(jnp.array([0.3, -0.2]), jnp.array([-1.0, 0.0]))
    state = Causes(jnp.array([1.0, 0.0]), jnp.zeros((1, 1)))
    actions, _, weighed = entropy.draw(state, normal, KEY)
    alone = SquashedNormal(normal.mean[:1], normal.log_std[:1]).log_prob(actions[0, :1])
    assert weighed[0] == pytest.approx(float(alone), abs=1e-4)
    even = entropy.draw(Causes(jnp.ones(2), state.seen), normal, KEY)[2]
    assert even[0] == pytest.approx(float(normal.candidates(KEY)[2][0]), abs=1e-5)


def layer(weight):
    return Linear(2, 3, lambda *_: jnp.array(weight), KEY)


def test_a_neuron_without_gradient_is_dormant():
    nets = layer([[3.0, 0.0, 0.1], [4.0, 0.0, 0.0]]), layer([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert dormant_share(nets, 0.05) == pytest.approx(1 / 6)
    assert dormant_share(nets, 0.1) == pytest.approx(2 / 6)


@pytest.mark.parametrize(("index", "share"), [(3, 0.0), (4, 1 / 3)])
def test_nets_are_blended_by_how_dormant_the_actor_is(index, share):
    adam, reset = Adam(1e-2), Dormancy(every=5, least=0.0)
    actor, critics = layer([[3.0, 5.0, 0.1], [4.0, 0.0, 0.0]]), Linear(2, 3, uniform_fan_in, KEY)
    fresh = reset.init(jax.tree.map(jnp.ones_like, (actor, critics)))
    _, opt = adam.transform().update(layer([[1.0, 0.0, 1.0], [1.0, 0.0, 2.0]]), adam.init(actor), actor)
    nets, opts = reset.renewed(fresh, (actor, critics, critics), (opt, opt), adam, jnp.array(index), KEY)
    wanted = jax.tree.map(lambda x: (1 - share) * x + share, (actor, critics, critics))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, atol=1e-6)), nets, wanted))
    assert int(opts[0][0].count) == (0 if share else 1)


def test_fresh_nets_are_drawn_from_the_first():
    reset, adam = Dormancy(every=1, least=1.0, most=1.0), Adam(1e-2)
    first, old = (Linear(4, 5, uniform_fan_in, key_of(i)) for i in range(2))
    opts = adam.init(old), adam.init(old)
    (_, found, _), _ = reset.renewed((old, first), (old, old, old), opts, adam, jnp.array(0), KEY)
    assert sorted(np.ravel(found.weight)) == pytest.approx(sorted(np.ravel(first.weight)))
    assert np.abs(found.weight - first.weight).mean() > 0.1 * np.abs(first.weight).mean()


@pytest.mark.parametrize("slot", [{"head": Experts()}, {"band": LowPass()}, {"entropy": CausalEntropy()}])
def test_parts_for_boxes_refuse_choices(slot):
    with pytest.raises(UserError, match="use"):
        SAC(hidden=(8,), feed=replay(), **slot).init(CHOICE.spec, KEY)


def test_experts_refuse_a_box_without_bounds():
    with pytest.raises(UserError, match="bounds"):
        Experts().width(Box((2,)))

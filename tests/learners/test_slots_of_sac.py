"""Parts that fill slots of soft actor-critic, each against something that is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
import scipy.special
import scipy.stats
from cases import CHOICE, replay

from thespis.actors.distributions import SquashedNormal
from thespis.actors.experts import Experts, SquashedMixture
from thespis.core.errors import UserError
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
    *jax.device_put((
        np.array([0.3, -0.5, 1.0], "float32"),
        np.array([[-0.8, 0.1], [0.5, -0.3], [0.2, 0.9]], "float32"),
        np.log(np.array([[0.2, 0.5], [0.4, 0.3], [1.0, 0.6]], "float32")),
    ))
)  # fmt: skip
LOG_PROB = jax.jit(lambda mixture, action: mixture.log_prob(action))


def density(action):
    """Of the mixture, by scipy: normals before the squashing, times its slope."""
    u = np.arctanh(action)
    each = scipy.stats.norm(MIXTURE.mean, np.exp(MIXTURE.log_std)).pdf(u).prod(axis=1)
    return float(scipy.special.softmax(MIXTURE.logits) @ each / np.prod(1 - np.asarray(action) ** 2))


@pytest.mark.parametrize("action", [(0.0, 0.0), (0.7, -0.2), (-0.95, 0.9)])
def test_a_mixture_has_the_density_it_says(action):
    assert LOG_PROB(MIXTURE, np.array(action, "float32")) == pytest.approx(np.log(density(np.array(action))), abs=1e-4)


def test_a_mixture_is_told_number_by_number():
    """What the numbers' log-densities sum to is the density of the draw; the first is that of the first alone."""

    @jax.jit
    def told(mixture, key):
        actions, weights, parts = mixture.candidates_in_parts(key)
        first = SquashedMixture(mixture.logits, mixture.mean[:, :1], mixture.log_std[:, :1])
        return actions, weights, parts, jax.vmap(first.log_prob)(actions[:, :1]), mixture.candidates(key)[2]

    actions, weights, parts, first, whole = jax.tree.map(np.asarray, told(MIXTURE, KEY))
    assert np.sum(parts, axis=1) == pytest.approx([np.log(density(a)) for a in actions], abs=1e-4)
    assert parts[:, 0] == pytest.approx(first, abs=1e-4)
    assert whole == pytest.approx(parts.sum(axis=1), abs=1e-5)
    assert weights == pytest.approx(scipy.special.softmax(np.asarray(MIXTURE.logits)), abs=1e-6)


def test_draws_of_a_mixture_fall_where_its_density_is():
    draws = np.asarray(jax.jit(lambda key: jax.vmap(MIXTURE.sample)(jax.random.split(key, 20_000)))(KEY))[:, 0]
    grid = np.linspace(-0.999, 0.999, 4_001)
    logits, mean, log_std = map(np.asarray, (MIXTURE.logits, MIXTURE.mean, MIXTURE.log_std))
    normals = scipy.stats.norm(mean[:, 0], np.exp(log_std[:, 0]))
    below = normals.cdf(np.arctanh(grid)[:, None]) @ scipy.special.softmax(logits)
    found = np.searchsorted(np.sort(draws), grid) / len(draws)
    assert np.abs(found - below).max() < 0.015


def test_experts_climb_and_the_best_is_routed_to():
    given = np.array([[0.2, 0.5, 0.3], [1.0, 3.0, -1.0], [0.1, 0.2, 0.3]], "float32")
    weights, best, exact = given[0], Experts(3), Experts(3, routing="exact")
    entropy = 0.2 * 0.1 + 0.5 * 0.2 + 0.3 * 0.3
    told = jax.jit(lambda *given: (jax.value_and_grad(best.rise, (0, 1, 2))(*given), exact.rise(*given)))
    (found, (towards, by_value, by_bonus)), found_exact = told(*given)
    assert found == pytest.approx((1.0 + 3.0 - 1.0) / 3 - (0.04 + 0.25 + 0.09) / 3 + entropy)
    assert found_exact == pytest.approx(0.2 * 1.1 + 0.5 * 3.2 - 0.3 * 0.7)
    assert towards == pytest.approx(np.array([-0.4, 1.0, -0.6]) / 3)
    assert by_value == pytest.approx(np.full(3, 1 / 3))
    assert by_bonus == pytest.approx(weights)


@pytest.mark.parametrize("routing", ["best", "exact"])
def test_experts_climb_the_entropy_of_the_whole_mixture(routing):
    """By many draws: the slope along means and deviations is that of the entropy, integrated on a grid."""
    u = np.linspace(-9, 9, 4001, dtype="float32")
    logits, spread = jax.device_put((np.array([0.3, -0.5], "float32"), np.array([[-0.4], [0.2]], "float32")))

    def integrated(mean, log_std):
        found = SquashedMixture(logits, mean, log_std)
        normals = jax.scipy.stats.norm.logpdf(u[:, None], mean[:, 0], jnp.exp(log_std[:, 0]))
        chance = jnp.exp(normals) @ found.weights
        return -jnp.sum(chance * (jnp.log(chance + 1e-30) - jnp.log1p(-(jnp.tanh(u) ** 2) + 1e-12))) * (u[1] - u[0])

    def drawn(mean, log_std, key):
        _, weights, logs = SquashedMixture(logits, mean, log_std).candidates(key)
        return Experts(2, routing=routing).rise(weights, jnp.zeros(2), -logs)

    @jax.jit
    def both(mean, spread, key):
        slopes = jax.vmap(jax.grad(drawn, (0, 1)), (None, None, 0))(mean, spread, jax.random.split(key, 40_000))
        return slopes, jax.grad(integrated, (0, 1))(mean, spread)

    for found, wanted in zip(*both(np.array([[-0.8], [0.5]], "float32"), spread, KEY), strict=True):
        np.testing.assert_allclose(np.asarray(found).mean(axis=0), wanted, atol=0.03)


def test_a_band_keeps_low_frequencies_and_damps_high_ones():
    """Cosines over a mirrored box are what a normal filter only scales; two members, the second one higher."""

    actions = np.linspace(-1, 1, 9, dtype="float32")[:, None]

    @jax.jit
    def least(k, actions, key):
        def build(offset):
            return jax.tree_util.Partial(
                lambda offset, _, actions: offset + jnp.cos(k * jnp.pi * (actions[:, 0] + 1) / 2), offset
            )

        return LowPass(0.2, samples=20_000).least(jax.vmap(build)(jnp.array([0.0, 0.5])), key)(jnp.zeros(1), actions)

    for k in (0, 1, 6):
        found = least(np.float32(k), actions, KEY)
        damped = np.exp(-((k * np.pi * 0.2 / 2) ** 2) / 2) * np.cos(k * np.pi * (actions[:, 0] + 1) / 2)
        assert found == pytest.approx(damped, abs=0.03)


def test_what_is_mirrored_stays_inside():
    x = np.array([-3.5, -1.2, -1.0, 0.3, 1.0, 1.25, 2.9, 5.5], "float32")
    assert jax.jit(mirrored)(x) == pytest.approx(np.array([0.5, -0.8, -1.0, 0.3, 1.0, 0.75, -0.9, 0.5]))


def caused(n):
    """Four numbers: 2 causes 0, both and 1 cause the last; noises are uniform."""
    noise = np.random.default_rng(1).uniform(-1, 1, (4, n))
    second = noise[2]
    first = 0.8 * second + noise[0]
    last = 1.5 * first - 0.7 * noise[1] + 0.5 * noise[3]
    return np.stack([first, noise[1], second, last]).astype("float32")


def test_causes_are_told_from_effects():
    x = caused(4_000)
    order, effects = np.asarray(jax.jit(causal_order)(x)), jax.jit(effects_on_last)
    assert order[2] < order[0] < order[3] and order[1] < order[3]
    assert effects(x) == pytest.approx(np.array([1.5, -0.7, 0.0, 0.0]), abs=0.05)
    backwards = effects(x[[3, 1, 2, 0]])  # what is asked for does not come last in the order
    assert backwards == pytest.approx(np.array([0.0, 0.0, 0.8, 0.0]), abs=0.05)


def test_entropy_is_paid_by_cause():
    @jax.jit
    def told(causes, key):
        normal = SquashedNormal(jnp.array([0.3, -0.2]), jnp.array([-1.0, 0.0]))
        actions, _, weighed = CausalEntropy().draw(Causes(causes, jnp.zeros((1, 1))), normal, key)
        alone = SquashedNormal(normal.mean[:1], normal.log_std[:1]).log_prob(actions[0, :1])
        return weighed[0], alone, normal.candidates(key)[2][0]

    weighed, alone, _ = told(np.array([1.0, 0.0], "float32"), KEY)
    assert weighed == pytest.approx(float(alone), abs=1e-4)
    even, _, whole = told(np.ones(2, "float32"), KEY)
    assert even == pytest.approx(float(whole), abs=1e-5)


def layer(weight):
    return Linear(2, 3, lambda *_: jnp.array(weight), KEY)


def test_a_neuron_without_gradient_is_dormant():
    def share(least):
        nets = layer([[3.0, 0.0, 0.1], [4.0, 0.0, 0.0]]), layer([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
        return dormant_share(nets, least)

    few, more = jax.jit(lambda: (share(0.05), share(0.1)))()
    assert few == pytest.approx(1 / 6)
    assert more == pytest.approx(2 / 6)


@jax.jit
def blended(index, key):
    """Nets before and after, and the optimisers' states."""
    adam, reset = Adam(1e-2), Dormancy(every=5, least=0.0)
    actor, critics = layer([[3.0, 5.0, 0.1], [4.0, 0.0, 0.0]]), Linear(2, 3, uniform_fan_in, key)
    fresh = reset.init(jax.tree.map(jnp.ones_like, (actor, critics)))
    _, opt = adam.transform().update(layer([[1.0, 0.0, 1.0], [1.0, 0.0, 2.0]]), adam.init(actor), actor)
    old = actor, critics, critics
    return old, *reset.renewed(fresh, old, (opt, opt), adam, index, key)


@pytest.mark.parametrize(("index", "share"), [(3, 0.0), (4, 1 / 3)])
def test_nets_are_blended_by_how_dormant_the_actor_is(index, share):
    old, nets, opts = jax.tree.map(np.asarray, blended(np.int32(index), KEY))
    wanted = jax.tree.map(lambda x: (1 - share) * x + share, old)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.allclose(a, b, atol=1e-6)), nets, wanted))
    assert int(opts[0][0].count) == (0 if share else 1)


def test_fresh_nets_are_drawn_from_the_first():
    @jax.jit
    def renewed(one, other, key):
        reset, adam = Dormancy(every=1, least=1.0, most=1.0), Adam(1e-2)
        first, old = (Linear(4, 5, uniform_fan_in, key) for key in (one, other))
        opts = adam.init(old), adam.init(old)
        return first, reset.renewed((old, first), (old, old, old), opts, adam, jnp.array(0), key)[0][1]

    first, found = jax.tree.map(np.asarray, renewed(*(made_up.quick_key(i) for i in range(2)), KEY))
    assert sorted(np.ravel(found.weight)) == pytest.approx(sorted(np.ravel(first.weight)))
    assert np.abs(found.weight - first.weight).mean() > 0.1 * np.abs(first.weight).mean()


@pytest.mark.parametrize("slot", [{"head": Experts()}, {"band": LowPass()}, {"entropy": CausalEntropy()}])
def test_parts_for_boxes_refuse_choices(slot):
    with pytest.raises(UserError, match="use"):
        jax.eval_shape(lambda key: SAC(hidden=(8,), feed=replay(), **slot).init(CHOICE.spec, key), KEY)


def test_experts_refuse_a_box_without_bounds():
    with pytest.raises(UserError, match="bounds"):
        Experts().width(Box((2,)))

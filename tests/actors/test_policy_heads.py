"""Policy heads for every action space, and exploration of deterministic actors, against their definitions."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, TREE_ACTION, VECTOR, Walk

from thespis.actors.deterministic import (
    DeterministicActor,
    GumbelSoftmaxActor,
    GumbelSoftmaxPolicy,
    NoisyPolicy,
    build_dpg_actor,
)
from thespis.actors.distributions import ProductDistribution
from thespis.actors.policy_heads import Gaussian, PolicyHead, SquashedGaussian, vmap_act
from thespis.actors.stochastic import SoftActor, SoftPolicy
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_in_space
from thespis.core.laws.random_samples import random_view
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Box, Discrete, MultiDiscrete, tuple_space
from thespis.nets.mlp import orthogonal

KEY = jax.random.key(0)
ZERO_NOISE = jnp.zeros(Walk().spec.action_space.shape)
FEATURES = jnp.array([0.5, -1.0, 2.0])
NESTED = tuple_space(TREE_ACTION, Box((2, 3), -1.0, 1.0), Discrete(2))


def head(space, continuous=None):
    return PolicyHead(space, 3, KEY, init=orthogonal(1.0), continuous_head=continuous or Gaussian())


@pytest.mark.parametrize("space", [BOX, Discrete(4), MultiDiscrete((2, 3)), TREE_ACTION, NESTED], ids=str)
@pytest.mark.parametrize("continuous", [Gaussian(), SquashedGaussian()], ids=["gaussian", "squashed"])
def test_policy_head_serves_every_space(space, continuous):
    policy = head(space, continuous)(FEATURES)
    for action in (policy.sample(KEY), policy.mode(), policy.sample_with_log_prob(KEY)[0]):
        batched = jax.tree.map(lambda x: x[None], action)
        assert_in_space(space, batched, (1,), "head", bounded=False)
    assert np.isfinite(policy.log_prob(policy.sample(KEY)))


def test_components_have_separate_outputs():
    """Changing the outputs of one component changes only that component's distribution."""
    before = head(TREE_ACTION)
    bias = before.out.bias.at[3:5].add(1.0)  # kind has outputs 0 to 2, push 3 and 4, turns 5 to 9
    after = eqx.tree_at(lambda h: h.out.bias, before, bias)
    old, new = before(FEATURES), after(FEATURES)
    assert isinstance(old, ProductDistribution) and before.out.bias.shape == (10,)
    np.testing.assert_array_equal(old.components[0].log_probs, new.components[0].log_probs)
    np.testing.assert_allclose(new.components[1].mean - old.components[1].mean, [1.0, 1.0], rtol=1e-5)
    for a, b in zip(old.components[2].components, new.components[2].components, strict=True):
        np.testing.assert_array_equal(a.log_probs, b.log_probs)


def test_masks_reach_their_components():
    legal = {"kind": jnp.array([True, False, True]), "push": None, "turns": jnp.array([False, True, True, False, True])}
    policy = head(TREE_ACTION)(FEATURES, legal)
    assert policy.components[0].probs[1] == 0.0
    assert policy.components[2].components[0].probs.tolist() == [0.0, 1.0]
    assert policy.components[2].components[1].probs[1] == 0.0


def test_log_std_is_clipped_for_squashed_gaussians_only():
    extreme = eqx.tree_at(lambda h: h.out.bias, head(BOX, SquashedGaussian()), jnp.array([0.0, 0.0, 99.0, -99.0]))
    np.testing.assert_array_equal(extreme(FEATURES).log_std, [2.0, -20.0])
    np.testing.assert_array_equal(head(BOX, Gaussian(log_std_init=-0.7))(FEATURES).log_std, np.float32([-0.7, -0.7]))


def test_unsupported_action_spaces_are_rejected():
    with pytest.raises(UserError, match="finite bounds"):
        head(Box((2,)), SquashedGaussian())
    with pytest.raises(UserError, match="one box"):
        build_dpg_actor(EnvSpec("choices", VECTOR, MultiDiscrete((2, 2))), (4,), KEY)


def test_row_keys_do_not_depend_on_the_number_of_rows():
    def act_one(memory, view, key):
        return jax.random.normal(key), memory, ()

    four_rows, two_rows = (vmap_act(act_one, (), View(jnp.zeros((n, 1))), KEY)[0] for n in (4, 2))
    np.testing.assert_array_equal(four_rows[:2], two_rows)
    assert len(np.unique(four_rows)) == 4


def noisy(mode, uniform, noise=0.3, mean_reversion=1.0):
    spec = Walk().spec
    actor = DeterministicActor(spec, (4,), KEY)
    return (
        actor,
        NoisyPolicy(actor, jnp.float32(noise), jnp.float32(mean_reversion), jnp.asarray(uniform), mode),
        jax.tree.map(jnp.asarray, random_view(spec, np.random.default_rng(0))),
    )


def test_noise_of_the_deterministic_actor():
    keys = jax.random.split(KEY, 4000)
    actor, policy, view = noisy(Mode.EXPLORE, False)
    mean = np.asarray(actor(view.observation))
    samples = np.asarray(jax.vmap(lambda k: policy(ZERO_NOISE, view, k)[0])(keys))
    assert np.all(np.abs(samples) <= 1)
    assert np.all(np.abs(mean) < 0.4)  # far enough inside for clipping to be rare
    np.testing.assert_allclose(samples.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(samples.std(0), 0.3, atol=0.02)


def test_slow_mean_reversion_gives_ornstein_uhlenbeck_noise():
    """Deviation ``s / sqrt(1 - (1 - r)^2)``, autocorrelation ``(1 - r)^k``, mean reversion r; actions are clipped."""
    actor, policy, view = noisy(Mode.EXPLORE, False, noise=0.05, mean_reversion=0.15)
    mean = np.asarray(actor(view.observation))

    def step(noise, key):
        action, noise = policy(noise, view, key)
        return noise, (action, noise)

    _, (actions, noise) = jax.lax.scan(step, ZERO_NOISE, jax.random.split(KEY, 60_000))
    actions, noise = np.asarray(actions), np.asarray(noise)
    np.testing.assert_allclose(noise.std(0), 0.05 / np.sqrt(1 - 0.85**2), rtol=0.05)
    for lag in (1, 5):
        np.testing.assert_allclose(np.mean(noise[lag:] * noise[:-lag], 0) / noise.var(0), 0.85**lag, atol=0.04)
    np.testing.assert_allclose(actions, np.clip(mean + noise, -1, 1), atol=1e-6)
    first, _ = policy(ZERO_NOISE, view, KEY)
    white = noisy(Mode.EXPLORE, False, noise=0.05)[1]
    np.testing.assert_array_equal(first, white(ZERO_NOISE, view, KEY)[0])  # they differ only in memory


def test_no_noise_unless_exploring():
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        actor, policy, view = noisy(mode, True)
        np.testing.assert_array_equal(policy(ZERO_NOISE, view, KEY)[0], actor(view.observation))


@pytest.mark.parametrize("soft", [False, True])
def test_fresh_actors_explore_uniformly(soft):
    _, policy, view = noisy(Mode.EXPLORE, True)
    keys = jax.random.split(KEY, 4000)
    samples = jax.vmap(lambda k: policy(ZERO_NOISE, view, k)[0])(keys)
    if soft:
        actor = SoftPolicy(SoftActor(Walk().spec, (4,), KEY), (), jnp.asarray(True), Mode.EXPLORE)
        samples = jax.vmap(lambda k: actor(view, k))(keys)
    np.testing.assert_allclose(samples.mean(0), 0.0, atol=0.04)
    np.testing.assert_allclose(samples.var(0), 1 / 3, atol=0.02)


def test_gumbel_softmax_actor_explores_by_its_probabilities():
    """Uniform over legal actions until the first update, then by its probabilities; EXPLOIT takes the most likely."""
    actor = eqx.tree_at(
        lambda a: a.out.bias, GumbelSoftmaxActor(Walk(Discrete(4)).spec, (4,), KEY), jnp.array([0, 2, 9, 1.0])
    )
    view, keys = View(FEATURES, jnp.array([True, True, False, True])), jax.random.split(KEY, 4000)

    def frequencies(uniform, mode):
        policy = GumbelSoftmaxPolicy(actor, jnp.asarray(uniform), mode)
        samples = jax.vmap(lambda k: policy((), view, k)[0])(keys)
        return np.bincount(samples, minlength=4) / 4000

    np.testing.assert_allclose(frequencies(True, Mode.EXPLORE), [1 / 3, 1 / 3, 0, 1 / 3], atol=0.03)
    for mode in (Mode.EXPLORE, Mode.SAMPLE):
        np.testing.assert_allclose(frequencies(False, mode), actor(view).probs, atol=0.03)
    np.testing.assert_array_equal(frequencies(True, Mode.EXPLOIT), jax.nn.one_hot(jnp.argmax(actor(view).probs), 4))
    assert (
        actor.decode_action(actor.sample_encoded(view, KEY)) != 2
        and actor.decode_action(actor.encode_action(jnp.int32(2))) == 2
    )
    np.testing.assert_array_equal(actor.greedy_encoded(view), actor.encode_action(actor(view).mode()))

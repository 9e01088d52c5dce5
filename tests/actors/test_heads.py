"""One head for every space, and the deterministic actor's noise."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import BOX, TREE_ACTION, VECTOR, Walk

from thespis.actors.choosing import ChoosingActor, ChoosingPolicy, climbing
from thespis.actors.deterministic import DeterministicActor, NoisyPolicy
from thespis.actors.distributions import Product
from thespis.actors.heads import Gaussian, PolicyHead, SquashedGaussian, act_rows
from thespis.actors.soft import SoftActor, SoftPolicy
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws import fits
from thespis.core.records import EnvSpec, View
from thespis.core.samples import random_view
from thespis.core.spaces import Box, Discrete, MultiDiscrete, tuple_space
from thespis.nets.mlp import orthogonal

KEY = jax.random.key(0)
QUIET = jnp.zeros(Walk().spec.action.shape)
FEATURES = jnp.array([0.5, -1.0, 2.0])
NESTED = tuple_space(TREE_ACTION, Box((2, 3), -1.0, 1.0), Discrete(2))


def head(space, continuous=None):
    return PolicyHead(space, 3, KEY, init=orthogonal(1.0), continuous=continuous or Gaussian())


@pytest.mark.parametrize("space", [BOX, Discrete(4), MultiDiscrete((2, 3)), TREE_ACTION, NESTED], ids=str)
@pytest.mark.parametrize("continuous", [Gaussian(), SquashedGaussian()], ids=["gaussian", "squashed"])
def test_a_head_serves_every_space(space, continuous):
    policy = head(space, continuous)(FEATURES)
    for action in (policy.sample(KEY), policy.mode(), policy.sample_with_log_prob(KEY)[0]):
        batched = jax.tree.map(lambda x: x[None], action)
        fits(space, batched, (1,), "head", bounded=False)
    assert np.isfinite(policy.log_prob(policy.sample(KEY)))


def test_parts_get_outputs_of_their_own():
    """Changing the outputs of one part moves that part's distribution alone."""
    before = head(TREE_ACTION)
    bias = before.out.bias.at[3:5].add(1.0)  # kind has outputs 0 to 2, push 3 and 4, turns 5 to 9
    after = eqx.tree_at(lambda h: h.out.bias, before, bias)
    old, new = before(FEATURES), after(FEATURES)
    assert isinstance(old, Product) and before.out.bias.shape == (10,)
    np.testing.assert_array_equal(old.parts[0].log_probs, new.parts[0].log_probs)
    np.testing.assert_allclose(new.parts[1].mean - old.parts[1].mean, [1.0, 1.0], rtol=1e-5)
    for a, b in zip(old.parts[2].parts, new.parts[2].parts, strict=True):
        np.testing.assert_array_equal(a.log_probs, b.log_probs)


def test_masks_reach_their_parts():
    legal = {"kind": jnp.array([True, False, True]), "push": None, "turns": jnp.array([False, True, True, False, True])}
    policy = head(TREE_ACTION)(FEATURES, legal)
    assert policy.parts[0].probs[1] == 0.0
    assert policy.parts[2].parts[0].probs.tolist() == [0.0, 1.0]
    assert policy.parts[2].parts[1].probs[1] == 0.0


def test_spread_of_a_gaussian_is_free_and_of_a_squashed_one_is_limited():
    wide = eqx.tree_at(lambda h: h.out.bias, head(BOX, SquashedGaussian()), jnp.array([0.0, 0.0, 99.0, -99.0]))
    np.testing.assert_array_equal(wide(FEATURES).log_std, [2.0, -20.0])
    np.testing.assert_array_equal(head(BOX, Gaussian(log_std=-0.7))(FEATURES).log_std, np.float32([-0.7, -0.7]))


def test_a_head_refuses_what_it_cannot_squash():
    with pytest.raises(UserError, match="finite bounds"):
        head(Box((2,)), SquashedGaussian())
    with pytest.raises(UserError, match="one box"):
        climbing(EnvSpec("choices", VECTOR, MultiDiscrete((2, 2))), (4,), KEY)


def test_rows_have_keys_of_their_own_that_do_not_depend_on_their_number():
    def one(memory, view, key):
        return jax.random.normal(key), memory, ()

    four, two = (act_rows(one, (), View(jnp.zeros((n, 1))), KEY)[0] for n in (4, 2))
    np.testing.assert_array_equal(four[:2], two)
    assert len(np.unique(four)) == 4


def noisy(mode, random, noise=0.3, pull=1.0):
    spec = Walk().spec
    actor = DeterministicActor(spec, (4,), KEY)
    return (
        actor,
        NoisyPolicy(actor, jnp.float32(noise), jnp.float32(pull), jnp.asarray(random), mode),
        jax.tree.map(jnp.asarray, random_view(spec, np.random.default_rng(0))),
    )


def test_noise_of_the_deterministic_actor():
    keys = jax.random.split(KEY, 4000)
    actor, policy, view = noisy(Mode.EXPLORE, False)
    mean = np.asarray(actor(view.observation))
    draws = np.asarray(jax.vmap(lambda k: policy(QUIET, view, k)[0])(keys))
    assert np.all(np.abs(draws) <= 1)
    assert np.all(np.abs(mean) < 0.4)  # far enough inside for clipping to be rare
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(draws.std(0), 0.3, atol=0.02)


def test_noise_that_is_pulled_back_slowly_is_an_ornstein_uhlenbeck_process():
    """Deviation ``s / sqrt(1 - (1 - pull)^2)`` and autocorrelation ``(1 - pull)^k``; what acts is clipped."""
    actor, policy, view = noisy(Mode.EXPLORE, False, noise=0.05, pull=0.15)
    mean = np.asarray(actor(view.observation))

    def tick(noise, key):
        action, noise = policy(noise, view, key)
        return noise, (action, noise)

    _, (actions, noise) = jax.lax.scan(tick, QUIET, jax.random.split(KEY, 60_000))
    actions, noise = np.asarray(actions), np.asarray(noise)
    np.testing.assert_allclose(noise.std(0), 0.05 / np.sqrt(1 - 0.85**2), rtol=0.05)
    for lag in (1, 5):
        np.testing.assert_allclose(np.mean(noise[lag:] * noise[:-lag], 0) / noise.var(0), 0.85**lag, atol=0.04)
    np.testing.assert_allclose(actions, np.clip(mean + noise, -1, 1), atol=1e-6)
    first, _ = policy(QUIET, view, KEY)
    white = noisy(Mode.EXPLORE, False, noise=0.05)[1]
    np.testing.assert_array_equal(first, white(QUIET, view, KEY)[0])  # they differ in what they remember alone


def test_no_noise_unless_exploring():
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        actor, policy, view = noisy(mode, True)
        np.testing.assert_array_equal(policy(QUIET, view, KEY)[0], actor(view.observation))


@pytest.mark.parametrize("soft", [False, True])
def test_fresh_actors_explore_uniformly(soft):
    _, policy, view = noisy(Mode.EXPLORE, True)
    keys = jax.random.split(KEY, 4000)
    draws = jax.vmap(lambda k: policy(QUIET, view, k)[0])(keys)
    if soft:
        actor = SoftPolicy(SoftActor(Walk().spec, (4,), KEY), (), jnp.asarray(True), Mode.EXPLORE)
        draws = jax.vmap(lambda k: actor(view, k))(keys)
    np.testing.assert_allclose(draws.mean(0), 0.0, atol=0.04)
    np.testing.assert_allclose(draws.var(0), 1 / 3, atol=0.02)


def test_an_actor_that_chooses_explores_by_its_own_chances():
    """Uniform over what is legal until the first update, then as it says; the likeliest when it exploits."""
    actor = eqx.tree_at(
        lambda a: a.out.bias, ChoosingActor(Walk(Discrete(4)).spec, (4,), KEY), jnp.array([0, 2, 9, 1.0])
    )
    view, keys = View(FEATURES, jnp.array([True, True, False, True])), jax.random.split(KEY, 4000)

    def shares(random, mode):
        policy = ChoosingPolicy(actor, jnp.asarray(random), mode)
        draws = jax.vmap(lambda k: policy((), view, k)[0])(keys)
        return np.bincount(draws, minlength=4) / 4000

    np.testing.assert_allclose(shares(True, Mode.EXPLORE), [1 / 3, 1 / 3, 0, 1 / 3], atol=0.03)
    for mode in (Mode.EXPLORE, Mode.SAMPLE):
        np.testing.assert_allclose(shares(False, mode), actor(view).probs, atol=0.03)
    np.testing.assert_array_equal(shares(True, Mode.EXPLOIT), jax.nn.one_hot(jnp.argmax(actor(view).probs), 4))
    assert actor.left(actor.answer(view, KEY)) != 2 and actor.left(actor.entered(jnp.int32(2))) == 2
    np.testing.assert_array_equal(actor.best(view), actor.entered(actor(view).mode()))

"""Feedback: laws of the contract for every feedback, and properties of random network distillation."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Feedback
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, map_space, space_shape
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.runtime.keys import seed_key

TREE = dict_space(picture=Box((5, 6, 1), 0.0, 255.0, "uint8"), turns=MultiDiscrete((2, 3)), vector=Box((3,)))
SPACES = {"box": Box((3,)), "discrete": Discrete(12), "tree": TREE}
FEEDBACKS = [EnvironmentReward(), RandomNetworkDistillation(hidden_sizes=(16,), feature_size=8), CountBonus()]
KEY = jax.random.key(0)
update = eqx.filter_jit(lambda feedback, state, batch: feedback.update(state, batch, None, KEY))
score = eqx.filter_jit(lambda feedback, state, batch: feedback.score(state, batch, KEY).total)


@functools.cache
def cached_init_state(feedback, space):
    return jax.jit(lambda key: feedback.init(EnvSpec("made", space, Discrete(2)), key))(KEY)


def observations(space, seed, shape):
    rng = np.random.default_rng(seed)

    def random_leaf(space):
        match space:
            case Box(dtype="uint8"):
                return rng.integers(0, 256, (*shape, *space.shape)).astype("uint8")
            case Box():
                return (100.0 + 30.0 * rng.normal(size=(*shape, *space.shape))).astype("float32")
            case Discrete():
                return rng.integers(0, space.n, shape).astype("int32")
            case _:
                return rng.integers(0, 2, (*shape, *space_shape(space))).astype("int32")

    return map_space(random_leaf, space)


def batch_of(observation, shape, mask=None):
    false = np.zeros(shape, bool)
    view, reward = View(observation), np.arange(np.prod(shape), dtype="float32").reshape(shape)
    steps = Transition(view, np.zeros(shape, "int32"), reward, false, false, view, false)
    return jax.device_put(Batch(steps, np.ones(shape, bool) if mask is None else mask, (), np.zeros((), "int32")))


def state_and_batch(feedback, space, shape=(4, 3)):
    return cached_init_state(feedback, space), batch_of(observations(space, 1, shape), shape)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("feedback", FEEDBACKS, ids=lambda f: f.name)
def test_feedback_laws(feedback, space):
    assert isinstance(feedback, Feedback)
    state, batch = state_and_batch(feedback, space)
    first, report = update(feedback, state, batch)
    second, _ = update(feedback, state, batch)
    assert equal(first, second) and equal(score(feedback, first, batch), score(feedback, second, batch))
    is_equal_type = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, first)
    assert jax.tree.all(is_equal_type)
    rewards = np.asarray(score(feedback, state, batch))
    assert rewards.shape == batch.steps.reward.shape and rewards.dtype == batch.steps.reward.dtype
    assert np.isfinite(rewards).all()
    assert all(x.shape == () and np.isfinite(x) for x in report.metrics.values())
    one_step = jax.device_put(
        Batch(jax.tree.map(lambda x: np.asarray(x)[:1], batch.steps), batch.mask[:1], (), batch.update_index)
    )
    np.testing.assert_allclose(score(feedback, state, one_step), rewards[:1], rtol=1e-5)


@pytest.mark.parametrize("feedback", FEEDBACKS, ids=lambda f: f.name)
def test_vmapped_seeds_equal_single_seeds(feedback):
    def run(key, batch):
        state = feedback.init(EnvSpec("made", SPACES["box"], Discrete(2)), key)
        state, _ = feedback.update(state, batch, None, key)
        return feedback.score(state, batch, key).total

    keys = [seed_key(seed) for seed in range(3)]
    batches = [batch_of(observations(SPACES["box"], seed, (4, 3)), (4, 3)) for seed in range(3)]
    vmapped = jax.jit(jax.vmap(run))
    together = vmapped(jnp.stack(keys), jax.tree.map(lambda *x: np.stack(x), *batches))
    one_run = jax.jit(run)
    alone = [one_run(key, batch) for key, batch in zip(keys, batches, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-4)


def test_environment_reward_is_the_identity():
    _, batch = state_and_batch(EnvironmentReward(), SPACES["box"])
    np.testing.assert_array_equal(EnvironmentReward().score((), batch, KEY).total, batch.steps.reward)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_bonus_falls_for_known_observations_only(space):
    feedback = RandomNetworkDistillation(learning_rate=1e-3, hidden_sizes=(32,), feature_size=16)
    known, novel = (batch_of(observations(space, seed, (2, 4)), (2, 4)) for seed in (1, 2))
    if space == SPACES["discrete"]:
        known = batch_of(np.arange(8, dtype="int32").reshape(2, 4) % 6, (2, 4))
        novel = batch_of(np.arange(8, dtype="int32").reshape(2, 4) % 6 + 6, (2, 4))

    @jax.jit
    def bonuses(key, known, novel):
        """Bonus of known observations after one update and after many, and of novel observations."""

        def step(state, _):
            return feedback.update(state, known, None, KEY)[0], None

        def bonus(state, batch):
            return jnp.mean(feedback.score(state, batch, KEY).total - batch.steps.reward)

        first, _ = step(feedback.init(EnvSpec("made", space, Discrete(2)), key), None)
        trained = jax.lax.scan(step, first, length=200)[0]
        return bonus(first, known), bonus(trained, known), bonus(trained, novel)

    initial, on_known, on_novel = bonuses(KEY, known, novel)
    assert on_known < 0.2 * initial
    assert on_novel > 5 * on_known


def test_target_network_is_fixed_and_has_no_gradient():
    feedback = FEEDBACKS[1]
    state, batch = state_and_batch(feedback, TREE)
    updated, _ = update(feedback, state, batch)
    assert equal(updated.target, state.target) and not equal(updated.predictor, state.predictor)

    @jax.jit
    @jax.grad
    def gradient(target):
        return feedback.score(eqx.tree_at(lambda s: s.target, state, target), batch, KEY).total.sum()

    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient(state.target)))


@pytest.mark.long
def test_more_epochs_and_smaller_minibatches_train_the_predictor_more():
    errors = []
    for epochs, minibatch in ((1, None), (4, None), (4, 2)):
        feedback = RandomNetworkDistillation(
            learning_rate=1e-3, hidden_sizes=(16,), feature_size=8, num_epochs=epochs, minibatch_size=minibatch
        )
        state, batch = state_and_batch(feedback, SPACES["box"])
        updated, _ = update(feedback, state, batch)
        errors.append(np.mean(score(feedback, dataclasses.replace(updated, error_moments=state.error_moments), batch)))
    assert errors[0] > errors[1] > errors[2]


def test_weight_scales_only_the_bonus():
    rewards = []
    for weight in (0.0, 1.0, 2.0):
        feedback = RandomNetworkDistillation(weight, hidden_sizes=(16,), feature_size=8)
        state, batch = state_and_batch(feedback, SPACES["box"])
        rewards.append(np.asarray(score(feedback, state, batch)))
    np.testing.assert_array_equal(rewards[0], batch.steps.reward)
    np.testing.assert_allclose(rewards[2] - rewards[0], 2 * (rewards[1] - rewards[0]), rtol=1e-4, atol=1e-5)
    assert (rewards[1] > rewards[0]).all()


def test_masked_steps_are_ignored():
    feedback = FEEDBACKS[1]
    state, batch = state_and_batch(feedback, SPACES["box"])
    mask = np.ones((4, 3), bool)
    mask[2:, 1] = False
    garbage = np.where(mask[..., None], batch.steps.next_view.observation, np.float32(1e6))
    result, _ = update(feedback, state, batch_of(batch.steps.next_view.observation, (4, 3), mask))
    with_garbage, _ = update(feedback, state, batch_of(garbage, (4, 3), mask))
    assert equal(result, with_garbage)


def test_environment_reward_can_be_scaled():
    steps = random_transitions(EnvSpec("box", Box((3,)), Discrete(2)), np.random.default_rng(0), 3, 2)
    batch = Batch(steps, np.ones((3, 2), bool), (), np.zeros((), "int32"))
    plain, hundredth = EnvironmentReward(), EnvironmentReward(0.01)
    np.testing.assert_array_equal(plain.score((), batch, KEY).total, steps.reward)
    np.testing.assert_allclose(hundredth.score((), batch, KEY).total, 0.01 * np.asarray(steps.reward), rtol=1e-6)

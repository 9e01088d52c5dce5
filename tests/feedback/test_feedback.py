"""The laws of the contract for every feedback, and what the bonus is for."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Feedback
from thespis.core.keys import key_of
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, map_space, shape_of
from thespis.feedback.counts import Counts
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.rnd import RandomNetworkDistillation

TREE = dict_space(picture=Box((5, 6, 1), 0.0, 255.0, "uint8"), turns=MultiDiscrete((2, 3)), vector=Box((3,)))
SPACES = {"box": Box((3,)), "discrete": Discrete(12), "tree": TREE}
FEEDBACKS = [EnvironmentReward(), RandomNetworkDistillation(hidden=(16,), features=8), Counts()]
KEY = jax.random.key(0)
update = eqx.filter_jit(lambda feedback, state, batch: feedback.update(state, batch, KEY))
score = eqx.filter_jit(lambda feedback, state, steps: feedback.score(state, steps))


@functools.cache
def begun(feedback, space):
    return jax.jit(lambda key: feedback.init(EnvSpec("made", space, Discrete(2)), key))(KEY)


def observations(space, seed, shape):
    rng = np.random.default_rng(seed)

    def leaf(part):
        match part:
            case Box(dtype="uint8"):
                return rng.integers(0, 256, (*shape, *part.shape)).astype("uint8")
            case Box():
                return (100.0 + 30.0 * rng.normal(size=(*shape, *part.shape))).astype("float32")
            case Discrete():
                return rng.integers(0, part.n, shape).astype("int32")
            case _:
                return rng.integers(0, 2, (*shape, *shape_of(part))).astype("int32")

    return map_space(leaf, space)


def batch_of(observation, shape, mask=None):
    no = np.zeros(shape, bool)
    view, reward = View(observation), np.arange(np.prod(shape), dtype="float32").reshape(shape)
    steps = Transition(view, np.zeros(shape, "int32"), reward, no, no, view, no)
    return jax.device_put(Batch(steps, np.ones(shape, bool) if mask is None else mask, (), np.zeros((), "int32")))


def made(feedback, space, shape=(4, 3)):
    return begun(feedback, space), batch_of(observations(space, 1, shape), shape)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("feedback", FEEDBACKS, ids=lambda f: f.name)
def test_laws(feedback, space):
    assert isinstance(feedback, Feedback)
    state, batch = made(feedback, space)
    first, report = update(feedback, state, batch)
    second, _ = update(feedback, state, batch)
    assert equal(first, second) and equal(score(feedback, first, batch.steps), score(feedback, second, batch.steps))
    kept = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, first)
    assert jax.tree.all(kept)
    rewards = np.asarray(score(feedback, state, batch.steps))
    assert rewards.shape == batch.steps.reward.shape and rewards.dtype == batch.steps.reward.dtype
    assert np.isfinite(rewards).all()
    assert all(x.shape == () and np.isfinite(x) for x in report.metrics.values())
    one_step = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[0], batch.steps))
    np.testing.assert_allclose(score(feedback, state, one_step), rewards[0], rtol=1e-5)


@pytest.mark.parametrize("feedback", FEEDBACKS, ids=lambda f: f.name)
def test_seeds_side_by_side_equal_seeds_alone(feedback):
    def run(key, batch):
        state = feedback.init(EnvSpec("made", SPACES["box"], Discrete(2)), key)
        state, _ = feedback.update(state, batch, key)
        return feedback.score(state, batch.steps)

    keys = [key_of(seed) for seed in range(3)]
    batches = [batch_of(observations(SPACES["box"], seed, (4, 3)), (4, 3)) for seed in range(3)]
    side_by_side = jax.jit(jax.vmap(run))
    together = side_by_side(jnp.stack(keys), jax.tree.map(lambda *x: np.stack(x), *batches))
    one_run = jax.jit(run)
    alone = [one_run(key, batch) for key, batch in zip(keys, batches, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-4)


def test_environment_reward_is_the_identity():
    _, batch = made(EnvironmentReward(), SPACES["box"])
    np.testing.assert_array_equal(EnvironmentReward().score((), batch.steps), batch.steps.reward)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_bonus_falls_where_the_agent_has_been_and_not_elsewhere(space):
    feedback = RandomNetworkDistillation(learning_rate=1e-3, hidden=(32,), features=16)
    known, novel = (batch_of(observations(space, seed, (2, 4)), (2, 4)) for seed in (1, 2))
    if space == SPACES["discrete"]:
        known = batch_of(np.arange(8, dtype="int32").reshape(2, 4) % 6, (2, 4))
        novel = batch_of(np.arange(8, dtype="int32").reshape(2, 4) % 6 + 6, (2, 4))

    @jax.jit
    def found(key, known, novel):
        """Bonuses of the known after a step and after many, and of the novel."""

        def step(state, _):
            return feedback.update(state, known, KEY)[0], None

        def bonus(state, batch):
            return jnp.mean(feedback.score(state, batch.steps) - batch.steps.reward)

        first, _ = step(feedback.init(EnvSpec("made", space, Discrete(2)), key), None)
        trained = jax.lax.scan(step, first, length=200)[0]
        return bonus(first, known), bonus(trained, known), bonus(trained, novel)

    before, after, elsewhere = found(KEY, known, novel)
    assert after < 0.2 * before
    assert elsewhere > 5 * after


def test_the_target_never_moves_and_gets_no_gradient():
    feedback = FEEDBACKS[1]
    state, batch = made(feedback, TREE)
    moved, _ = update(feedback, state, batch)
    assert equal(moved.target, state.target) and not equal(moved.predictor, state.predictor)

    @jax.jit
    @jax.grad
    def slope(target):
        return feedback.score(eqx.tree_at(lambda s: s.target, state, target), batch.steps).sum()

    assert all(not np.any(leaf) for leaf in jax.tree.leaves(slope(state.target)))


def test_more_epochs_of_smaller_minibatches_teach_the_predictor_more():
    known = []
    for epochs, minibatch in ((1, None), (4, None), (4, 2)):
        feedback = RandomNetworkDistillation(
            learning_rate=1e-3, hidden=(16,), features=8, epochs=epochs, minibatch=minibatch
        )
        state, batch = made(feedback, SPACES["box"])
        after, _ = update(feedback, state, batch)
        known.append(np.mean(score(feedback, dataclasses.replace(after, errors=state.errors), batch.steps)))
    assert known[0] > known[1] > known[2]


def test_weight_scales_the_bonus_alone():
    rewards = []
    for weight in (0.0, 1.0, 2.0):
        feedback = RandomNetworkDistillation(weight, hidden=(16,), features=8)
        state, batch = made(feedback, SPACES["box"])
        rewards.append(np.asarray(score(feedback, state, batch.steps)))
    np.testing.assert_array_equal(rewards[0], batch.steps.reward)
    np.testing.assert_allclose(rewards[2] - rewards[0], 2 * (rewards[1] - rewards[0]), rtol=1e-4, atol=1e-5)
    assert (rewards[1] > rewards[0]).all()


def test_masked_steps_teach_nothing():
    feedback = FEEDBACKS[1]
    state, batch = made(feedback, SPACES["box"])
    mask = np.ones((4, 3), bool)
    mask[2:, 1] = False
    garbage = np.where(mask[..., None], batch.steps.next_view.observation, np.float32(1e6))
    one, _ = update(feedback, state, batch_of(batch.steps.next_view.observation, (4, 3), mask))
    other, _ = update(feedback, state, batch_of(garbage, (4, 3), mask))
    assert equal(one, other)


def test_the_environments_reward_can_be_scaled():
    steps = random_steps(EnvSpec("box", Box((3,)), Discrete(2)), np.random.default_rng(0), 3, 2)
    plain, hundredth = EnvironmentReward(), EnvironmentReward(0.01)
    np.testing.assert_array_equal(plain.score((), steps), steps.reward)
    np.testing.assert_allclose(hundredth.score((), steps), 0.01 * np.asarray(steps.reward), rtol=1e-6)

"""Learned dynamics: the ensemble's loss, fit and elites, the environment that it makes, and when episodes end in it."""

from __future__ import annotations

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_env import LinearEnv, exact_model, linear_rollout
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.data.ring_buffer import RingBuffer
from thespis.data.stored_steps import BufferSteps
from thespis.learners.model_based.dynamics import DynamicsModel, Examples, Loader, Split
from thespis.learners.model_based.learned_env import (
    LearnedEnv,
    check_dynamics_spec,
    dynamics_input,
    dynamics_target,
)
from thespis.learners.model_based.termination import HEALTHY_RANGES, HealthyRange, LearnedTermination
from thespis.nets.gaussian_ensemble import GaussianEnsemble
from thespis.runtime.keys import fold

MODEL = DynamicsModel(weight_decay=(0.01, 0.02, 0.03), ensemble_size=3, num_elites=2, hidden_sizes=(5, 4), batch_size=8)


def stored(steps) -> BufferSteps:
    return BufferSteps(RingBuffer(jax.tree.map(jnp.asarray, steps)), jnp.asarray(steps.reward.shape[0], "int32"))


# -- loss ------------------------------------------------------------------------------------------------------


def plain_loss(weights, biases, low, high, batch) -> float:
    """The loss in double precision, member by member and row by row."""
    inputs, targets, terminated, mask = batch
    total, size = 0.0, targets.shape[-1]
    for member in range(len(inputs)):
        losses = []
        for row in range(inputs.shape[1]):
            if not mask[member, row]:
                continue
            x = inputs[member, row]
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                x = x @ w[member] + b[member]
                x = x / (1 + np.exp(-x))
            x = x @ weights[-1][member] + biases[-1][member]
            log_variance, floor = high - np.logaddexp(0, high - x[size : 2 * size]), np.maximum(low, -10.0)
            log_variance = floor + np.logaddexp(0, log_variance - floor)
            nll = np.mean((x[:size] - targets[member, row]) ** 2 / np.exp(log_variance) + log_variance)
            probability = 1 / (1 + np.exp(-x[-1]))
            nll -= np.log(probability if terminated[member, row] else 1 - probability)
            losses.append(nll)
        total += np.mean(losses)
    for decay, w in zip((0.01, 0.02, 0.03), weights, strict=True):
        total += 0.5 * decay * np.sum(w**2)
    return total + 0.01 * np.sum(high - low)


@pytest.mark.long
def test_loss_and_its_gradient_against_differences():
    rng = np.random.default_rng(0)
    ensemble = GaussianEnsemble(3, 4, (5, 4), 2, jax.random.key(0), num_logits=1)
    ensemble = jax.tree.map(lambda x: x + 0.3 * jnp.asarray(rng.normal(size=x.shape), "float32"), ensemble)
    rows = (3, 6)
    batch = (
        rng.normal(size=(*rows, 4)),
        rng.normal(size=(*rows, 2)),
        rng.uniform(size=rows) < 0.4,
        rng.uniform(size=rows) < 0.7,
    )
    examples = Examples(*(jnp.asarray(x, bool if x.dtype == bool else "float32") for x in batch))
    value, gradient = jax.value_and_grad(MODEL.loss)(ensemble, examples)

    def double(net):
        layers = [[np.asarray(x, "float64") for x in (layer.weight, layer.bias)] for layer in net.layers]
        bounds = [np.asarray(x, "float64") for x in (net.min_log_variance, net.max_log_variance)]
        return [w for w, _ in layers], [b for _, b in layers], *bounds

    params = double(ensemble)
    np.testing.assert_allclose(value, plain_loss(*params, batch), rtol=1e-5)
    slopes = double(gradient)
    flat, structure = jax.tree.flatten(params)
    for leaf, slope in enumerate(jax.tree.leaves(slopes)):
        for index in rng.integers(flat[leaf].size, size=4):
            sides = []
            for sign in (1, -1):
                moved = [np.array(x) for x in flat]
                moved[leaf].flat[index] += sign * 1e-5
                sides.append(plain_loss(*jax.tree.unflatten(structure, moved), batch))
            np.testing.assert_allclose(slope.flat[index], (sides[0] - sides[1]) / 2e-5, rtol=2e-3, atol=1e-4)


# -- fit -------------------------------------------------------------------------------------------------------


def fitted(model, steps, seed=1):
    def fit(steps, key):
        return model.fit(model.init(LinearEnv().spec, key), stored(steps), fold(key, "fit", seed))

    return jax.jit(fit)(steps, quick_key(0))


def holdout_errors(network, steps, key):
    """Held-out errors in numpy, one step at a time, on the steps that the fit has held out."""
    size = steps.reward.size
    count = int(0.2 * size)
    split = Split(fold(key, "split"), jnp.int32(size), jnp.int32(count))
    order = np.asarray(split.holdout(jnp.arange(size)))
    assert sorted(order) == list(range(size))
    assert set(np.asarray(split.training(jnp.arange(size - count)))) == set(order[count:])
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
    space = LinearEnv().spec.action_space

    def predict(step):
        x = network.standardize(dynamics_input(space, step.view.observation, step.action))
        return network.ensemble.predict(x), dynamics_target(
            step.view.observation, step.reward, step.next_view.observation
        )

    held_out = jax.tree.map(lambda x: x[order[:count]], flat)
    predictions, targets = jax.tree.map(np.asarray, jax.jit(jax.vmap(predict))(held_out))
    errors = []
    for i, terminated in enumerate(held_out.terminated):
        probability = 1 / (1 + np.exp(-predictions.logits[i, :, 0]))
        surprise = -np.log(np.where(terminated, probability, 1 - probability))
        errors.append(np.mean((predictions.mean[i] - targets[i]) ** 2, axis=1) + surprise)
    return np.mean(errors, axis=0), order[count:]


@pytest.mark.long
def test_elites_have_the_smallest_held_out_errors():
    steps = linear_rollout(LinearEnv(bound=1.0), 30, 4)
    model = dataclasses.replace(MODEL, ensemble_size=5, num_elites=2, max_epochs=12)
    state, key = fitted(model, steps), fold(quick_key(0), "fit", 1)
    errors, training = holdout_errors(state.network, steps, key)
    np.testing.assert_allclose(state.holdout_errors, errors, rtol=1e-3)
    assert set(np.asarray(state.network.elites)) == set(np.argsort(errors)[:2])
    assert len(np.unique(np.round(errors, 6))) == 5
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:])[training], steps)
    inputs = np.concatenate([flat.view.observation, flat.action], axis=1)
    np.testing.assert_allclose(state.network.input_mean, inputs.mean(axis=0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state.network.input_std, inputs.std(axis=0), rtol=1e-3)


@pytest.mark.long
def test_each_member_goes_back_to_its_best_epoch():
    """Against epochs one by one: the best layers of each member by hand, and when the fit ends."""
    steps, key = linear_rollout(LinearEnv(), 20, 3), quick_key(5)
    model = dataclasses.replace(MODEL, learning_rate=0.02, min_improvement=0.05, patience=2)
    state = jax.jit(lambda: model.init(LinearEnv().spec, quick_key(0)))()
    whole = jax.jit(model.fit)(state, stored(steps), key)
    load = Loader(LinearEnv().spec, stored(steps), Split(fold(key, "split"), jnp.int32(60), jnp.int32(12)), 8, key)
    mean, std = jax.jit(lambda: load.moments())()
    network = dataclasses.replace(state.network, input_mean=mean, input_std=std)
    errors_of = jax.jit(lambda net: load.holdout_errors(dataclasses.replace(network, ensemble=net)))
    epoch = jax.jit(lambda now: model.run_epoch(now, network, load))
    now = model.start_fit(network, state.opt_state)
    best, weights, stale, ends = np.full(3, 1e10), [None] * 3, 0, []
    while stale <= 2:
        now = epoch(now)
        errors = np.asarray(errors_of(now.ensemble))
        improved = (best - errors) / best > 0.05
        for member in np.flatnonzero(improved):
            best[member], weights[member] = errors[member], np.asarray(now.ensemble.layers[1].weight[member])
        stale = 0 if improved.any() else stale + 1
        ends.append(stale)
    assert int(whole.num_epochs) == len(ends) and 0 in ends[1:]
    np.testing.assert_allclose(whole.holdout_errors, best, rtol=0.02)
    np.testing.assert_allclose(whole.network.ensemble.layers[1].weight, np.stack(weights), rtol=0.02, atol=0.02)
    assert np.abs(now.ensemble.layers[1].weight - np.stack(weights)).max() > 0.05  # the last epoch is not the best


@pytest.mark.long
def test_an_epoch_reads_the_members_bootstrap_samples():
    """Every member has a sample of its own, with repeated rows, the same in each epoch in another order."""
    steps = linear_rollout(LinearEnv(), 21, 5)
    split = Split(quick_key(3), jnp.int32(105), jnp.int32(21))
    load = Loader(LinearEnv().spec, stored(steps), split, 16, quick_key(4))
    assert int(load.num_minibatches) == 6
    minibatch = jax.jit(lambda *position: load.minibatch(3, *position))
    rows: list[list[list[float]]] = []
    for epoch in range(2):
        batches = jax.tree.map(np.asarray, [minibatch(jnp.int32(epoch), jnp.int32(i)) for i in range(6)])
        assert [int(b.mask.sum()) for b in batches] == [48] * 5 + [12]
        rows.append([[float(x) for b in batches for x in np.asarray(b.targets[m, :, 0][b.mask[m]])] for m in range(3)])
    allowed = {float(x) for x in np.asarray(steps.reward).ravel()[np.asarray(split.training(jnp.arange(84)))]}
    for member in range(3):
        assert sorted(rows[0][member]) == sorted(rows[1][member]) and rows[0][member] != rows[1][member]
        assert set(rows[0][member]) <= allowed
        assert 40 < len(set(rows[0][member])) < 66  # of 84 rows, 1 - 1/e are expected
    assert sorted(rows[0][0]) != sorted(rows[0][1])


@pytest.mark.long
def test_a_fit_recovers_a_linear_system():
    """Means within a tenth of the noise, and its deviation within a tenth."""
    env = LinearEnv(noise=0.2)
    steps = linear_rollout(env, 400, 5)
    model = DynamicsModel(
        termination=None,
        weight_decay=(0.0, 0.0),
        hidden_sizes=(32,),
        ensemble_size=3,
        num_elites=2,
        batch_size=32,
        patience=10,
    )
    network = fitted(model, steps).network
    test = linear_rollout(dataclasses.replace(env, noise=0.0), 40, 5, seed=9)
    inputs = np.concatenate([test.view.observation, test.action], axis=-1).reshape(-1, 3)
    prediction = jax.jit(lambda x: jax.vmap(network.ensemble.predict)(network.standardize(x)))(inputs)
    prediction = jax.tree.map(np.asarray, prediction)
    change = (test.next_view.observation - test.view.observation).reshape(-1, 1, 2)
    target = np.concatenate([test.reward.reshape(-1, 1, 1), change], axis=-1)
    elites = np.asarray(network.elites)
    error = np.sqrt(np.mean((prediction.mean - target)[:, elites, 1:] ** 2))
    assert error < 0.05, error
    deviation = np.exp(0.5 * prediction.log_variance[:, elites, 1:]).mean(axis=(0, 1))
    np.testing.assert_allclose(deviation, 0.2, rtol=0.15)


# -- environment -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_moments_of_a_step_are_those_of_the_members_mixture():
    """Two members with other matrices: the mean of means, and their variance beside the noise."""
    first, second, third = LinearEnv(noise=0.3), LinearEnv(gain=0.2, noise=0.5), LinearEnv(gain=-5.0)
    env = LearnedEnv(exact_model([first, second, third], elites=(0, 1)), None, jnp.zeros((1, 2)))
    state, _ = env.start_at(jnp.asarray([1.0, -2.0]))
    action = jnp.asarray([0.5])
    keys = jax.random.split(jax.random.key(0), 40_000)
    _, step = jax.jit(jax.vmap(env.step, (None, None, 0)))(state, action, keys)
    means = np.stack([np.asarray(e.mean_step(state.observation, action)) for e in (first, second)])
    np.testing.assert_allclose(step.observation.mean(0), means.mean(0), atol=0.02)
    variance = means.var(0) + np.mean([0.3**2, 0.5**2])
    np.testing.assert_allclose(step.observation.var(0), variance, rtol=0.03)
    rewards = [float(e.reward(state.observation, action)) for e in (first, second)]
    np.testing.assert_allclose(step.reward.mean(), np.mean(rewards), atol=0.02)
    near_first = np.linalg.norm(np.asarray(step.observation) - means[0], axis=1)
    near_second = np.linalg.norm(np.asarray(step.observation) - means[1], axis=1)
    assert abs(np.mean(near_first < near_second) - 0.5) < 0.1
    assert not step.terminated.any() and not step.truncated.any()


@pytest.mark.long
@pytest.mark.parametrize("termination", [LearnedTermination(), HealthyRange(-0.5), None])
def test_laws_of_environments(termination):
    spec = EnvSpec("walk", Box((4,)), Discrete(3))
    model = dataclasses.replace(MODEL, termination=termination)
    state = jax.jit(lambda: model.init(spec, quick_key(0)))()
    env = model.make_env(state, jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)), "float32"), 6)
    assert env.spec.time_limit == 6 and env.spec.action_space == Discrete(3)
    check_environment(env)


@pytest.mark.long
def test_a_learned_termination_is_learned():
    """Episodes end where the first number exceeds 1; the model finds it and ends there."""
    env = LinearEnv(noise=0.1, bound=1.0)
    steps = linear_rollout(env, 300, 6)
    assert 0.02 < steps.terminated.mean() < 0.5
    model = dataclasses.replace(MODEL, weight_decay=(0.0, 0.0), hidden_sizes=(32,), batch_size=32, patience=15)
    state = fitted(model, steps)
    learned = model.make_env(state, jnp.zeros((1, 2)))

    def terminations(observation, action):
        first = jax.vmap(lambda o: learned.start_at(o)[0])(observation)
        return jax.vmap(learned.step)(first, action, jax.random.split(jax.random.key(2), len(action)))[1].terminated

    said = np.asarray(jax.jit(terminations)(steps.view.observation.reshape(-1, 2), steps.action.reshape(-1, 1)))
    truth = steps.terminated.reshape(-1)
    assert np.mean(said[truth]) > 0.8 and np.mean(said[~truth]) < 0.05


@pytest.mark.long
@pytest.mark.parametrize("name", list(HEALTHY_RANGES))
def test_known_terminations_are_those_of_gymnasium(name):
    rule = HEALTHY_RANGES[name]
    with gymnasium.make(f"{name}-v5") as env:
        env.action_space.seed(0)
        observation, pairs, terminations = env.reset(seed=0)[0], [], []
        for _ in range(2_000):
            following, _, terminated, truncated, _ = env.step(env.action_space.sample())
            pairs.append((observation, following))
            terminations.append(terminated)
            observation = env.reset()[0] if terminated or truncated else following
    before, after = (jnp.asarray(np.stack(x), "float32") for x in zip(*pairs, strict=True))
    predicted = jax.jit(jax.vmap(lambda a, b: rule(a, b, jnp.zeros(0))))(before, after)
    np.testing.assert_array_equal(predicted, terminations)
    assert np.sum(terminations) > 3


def test_healthy_range_edges():
    rule = HealthyRange()
    healthy = np.array([1.0, 0.1, 3.0], "float32")
    has_ended = jax.jit(lambda after: rule(jnp.asarray(healthy), after, jnp.zeros(0)))

    def ends(i, value):
        after = healthy.copy()
        after[i] = value
        return bool(has_ended(after))

    assert not ends(0, healthy[0])
    assert ends(0, 0.69) and not ends(0, 50.0) and ends(1, -0.21) and ends(1, 0.21) and ends(2, 101.0)
    assert ends(0, jnp.nan) and ends(2, jnp.nan) and ends(0, jnp.inf)


def test_spaces_that_cannot_be_modelled():
    box = Box((2,), -1.0, 1.0)
    for spec in (
        EnvSpec("a", dict_space(x=box), box),
        EnvSpec("b", Box((3, 3, 3), 0, 255, "uint8"), box),
        EnvSpec("c", box, dict_space(x=box)),
        EnvSpec("d", box, Discrete(2), has_action_mask=True),
        EnvSpec("e", box, box, privileged_space=box),
    ):
        with pytest.raises(UserError, match="without a model"):
            check_dynamics_spec("mbpo", spec)
    check_dynamics_spec("mbpo", EnvSpec("f", box, Discrete(2)))
    with pytest.raises(UserError, match="weight_decay"):
        DynamicsModel(hidden_sizes=(4,)).init(EnvSpec("f", box, box), jax.random.key(0))

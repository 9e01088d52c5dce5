"""Parts of learners (normalizers, optimizers, minibatches, critics, temperature, advantages), against numpy."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import BOX, TREE, TREE_ACTION, VECTOR
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import first_episode_mask, random_transitions, randomize_padding
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.value_functions import build_q_function, init_ensemble
from thespis.learners.off_policy.critic_updates import NStepBatch, fit_critics, n_step_batch
from thespis.learners.off_policy.temperature import FixedTemperature, TunedTemperature
from thespis.learners.on_policy.actor_critic import ActorCritic, RolloutProcessor
from thespis.learners.on_policy.method import BatchNormalizer, MinibatchNormalizer
from thespis.learners.optim.minibatches import run_epochs, to_sequences
from thespis.learners.optim.normalizers import IDENTITY, RAW_REWARD, ReturnNormalizer, RunningMeanStd, init_moments
from thespis.learners.optim.optimizers import Adam, RMSProp, gradient_step, polyak_update
from thespis.objectives.statistics import standardize

KEY = quick_key(0)
SPEC = EnvSpec("push", VECTOR, BOX)


def rng(seed=0):
    return np.random.default_rng(seed)


def make_batch(spec, time, rows, *, first_episode_only=False, seed=0, **leaves):
    steps = random_transitions(spec, rng(seed), time, rows)
    for name, value in leaves.items():
        steps = eqx.tree_at(lambda s, n=name: getattr(s, n), steps, value, is_leaf=lambda x: isinstance(x, tuple))
    mask = (
        first_episode_mask(np.asarray(steps.terminated) | np.asarray(steps.truncated))
        if first_episode_only
        else np.ones((time, rows), bool)
    )
    return Batch(steps, jax.device_put(mask), (), jax.device_put(np.int32(0)))


# -- normalizers -------------------------------------------------------------------------------------------


def test_merged_moments_are_those_of_all_data():
    batches = [rng(i).normal(5.0 * i, 1.0 + i, (n, 3)).astype("float32") for i, n in enumerate((4, 1, 30))]
    moments = jax.jit(lambda xs: functools.reduce(lambda moments, x: moments.merge(x), xs, init_moments((3,))))(batches)
    together = np.concatenate(batches)
    np.testing.assert_allclose(moments.mean, together.mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, together.var(0), rtol=1e-3)
    assert moments.count == pytest.approx(35, abs=1e-3)


def test_masked_rows_do_not_count():
    x, keep = rng().normal(size=(10, 2)).astype("float32"), np.arange(10) % 3 != 0
    masked = jax.jit(lambda x, keep: init_moments((2,)).merge(x, keep))(np.where(keep[:, None], x, 77.0), keep)
    np.testing.assert_allclose(masked.mean, x[keep].mean(0), rtol=1e-3, atol=1e-5)
    assert masked.count == pytest.approx(keep.sum(), abs=1e-3)


def test_running_mean_std_leaves_images_and_discrete_values_alone():
    normalizer, batch = RunningMeanStd(), make_batch(EnvSpec("tree", TREE, BOX), 6, 5)
    observations = batch.steps.view.observation
    single = jax.tree.map(lambda x: np.asarray(x)[2, 3], observations)

    @jax.jit
    def normalize(observations, single):
        state = normalizer.update(normalizer.init(TREE), observations, batch.mask)
        return (
            state,
            normalizer.normalize(state, single),
            normalizer.normalize(state, single | {"numbers": jnp.full(3, 1e6)}),
        )

    state, normalized, far = normalize(observations, single)
    assert [m is not None for m in state] == [True, False, False, False]
    assert_same_bits(single["picture"], normalized["picture"], "bytes")
    assert_same_bits(single["which"], normalized["which"], "choices")
    numbers = np.asarray(observations["numbers"]).reshape(-1, 3)
    expected = (np.asarray(single["numbers"]) - numbers.mean(0)) / numbers.std(0)
    np.testing.assert_allclose(normalized["numbers"], expected, atol=1e-3)
    assert far["numbers"].tolist() == [10.0, 10.0, 10.0]


def running_returns(reward, ended):
    """Discounted sums of rewards after each step, and those with which the next step starts; the discount is 0.9."""
    returns, total = [], np.zeros(reward.shape[1])
    for step_reward, step_ended in zip(reward, ended, strict=True):
        total = 0.9 * total + step_reward
        returns.append(total)
        total = np.where(step_ended, 0.0, total)
    return returns, total


def test_return_normalizer_uses_the_std_of_discounted_returns():
    reward, ended = rng().normal(size=(7, 2)).astype("float32"), rng(1).uniform(size=(7, 2)) < 0.3
    returns, _ = running_returns(reward, ended)
    normalizer = ReturnNormalizer()

    @jax.jit
    def normalize(reward, ended):
        state = normalizer.update(normalizer.init(), reward, ended, 0.9)
        return normalizer.reward_scale(state), normalizer.normalize(state, reward)

    reward_scale, normalized = normalize(reward, ended)
    assert reward_scale == pytest.approx(np.std(returns), rel=1e-3)
    np.testing.assert_allclose(normalized, reward / np.std(returns), rtol=1e-3)
    assert ended.any()


def test_sums_of_returns_go_on_across_rollouts_if_asked():
    """Three rollouts of four steps against one episode after the other, as Gymnasium's wrapper sees them."""
    reward, ended = rng().normal(size=(12, 2)).astype("float32"), rng(1).uniform(size=(12, 2)) < 0.2
    returns, total = running_returns(reward, ended)
    normalizer = ReturnNormalizer(across_rollouts=True)
    update = jax.jit(lambda state, reward, ended: normalizer.update(state, reward, ended, 0.9))
    state = normalizer.init(2)
    for start in (0, 4, 8):
        state = update(state, reward[start : start + 4], ended[start : start + 4])
    assert normalizer.reward_scale(state) == pytest.approx(np.std(returns), rel=1e-3)
    np.testing.assert_allclose(state.sums, total, rtol=1e-5)
    with pytest.raises(UserError, match=r"each of feed.num_envs=1 environments, and there are 2 rows"):
        update(normalizer.init(1), reward, ended)


# -- gradients ---------------------------------------------------------------------------------------------


def adam(parameter, gradients, rate, epsilon, norm):
    """Kingma & Ba, 2015, algorithm 1, after clipping by the norm."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        g = g * min(1.0, norm / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        parameter = parameter - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
    return parameter


def make_step(optimizer):
    """A parameter, its optimizer state, and a step with a known gradient that returns the gradient norm."""
    parameter = jax.device_put(np.array([1.0, -1.0], "float32"))

    @jax.jit
    def step(parameter, state, g):
        parameter, state, _, norm = gradient_step(optimizer, lambda p: (jnp.sum(p * g), ()), parameter, state)
        return parameter, state, norm

    return parameter, jax.jit(optimizer.init)(parameter), step


def test_adam_against_the_paper():
    optimizer, gradients = Adam(0.1, 1.5, 1e-5), [np.array([3.0, 4.0]), np.array([0.1, -0.2]), np.array([0.0, 5.0])]
    parameter, state, step = make_step(optimizer)
    for g in gradients:
        parameter, state, norm = step(parameter, state, g.astype("float32"))
        assert norm == pytest.approx(np.linalg.norm(g), rel=1e-6)  # reported before clipping
    np.testing.assert_allclose(parameter, adam(np.array([1.0, -1.0]), gradients, 0.1, 1e-5, 1.5), rtol=1e-5)


def test_rmsprop_against_its_formula():
    parameter, state, step = make_step(RMSProp(0.1))
    square, expected = np.ones(2), np.array([1.0, -1.0])
    for g in (np.array([3.0, 4.0]), np.array([0.1, -0.2])):
        parameter, state, _ = step(parameter, state, g.astype("float32"))
        square = 0.99 * square + 0.01 * g**2
        expected = expected - 0.1 * g / np.sqrt(square + 1e-5)
    np.testing.assert_allclose(parameter, expected, rtol=1e-4)


def test_polyak_update_copies_at_tau_one_and_stays_at_zero():
    old, new = {"w": np.array([0.1, 1e8, -3.0], "float32")}, {"w": np.array([0.3, 1.7, 1e-9], "float32")}
    mixed = jax.jit(polyak_update)
    assert_same_bits(mixed(old, new, 1.0), new, "rate 1 copies")
    assert_same_bits(mixed(old, new, 0.0), old, "rate 0 stays")
    np.testing.assert_allclose(mixed(old, new, 0.25)["w"], 0.75 * old["w"] + 0.25 * new["w"], rtol=1e-6)


# -- minibatches -------------------------------------------------------------------------------------------


def visited_steps(time, rows, minibatch, num_epochs, keep_sequences):
    """Steps ``[time, column]`` used by each gradient step; checks that sequences keep their first memory."""
    steps, visited = np.arange(time * rows, dtype="int32").reshape(time, rows), []

    def step(carry, minibatch):
        chunk, memory = minibatch
        jax.debug.callback(visited.append, chunk)
        is_right = jnp.all(chunk[0] == memory[0]) if keep_sequences else memory == ((), ())
        return carry & is_right, {}

    def run(steps):
        data = to_sequences((steps, (steps[0],)), keep_sequences=keep_sequences)
        return run_epochs(step, jnp.asarray(True), data, num_epochs, minibatch, KEY)[0]

    is_right = jax.jit(run)(steps)
    jax.effects_barrier()
    assert bool(is_right)
    return [np.asarray(k) for k in visited]


@pytest.mark.parametrize(("minibatch", "steps"), [(1, 24), (4, 6), (7, 3), (24, 1), (100, 1)])
def test_each_step_is_used_once_per_epoch(minibatch, steps):
    visited = visited_steps(8, 3, minibatch, 2, keep_sequences=False)
    assert len(visited) == 2 * steps
    orders = [
        np.concatenate([s.ravel() for s in visited[:steps]]),
        np.concatenate([s.ravel() for s in visited[steps:]]),
    ]
    for order in orders:
        assert len(np.unique(order)) == len(order) == min(minibatch, 24) * steps
    assert steps == 1 or not np.array_equal(*orders)  # shuffled differently in each epoch


def test_sequences_are_not_split_and_keep_their_memory():
    visited = visited_steps(8, 3, 16, 2, keep_sequences=True)
    assert [s.shape for s in visited] == [(8, 2)] * 2  # 16 steps are two sequences of 8; the third is left out
    for s in visited:
        np.testing.assert_array_equal(np.diff(s, axis=0), 3)


# -- advantages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minibatch", [1, 7, 24])
def test_whole_batch_advantages_do_not_depend_on_the_split(minibatch):
    advantage = rng().normal(3.0, 2.0, (8, 3)).astype("float32")
    normalizer = BatchNormalizer()

    @jax.jit
    def normalize(advantage):
        return normalizer.normalize_batch(to_sequences((advantage, ()), keep_sequences=False).steps)

    whole = normalize(advantage)
    part = np.asarray(whole)[0, :minibatch]
    assert_same_bits(normalizer.normalize_minibatch(jax.device_put(part)), part, "a minibatch is not normalized again")
    assert np.mean(whole) == pytest.approx(0.0, abs=1e-6) and np.std(whole) == pytest.approx(1.0, abs=1e-5)
    assert np.all(np.isfinite(normalize(np.full((8, 3), 2.5, "float32"))))


def test_minibatch_advantages_depend_on_the_split():
    advantage = rng().normal(3.0, 2.0, 24).astype("float32")
    normalizer, expected_of = MinibatchNormalizer(), jax.jit(standardize)
    assert_same_bits(normalizer.normalize_batch(jax.device_put(advantage)), advantage, "the whole batch is unchanged")
    normalize = jax.jit(normalizer.normalize_minibatch)
    assert normalize(advantage[:1]).tolist() == [0.0]
    np.testing.assert_allclose(normalize(advantage[:7]), expected_of(advantage[:7]))
    assert abs(np.asarray(normalize(advantage[:7]))[0] - np.asarray(expected_of(advantage))[0]) > 1e-3


# -- critics -----------------------------------------------------------------------------------------------


def test_n_step_targets_of_windows_with_and_without_ends():
    reward = np.arange(1.0, 13.0, dtype="float32").reshape(3, 4)
    false = np.zeros((3, 4), bool)
    terminated, truncated = false.copy(), false.copy()
    terminated[1, 1] = truncated[1, 2] = terminated[0, 3] = True
    leaves = {"reward": reward, "terminated": terminated, "truncated": truncated}
    batch = make_batch(SPEC, 3, 4, **jax.device_put(leaves))
    batch = eqx.tree_at(lambda b: b.mask, batch, jax.device_put(first_episode_mask(terminated | truncated)))
    data = jax.jit(lambda batch: n_step_batch(batch, 0.5))(batch)
    batch = jax.tree.map(np.asarray, batch)
    np.testing.assert_allclose(data.reward, [1 + 2.5 + 2.25, 2 + 3, 3 + 3.5, 4])
    np.testing.assert_allclose(data.discount, [0.125, 0.0, 0.25, 0.0])  # truncation bootstraps, termination does not
    following = np.asarray(batch.steps.next_view.observation)
    last = [2, 1, 1, 0]
    np.testing.assert_array_equal(data.next_view.observation, following[last, np.arange(4)])
    np.testing.assert_array_equal(data.view.observation, batch.steps.view.observation[0])
    np.testing.assert_array_equal(data.action, batch.steps.action[0])


def test_fit_critics_matches_a_gradient_step_by_hand():
    """Linear critics: the gradient of each member's mean squared error is known."""
    critics = jax.jit(lambda key: init_ensemble(lambda k: linear_critic(k), 2, key))(KEY)
    steps = make_batch(SPEC, 1, 6).steps
    view, action = jax.tree.map(lambda x: np.asarray(x)[0], (steps.view, steps.action))
    target = rng().normal(size=6).astype("float32")
    optimizer = Adam(0.05)

    @jax.jit
    def fit(critics, view, action, target):
        return fit_critics(
            optimizer, critics, optimizer.init(critics), NStepBatch(view, action, target, target, view), target
        )

    fitted, _, report = fit(critics, view, action, target)
    critics, fitted = jax.tree.map(np.asarray, (critics, fitted))
    x = np.concatenate([view.observation, action], axis=1)
    for member in range(2):
        weight, bias = np.asarray(critics.out.weight[member])[:, 0], np.asarray(critics.out.bias[member])
        error = x @ weight + bias - np.asarray(target)
        gradients = 2 * x.T @ error / 6, 2 * np.array([error.mean()])
        np.testing.assert_allclose(
            fitted.out.weight[member][:, 0], adam(weight, gradients[:1], 0.05, 1e-8, 1e9), rtol=1e-4
        )
        np.testing.assert_allclose(fitted.out.bias[member], adam(bias, gradients[1:], 0.05, 1e-8, 1e9), atol=1e-6)
    assert set(report.metrics) >= {"critic_loss", "value"}


def linear_critic(key):
    critic = build_q_function(SPEC, (5,), key)
    mlp = eqx.tree_at(lambda m: m.layers, critic.mlp, ())
    out = type(critic.out)(5, 1, jax.nn.initializers.normal(1.0), key)
    return eqx.tree_at(lambda c: (c.mlp, c.out), critic, (mlp, out))


@pytest.mark.parametrize("action", [BOX, Discrete(3)], ids=["box", "discrete"])
def test_padding_changes_neither_loss_nor_gradient(action):
    """Bit by bit, for windows of every length."""
    spec = EnvSpec("push", VECTOR, action)
    critics, optimizer = (
        jax.jit(lambda key: init_ensemble(lambda k: build_q_function(spec, (6,), k), 2, key))(KEY),
        Adam(0.1),
    )
    batch = make_batch(spec, 4, 12, first_episode_only=True)
    lengths = np.asarray(batch.mask).sum(0)
    assert set(lengths) == {1, 2, 3, 4}

    @jax.jit
    def fit(batch):
        data = n_step_batch(batch, 0.9)
        return fit_critics(optimizer, critics, optimizer.init(critics), data, data.reward + data.discount)

    other = eqx.tree_at(lambda b: b.steps, batch, randomize_padding(spec, batch.steps, batch.mask, rng(9)))
    assert_same_bits(fit(batch), fit(other), "padding changes nothing")
    other_reward = np.array(batch.steps.reward)
    other_reward[0, 0] += 1.0
    changed = eqx.tree_at(lambda b: b.steps.reward, batch, other_reward)
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(fit(batch), fit(changed), "a real reward does change it")


# -- temperature -------------------------------------------------------------------------------------------


def test_temperature_moves_towards_its_target():
    temperature = TunedTemperature(init_value=0.5, learning_rate=0.1)

    @jax.jit
    def alphas():
        state = temperature.init(SPEC)
        return (
            state,
            temperature.alpha(state),
            *(temperature.alpha(temperature.update(state, jnp.float32(x))) for x in (-3.0, -1.0)),
        )

    state, initial, more, less = alphas()
    assert initial == pytest.approx(0.5) and state[2] == -2.0
    assert more > 0.5  # too little entropy: a larger weight
    assert less < 0.5
    expected = np.exp(adam(np.log([0.5]), [np.array([-3.0 + 2.0])], 0.1, 1e-8, 1e9))[0]
    assert more == pytest.approx(expected, rel=1e-5)


def test_target_entropy_and_fixed_temperature():
    choice = EnvSpec("choice", VECTOR, Discrete(4))
    default_target, set_target = jax.jit(
        lambda: (TunedTemperature().init(choice)[2], TunedTemperature(target_entropy=-7.0).init(SPEC)[2])
    )()
    assert default_target == pytest.approx(0.89 * np.log(4)) and set_target == -7.0
    with pytest.raises(Exception, match="no default target"):
        TunedTemperature().init(EnvSpec("vector", VECTOR, MultiDiscrete((2, 2))))
    fixed = FixedTemperature(0.3)
    assert fixed.alpha(fixed.update(fixed.init(SPEC), jnp.float32(1.0))) == pytest.approx(0.3)


# -- values and advantages of a rollout --------------------------------------------------------------------


def evaluate(terminated, truncated, reward=None, seed=0):
    """A batch, its evaluation (values, advantages, targets), and the values of the first next observations."""
    shape = terminated.shape
    ends = jax.device_put({"terminated": terminated, "truncated": truncated})
    batch = make_batch(SPEC, *shape, seed=seed, **ends)
    if reward is not None:
        batch = eqx.tree_at(lambda b: b.steps.reward, batch, jax.device_put(reward))
    return jax.tree.map(np.asarray, _evaluate(batch))


@jax.jit
def _evaluate(batch):
    network, shape = ActorCritic(SPEC, (6,), KEY), batch.mask.shape
    steps = dataclasses.replace(batch.steps, extras={"log_prob": jnp.zeros(shape)})
    batch = Batch(steps, batch.mask, network.init_memory(shape[1]), batch.update_index)
    evaluation = RolloutProcessor(IDENTITY, RAW_REWARD, 0.9, 0.8).compute_advantages(network, ((), (), ()), batch)
    return batch, evaluation, jax.vmap(lambda o: network.critic((), o)[0])(batch.steps.next_view.observation[0])


def test_truncation_bootstraps_and_termination_does_not():
    ends = np.array([[True, False, False]]), np.array([[False, True, False]])
    batch, evaluation, next_value = evaluate(*ends)
    bootstrap = np.where(ends[0][0], 0.0, 0.9 * next_value)
    expected = np.asarray(batch.steps.reward[0]) + bootstrap - np.asarray(evaluation.value[0])
    np.testing.assert_allclose(evaluation.advantage[0], expected, atol=1e-5)
    np.testing.assert_allclose(evaluation.target[0], expected + np.asarray(evaluation.value[0]), atol=1e-5)
    assert np.abs(next_value[0]) > 1e-2


def test_advantages_do_not_cross_the_end_of_an_episode():
    """Rewards of the next episode, even NaN, leave the advantages of this episode the same bit by bit."""
    terminated, truncated = np.zeros((6, 2), bool), np.zeros((6, 2), bool)
    terminated[2, 0] = truncated[2, 1] = True
    batch, before, _ = evaluate(terminated, truncated)
    for late in (5.0, np.nan):
        reward = np.asarray(batch.steps.reward).copy()
        reward[3:] += late
        _, after, _ = evaluate(terminated, truncated, reward)
        assert_same_bits(before.advantage[:3], after.advantage[:3], "earlier episodes")
        assert not np.any(to_numpy(before.advantage)[3:] == to_numpy(after.advantage)[3:])


def test_advantages_with_tree_actions():
    spec = EnvSpec("tree", TREE, TREE_ACTION, has_action_mask=True)
    batch = make_batch(spec, 4, 2)

    @jax.jit
    def evaluate(batch):
        network = ActorCritic(spec, (6,), KEY)
        steps = dataclasses.replace(batch.steps, extras={"log_prob": jnp.zeros((4, 2))})
        batch = Batch(steps, batch.mask, network.init_memory(2), batch.update_index)
        return RolloutProcessor(IDENTITY, ReturnNormalizer(), 0.9, 0.8).compute_advantages(
            network, ((), ReturnNormalizer().init(), ()), batch
        )

    evaluation = evaluate(batch)
    assert evaluation.advantage.shape == (4, 2) and np.all(np.isfinite(evaluation.advantage))

"""Parts of learners against hand-written numpy."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key
from worlds import BOX, TREE, TREE_ACTION, VECTOR

from thespis.core.laws import as_numpy, same_bits
from thespis.core.records import Batch, EnvSpec
from thespis.core.samples import random_steps, until_end, with_other_padding
from thespis.core.spaces import Discrete, MultiDiscrete
from thespis.critics.values import action_value, ensemble
from thespis.learners.actor_critic import ActorCritic, Assessor
from thespis.learners.advantages import PerMinibatch, WholeBatch
from thespis.learners.backup import Backup, backup, fit_critics
from thespis.learners.gradient import Adam, RMSProp, gradient_step, polyak
from thespis.learners.minibatches import columns, epochs
from thespis.learners.normalisers import AsTheyAre, RawReward, ReturnScale, RunningScale, fresh_moments
from thespis.learners.temperature import FixedTemperature, TunedTemperature
from thespis.objectives.normalise import standardise

KEY = quick_key(0)
SPEC = EnvSpec("push", VECTOR, BOX)


def rng(seed=0):
    return np.random.default_rng(seed)


def batch_of(spec, time, rows, *, cut=False, seed=0, **leaves):
    steps = random_steps(spec, rng(seed), time, rows)
    for name, value in leaves.items():
        steps = eqx.tree_at(lambda s, n=name: getattr(s, n), steps, value, is_leaf=lambda x: isinstance(x, tuple))
    mask = until_end(np.asarray(steps.terminated) | np.asarray(steps.truncated)) if cut else np.ones((time, rows), bool)
    return Batch(steps, jax.device_put(mask), (), jax.device_put(np.int32(0)))


# -- normalisers -------------------------------------------------------------------------------------------


def test_moments_are_those_of_all_batches_together():
    batches = [rng(i).normal(5.0 * i, 1.0 + i, (n, 3)).astype("float32") for i, n in enumerate((4, 1, 30))]
    moments = jax.jit(lambda xs: functools.reduce(lambda moments, x: moments.merge(x), xs, fresh_moments((3,))))(
        batches
    )
    together = np.concatenate(batches)
    np.testing.assert_allclose(moments.mean, together.mean(0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, together.var(0), rtol=1e-3)
    assert moments.count == pytest.approx(35, abs=1e-3)


def test_masked_rows_do_not_count():
    x, keep = rng().normal(size=(10, 2)).astype("float32"), np.arange(10) % 3 != 0
    masked = jax.jit(lambda x, keep: fresh_moments((2,)).merge(x, keep))(np.where(keep[:, None], x, 77.0), keep)
    np.testing.assert_allclose(masked.mean, x[keep].mean(0), rtol=1e-3, atol=1e-5)
    assert masked.count == pytest.approx(keep.sum(), abs=1e-3)


def test_running_scale_leaves_bytes_and_choices_alone():
    scale, batch = RunningScale(), batch_of(EnvSpec("tree", TREE, BOX), 6, 5)
    o = batch.steps.view.observation
    one = jax.tree.map(lambda x: np.asarray(x)[2, 3], o)

    @jax.jit
    def told(o, one):
        state = scale.update(scale.init(TREE), o, batch.mask)
        return state, scale.apply(state, one), scale.apply(state, one | {"numbers": jnp.full(3, 1e6)})

    state, seen, far = told(o, one)
    assert [m is not None for m in state] == [True, False, False, False]
    same_bits(one["picture"], seen["picture"], "bytes")
    same_bits(one["which"], seen["which"], "choices")
    numbers = np.asarray(o["numbers"]).reshape(-1, 3)
    wanted = (np.asarray(one["numbers"]) - numbers.mean(0)) / numbers.std(0)
    np.testing.assert_allclose(seen["numbers"], wanted, atol=1e-3)
    assert far["numbers"].tolist() == [10.0, 10.0, 10.0]


def test_return_scale_is_the_spread_of_discounted_sums():
    reward, ended = rng().normal(size=(7, 2)).astype("float32"), rng(1).uniform(size=(7, 2)) < 0.3
    sums, total = [], np.zeros(2)
    for t in range(7):
        total = 0.9 * total + reward[t]
        sums.append(total)
        total = np.where(ended[t], 0.0, total)
    scale = ReturnScale()

    @jax.jit
    def told(reward, ended):
        state = scale.update(scale.init(), reward, ended, 0.9)
        return scale.unit(state), scale.apply(state, reward)

    unit, seen = told(reward, ended)
    assert unit == pytest.approx(np.std(sums), rel=1e-3)
    np.testing.assert_allclose(seen, reward / np.std(sums), rtol=1e-3)
    assert ended.any()


# -- gradients ---------------------------------------------------------------------------------------------


def adam(parameter, gradients, rate, epsilon, norm):
    """Kingma & Ba, 2015, algorithm 1, after clipping by the norm."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        g = g * min(1.0, norm / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        parameter = parameter - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
    return parameter


def stepped(optimiser):
    """A parameter, its optimiser's state, and a step along a gradient that also tells its norm."""
    parameter = jax.device_put(np.array([1.0, -1.0], "float32"))

    @jax.jit
    def step(parameter, state, g):
        parameter, state, _, norm = gradient_step(optimiser, lambda p: (jnp.sum(p * g), ()), parameter, state)
        return parameter, state, norm

    return parameter, jax.jit(optimiser.init)(parameter), step


def test_adam_against_the_paper():
    optimiser, gradients = Adam(0.1, 1.5, 1e-5), [np.array([3.0, 4.0]), np.array([0.1, -0.2]), np.array([0.0, 5.0])]
    parameter, state, step = stepped(optimiser)
    for g in gradients:
        parameter, state, norm = step(parameter, state, g.astype("float32"))
        assert norm == pytest.approx(np.linalg.norm(g), rel=1e-6)  # reported before clipping
    np.testing.assert_allclose(parameter, adam(np.array([1.0, -1.0]), gradients, 0.1, 1e-5, 1.5), rtol=1e-5)


def test_rmsprop_against_its_formula():
    parameter, state, step = stepped(RMSProp(0.1))
    square, wanted = np.ones(2), np.array([1.0, -1.0])
    for g in (np.array([3.0, 4.0]), np.array([0.1, -0.2])):
        parameter, state, _ = step(parameter, state, g.astype("float32"))
        square = 0.99 * square + 0.01 * g**2
        wanted = wanted - 0.1 * g / np.sqrt(square + 1e-5)
    np.testing.assert_allclose(parameter, wanted, rtol=1e-4)


def test_polyak_at_rate_one_copies_and_at_rate_zero_stays():
    old, new = {"w": np.array([0.1, 1e8, -3.0], "float32")}, {"w": np.array([0.3, 1.7, 1e-9], "float32")}
    mixed = jax.jit(polyak)
    same_bits(mixed(old, new, 1.0), new, "rate 1 copies")
    same_bits(mixed(old, new, 0.0), old, "rate 0 stays")
    np.testing.assert_allclose(mixed(old, new, 0.25)["w"], 0.75 * old["w"] + 0.25 * new["w"], rtol=1e-6)


# -- minibatches -------------------------------------------------------------------------------------------


def visits(time, rows, minibatch, passes, joined):
    """The steps that each gradient step saw, ``[time, column]``; sequences come with the memory they start with."""
    steps, kept = np.arange(time * rows, dtype="int32").reshape(time, rows), []

    def step(carry, minibatch):
        seen, memory = minibatch
        jax.debug.callback(kept.append, seen)
        right = jnp.all(seen[0] == memory[0]) if joined else memory == ((), ())
        return carry & right, {}

    def all_of_them(steps):
        data = columns((steps, (steps[0],)), joined=joined)
        return epochs(step, jnp.asarray(True), data, passes, minibatch, KEY)[0]

    right = jax.jit(all_of_them)(steps)
    jax.effects_barrier()
    assert bool(right)
    return [np.asarray(k) for k in kept]


@pytest.mark.parametrize(("minibatch", "steps"), [(1, 24), (4, 6), (7, 3), (24, 1), (100, 1)])
def test_each_step_is_used_once_in_each_pass(minibatch, steps):
    seen = visits(8, 3, minibatch, 2, joined=False)
    assert len(seen) == 2 * steps
    orders = [np.concatenate([s.ravel() for s in seen[:steps]]), np.concatenate([s.ravel() for s in seen[steps:]])]
    for order in orders:
        assert len(np.unique(order)) == len(order) == min(minibatch, 24) * steps
    assert steps == 1 or not np.array_equal(*orders)  # shuffled anew


def test_sequences_stay_whole_and_keep_their_memory():
    seen = visits(8, 3, 16, 2, joined=True)
    assert [s.shape for s in seen] == [(8, 2)] * 2  # 16 steps are two sequences of 8; the third waits its turn
    for s in seen:
        np.testing.assert_array_equal(np.diff(s, axis=0), 3)


# -- advantages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minibatch", [1, 7, 24])
def test_whole_batch_advantages_do_not_depend_on_the_split(minibatch):
    advantage = rng().normal(3.0, 2.0, (8, 3)).astype("float32")
    scale = WholeBatch()

    @jax.jit
    def whole_of(advantage):
        return scale.whole(columns((advantage, ()), joined=False).steps)

    whole = whole_of(advantage)
    part = np.asarray(whole)[0, :minibatch]
    same_bits(scale.part(jax.device_put(part)), part, "a part is as the whole left it")
    assert np.mean(whole) == pytest.approx(0.0, abs=1e-6) and np.std(whole) == pytest.approx(1.0, abs=1e-5)
    assert np.all(np.isfinite(whole_of(np.full((8, 3), 2.5, "float32"))))


def test_per_minibatch_advantages_do_and_are_zero_alone():
    advantage = rng().normal(3.0, 2.0, 24).astype("float32")
    scale, standard = PerMinibatch(), jax.jit(standardise)
    same_bits(scale.whole(jax.device_put(advantage)), advantage, "the whole is left alone")
    part = jax.jit(scale.part)
    assert part(advantage[:1]).tolist() == [0.0]
    np.testing.assert_allclose(part(advantage[:7]), standard(advantage[:7]))
    assert abs(np.asarray(part(advantage[:7]))[0] - np.asarray(standard(advantage))[0]) > 1e-3


# -- critics -----------------------------------------------------------------------------------------------


def test_backup_of_windows_that_end_and_that_do_not():
    reward = np.arange(1.0, 13.0, dtype="float32").reshape(3, 4)
    no = np.zeros((3, 4), bool)
    terminated, truncated = no.copy(), no.copy()
    terminated[1, 1] = truncated[1, 2] = terminated[0, 3] = True
    given = {"reward": reward, "terminated": terminated, "truncated": truncated}
    batch = batch_of(SPEC, 3, 4, **jax.device_put(given))
    batch = eqx.tree_at(lambda b: b.mask, batch, jax.device_put(until_end(terminated | truncated)))
    data = jax.jit(lambda batch: backup(batch, 0.5))(batch)
    batch = jax.tree.map(np.asarray, batch)
    np.testing.assert_allclose(data.earned, [1 + 2.5 + 2.25, 2 + 3, 3 + 3.5, 4])
    np.testing.assert_allclose(data.discount, [0.125, 0.0, 0.25, 0.0])  # truncation bootstraps, termination does not
    following = np.asarray(batch.steps.next_view.observation)
    last = [2, 1, 1, 0]
    np.testing.assert_array_equal(data.next_view.observation, following[last, np.arange(4)])
    np.testing.assert_array_equal(data.view.observation, batch.steps.view.observation[0])
    np.testing.assert_array_equal(data.action, batch.steps.action[0])


def test_fit_critics_is_a_hand_written_gradient_step():
    """Linear critics, so that the gradient of each member's mean squared error can be written down."""
    critics = jax.jit(lambda key: ensemble(lambda k: linear_critic(k), 2, key))(KEY)
    steps = batch_of(SPEC, 1, 6).steps
    view, action = jax.tree.map(lambda x: np.asarray(x)[0], (steps.view, steps.action))
    target = rng().normal(size=6).astype("float32")
    optimiser = Adam(0.05)

    @jax.jit
    def fit(critics, view, action, target):
        return fit_critics(
            optimiser, critics, optimiser.init(critics), Backup(view, action, target, target, view), target
        )

    fitted, _, metrics = fit(critics, view, action, target)
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
    assert set(metrics) >= {"critic_loss", "value"}


def linear_critic(key):
    critic = action_value(SPEC, (5,), key)
    mlp = eqx.tree_at(lambda m: m.layers, critic.mlp, ())
    out = type(critic.out)(5, 1, jax.nn.initializers.normal(1.0), key)
    return eqx.tree_at(lambda c: (c.mlp, c.out), critic, (mlp, out))


@pytest.mark.parametrize("action", [BOX, Discrete(3)], ids=["box", "discrete"])
def test_padding_changes_neither_loss_nor_gradient(action):
    """Bit by bit, for windows cut at every length."""
    spec = EnvSpec("push", VECTOR, action)
    critics, optimiser = jax.jit(lambda key: ensemble(lambda k: action_value(spec, (6,), k), 2, key))(KEY), Adam(0.1)
    batch = batch_of(spec, 4, 12, cut=True)
    lengths = np.asarray(batch.mask).sum(0)
    assert set(lengths) == {1, 2, 3, 4}

    @jax.jit
    def fit(batch):
        data = backup(batch, 0.9)
        return fit_critics(optimiser, critics, optimiser.init(critics), data, data.earned + data.discount)

    other = eqx.tree_at(lambda b: b.steps, batch, with_other_padding(spec, batch.steps, batch.mask, rng(9)))
    same_bits(fit(batch), fit(other), "padding changes nothing")
    other_reward = np.array(batch.steps.reward)
    other_reward[0, 0] += 1.0
    changed = eqx.tree_at(lambda b: b.steps.reward, batch, other_reward)
    with pytest.raises(Exception, match="differs"):
        same_bits(fit(batch), fit(changed), "what is not padding does")


# -- temperature -------------------------------------------------------------------------------------------


def test_temperature_moves_towards_its_target():
    tuned = TunedTemperature(initial=0.5, learning_rate=0.1)

    @jax.jit
    def told():
        state = tuned.init(SPEC)
        return state, tuned.alpha(state), *(tuned.alpha(tuned.update(state, jnp.float32(x))) for x in (-3.0, -1.0))

    state, begun, more, less = told()
    assert begun == pytest.approx(0.5) and state[2] == -2.0
    assert more > 0.5  # too little entropy: weigh it more
    assert less < 0.5
    wanted = np.exp(adam(np.log([0.5]), [np.array([-3.0 + 2.0])], 0.1, 1e-8, 1e9))[0]
    assert more == pytest.approx(wanted, rel=1e-5)


def test_targets_and_fixed_temperature():
    choice = EnvSpec("choice", VECTOR, Discrete(4))
    own, given = jax.jit(lambda: (TunedTemperature().init(choice)[2], TunedTemperature(target=-7.0).init(SPEC)[2]))()
    assert own == pytest.approx(0.89 * np.log(4)) and given == -7.0
    with pytest.raises(Exception, match="no default target"):
        TunedTemperature().init(EnvSpec("vector", VECTOR, MultiDiscrete((2, 2))))
    fixed = FixedTemperature(0.3)
    assert fixed.alpha(fixed.update(fixed.init(SPEC), jnp.float32(1.0))) == pytest.approx(0.3)


# -- the critic's verdict on a rollout ---------------------------------------------------------------------


def assessed(terminated, truncated, reward=None, seed=0):
    """A batch, the verdict on it, and what the critic says of what follows its first steps."""
    shape = terminated.shape
    ends = jax.device_put({"terminated": terminated, "truncated": truncated})
    batch = batch_of(SPEC, *shape, seed=seed, **ends)
    if reward is not None:
        batch = eqx.tree_at(lambda b: b.steps.reward, batch, jax.device_put(reward))
    return jax.tree.map(np.asarray, _assessed(batch))


@jax.jit
def _assessed(batch):
    network, shape = ActorCritic(SPEC, (6,), KEY), batch.mask.shape
    steps = dataclasses.replace(batch.steps, extras={"log_prob": jnp.zeros(shape)})
    batch = Batch(steps, batch.mask, network.begin(shape[1]), batch.index)
    verdict = Assessor(AsTheyAre(), RawReward(), 0.9, 0.8).assess(network, ((), (), ()), batch)
    return batch, verdict, jax.vmap(lambda o: network.critic((), o)[0])(batch.steps.next_view.observation[0])


def test_truncation_bootstraps_and_termination_does_not():
    ends = np.array([[True, False, False]]), np.array([[False, True, False]])
    batch, verdict, following = assessed(*ends)
    bootstrap = np.where(ends[0][0], 0.0, 0.9 * following)
    wanted = np.asarray(batch.steps.reward[0]) + bootstrap - np.asarray(verdict.value[0])
    np.testing.assert_allclose(verdict.advantage[0], wanted, atol=1e-5)
    np.testing.assert_allclose(verdict.target[0], wanted + np.asarray(verdict.value[0]), atol=1e-5)
    assert np.abs(following[0]) > 1e-2


def test_nothing_flows_across_the_end_of_an_episode():
    """Another episode's rewards, or a NaN in them, leave this episode's advantages the same bit by bit."""
    terminated, truncated = np.zeros((6, 2), bool), np.zeros((6, 2), bool)
    terminated[2, 0] = truncated[2, 1] = True
    batch, before, _ = assessed(terminated, truncated)
    for late in (5.0, np.nan):
        reward = np.asarray(batch.steps.reward).copy()
        reward[3:] += late
        _, after, _ = assessed(terminated, truncated, reward)
        same_bits(before.advantage[:3], after.advantage[:3], "earlier episodes")
        assert not np.any(as_numpy(before.advantage)[3:] == as_numpy(after.advantage)[3:])


def test_trees_of_actions_are_assessed_too():
    spec = EnvSpec("tree", TREE, TREE_ACTION, legal=True)
    batch = batch_of(spec, 4, 2)

    @jax.jit
    def told(batch):
        network = ActorCritic(spec, (6,), KEY)
        steps = dataclasses.replace(batch.steps, extras={"log_prob": jnp.zeros((4, 2))})
        batch = Batch(steps, batch.mask, network.begin(2), batch.index)
        return Assessor(AsTheyAre(), ReturnScale(), 0.9, 0.8).assess(network, ((), ReturnScale().init(), ()), batch)

    verdict = told(batch)
    assert verdict.advantage.shape == (4, 2) and np.all(np.isfinite(verdict.advantage))

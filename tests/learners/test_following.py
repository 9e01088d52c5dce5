"""What the next choice is worth, against loops in numpy; and the targets that follow from it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import VECTOR

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.learners.following import QLearning, Sarsa
from thespis.methods.online.nq import NQ

KEY = made_up.quick_key(0)
SPEC = EnvSpec("choices", VECTOR, Discrete(4), legal=True)
TIME, ROWS = 6, 5


def rollout(seed=0):
    """Steps that follow one another: the next view is the one acted on, but where an episode ended."""
    rng = np.random.default_rng(seed)
    steps = random_steps(SPEC, rng, TIME, ROWS)
    view, ended = steps.view, np.asarray(steps.ended)[:-1]

    def follow(now, following):
        now, following = np.asarray(now), np.array(following)
        following[:-1] = np.where(ended[..., None], following[:-1], now[1:])
        return jnp.asarray(following)

    legal = np.asarray(view.legal)
    action = jnp.asarray([[rng.choice(np.flatnonzero(row)) for row in rows] for rows in legal], "int32")
    epsilon = jnp.asarray(rng.uniform(size=(TIME, ROWS)), "float32")
    steps = eqx.tree_at(lambda s: (s.action, s.next_view), steps, (action, jax.tree.map(follow, view, steps.next_view)))
    steps = eqx.tree_at(lambda s: s.extras, steps, {"epsilon": epsilon}, is_leaf=lambda x: isinstance(x, tuple))
    assert steps.ended[:-1].any() and not steps.ended[:-1].all()
    return steps, jnp.asarray(rng.normal(size=(TIME, ROWS, 4)), "float32")


def legal_values(steps, values, t, row):
    return np.asarray(values)[t, row][np.asarray(steps.next_view.legal)[t, row]]


def test_q_learning_takes_the_best_legal_choice():
    steps, values = rollout()
    found = QLearning().value(values, steps)
    wanted = [[legal_values(steps, values, t, row).max() for row in range(ROWS)] for t in range(TIME)]
    np.testing.assert_allclose(found, wanted)
    assert np.any(np.asarray(found) < np.asarray(values).max(-1))


def test_sarsa_takes_the_choice_that_was_taken_and_the_mean_where_none_was():
    steps, values = rollout()
    found = np.asarray(Sarsa().value(values, steps))
    for t in range(TIME):
        for row in range(ROWS):
            if t == TIME - 1 or steps.ended[t, row]:
                legal, epsilon = legal_values(steps, values, t, row), float(steps.extras["epsilon"][t, row])
                wanted = (1 - epsilon) * legal.max() + epsilon * legal.mean()
            else:
                wanted = values[t, row, steps.action[t + 1, row]]
            assert found[t, row] == pytest.approx(float(wanted), abs=1e-5)


def test_worlds_without_masks_have_all_choices():
    steps, values = rollout()
    steps = eqx.tree_at(
        lambda s: (s.view, s.next_view), steps, [View(v.observation) for v in (steps.view, steps.next_view)]
    )
    np.testing.assert_allclose(QLearning().value(values, steps), np.asarray(values).max(-1))
    epsilon = np.asarray(steps.extras["epsilon"][-1])
    last = (1 - epsilon) * np.asarray(values[-1]).max(-1) + epsilon * np.asarray(values[-1]).mean(-1)
    np.testing.assert_allclose(Sarsa().value(values, steps)[-1], last, rtol=1e-5)


@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_the_target_is_the_return_bootstrapped_from_the_target_net(trace):
    """The loss that an update reports is that of targets written out by hand."""
    steps, _ = rollout(3)
    method = NQ(hidden=(8,), trace=trace, discount=0.9, feed=Rollouts(TIME, envs=ROWS))
    state, other = made_up.begun(method, SPEC), made_up.begun(method, SPEC, 1)
    state = eqx.tree_at(lambda s: s.target, state, other.critic)

    def net(critic, observation):
        return np.asarray(jax.vmap(jax.vmap(lambda o: jax.tree.map(lambda x: x[0], critic).all(o)))(observation))

    now, after = net(state.critic, steps.view.observation), net(other.critic, steps.next_view.observation)
    best = np.where(steps.next_view.legal, after, -np.inf).max(-1)
    target = np.zeros((TIME, ROWS))
    for t in reversed(range(TIME)):
        later = best[t] if t == TIME - 1 else np.where(steps.ended[t], best[t], target[min(t + 1, TIME - 1)])
        bootstrap = np.where(steps.terminated[t], 0.0, (1 - trace) * best[t] + trace * later)
        target[t] = np.asarray(steps.reward[t]) + 0.9 * bootstrap
    taken = np.take_along_axis(now, np.asarray(steps.action)[..., None], -1)[..., 0]
    batch = Batch(steps, jnp.ones((TIME, ROWS), bool), jnp.zeros(ROWS), jnp.zeros((), "int32"))
    new, report = jax.jit(method.update)(state, batch, KEY)
    loss = float(np.mean((net(new.critic, steps.view.observation) - now) ** 2))
    assert loss > 0  # it moved
    assert float(report.metrics["critic_loss"]) == pytest.approx(np.mean((taken - target) ** 2), rel=1e-4)


# -- exploration -------------------------------------------------------------------------------------------


def act(method, mode, updates, rows, memory=None, key=KEY):
    state = method.init(EnvSpec("free", VECTOR, Discrete(4)), KEY)
    policy = method.policy(eqx.tree_at(lambda s: s.updates, state, jnp.int32(updates)), mode)
    memory = method.begin(policy, rows) if memory is None else memory
    view = View(jnp.broadcast_to(jnp.arange(3.0), (rows, 3)))
    return jax.jit(method.act)(policy, memory, view, key)


def test_episodes_draw_final_epsilons_with_their_chances_and_keep_them():
    method, rows = NQ(hidden=(8,)), 20_000
    action, memory, extras = act(method, Mode.EXPLORE, 10_000, rows)
    shares = [float(jnp.mean(memory == jnp.float32(epsilon))) for epsilon in (0.1, 0.01, 0.5)]
    np.testing.assert_allclose(shares, [0.4, 0.3, 0.3], atol=0.015)
    np.testing.assert_array_equal(extras["epsilon"], memory)
    best = np.bincount(np.asarray(action)).argmax()
    for epsilon in (0.1, 0.01, 0.5):  # a random choice is the best one in four
        group = np.asarray(action)[np.asarray(memory == jnp.float32(epsilon))]
        assert np.mean(group != best) == pytest.approx(0.75 * epsilon, abs=0.02)
    _, again, _ = act(method, Mode.EXPLORE, 10_000, rows, memory, jax.random.key(5))
    np.testing.assert_array_equal(again, memory)


def test_epsilons_fall_from_one():
    method = NQ(hidden=(8,), epsilon_updates=100.0)
    for updates, progress in [(0, 0.0), (50, 0.5), (100, 1.0), (500, 1.0)]:
        _, memory, extras = act(method, Mode.EXPLORE, updates, 64)
        np.testing.assert_allclose(extras["epsilon"], 1 - progress * (1 - np.asarray(memory)), rtol=1e-5)
    _, memory, extras = act(method, Mode.SAMPLE, 0, 64)
    np.testing.assert_array_equal(extras["epsilon"], memory)
    action, _, extras = act(method, Mode.EXPLOIT, 0, 64)
    assert not extras["epsilon"].any() and len(set(action.tolist())) == 1


def test_epsilons_and_chances_go_together():
    _, memory, _ = act(NQ(hidden=(8,), epsilons=(0.3,), chances=(1.0,)), Mode.EXPLORE, 0, 4)
    assert memory.tolist() == pytest.approx([0.3] * 4)
    for wrong in ({"chances": (0.5, 0.5)}, {"chances": (0.4, 0.3, 0.2)}):
        with pytest.raises(UserError, match="sum to 1"):
            act(NQ(**wrong), Mode.EXPLORE, 0, 4)
    with pytest.raises(UserError, match="nq needs one discrete choice"):
        NQ().init(EnvSpec("push", VECTOR, VECTOR), KEY)

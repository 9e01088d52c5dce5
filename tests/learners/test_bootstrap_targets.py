"""n-step Q-learning and Sarsa: bootstrap values, targets and epsilon schedules, against loops in numpy."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import VECTOR

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.data.feeds import Rollouts
from thespis.methods.online.n_step_q import NStepQ, QLearning, Sarsa

KEY = synthetic_batches.quick_key(0)
SPEC = EnvSpec("choices", VECTOR, Discrete(4), has_action_mask=True)
TIME, ROWS = 6, 5


def rollout(seed=0):
    """Consecutive random steps: each next view is the view of the next step, except at the end of an episode."""
    rng = np.random.default_rng(seed)
    steps = random_transitions(SPEC, rng, TIME, ROWS)
    view, ended = steps.view, np.asarray(steps.done)[:-1]

    def shift(current, following):
        current, following = np.asarray(current), np.array(following)
        following[:-1] = np.where(ended[..., None], following[:-1], current[1:])
        return jnp.asarray(following)

    legal = np.asarray(view.action_mask)
    action = jnp.asarray([[rng.choice(np.flatnonzero(row)) for row in rows] for rows in legal], "int32")
    epsilon = jnp.asarray(rng.uniform(size=(TIME, ROWS)), "float32")
    steps = eqx.tree_at(lambda s: (s.action, s.next_view), steps, (action, jax.tree.map(shift, view, steps.next_view)))
    steps = eqx.tree_at(lambda s: s.extras, steps, {"epsilon": epsilon}, is_leaf=lambda x: isinstance(x, tuple))
    assert steps.done[:-1].any() and not steps.done[:-1].all()
    return steps, jnp.asarray(rng.normal(size=(TIME, ROWS, 4)), "float32")


def legal_values(steps, values, t, row):
    return np.asarray(values)[t, row][np.asarray(steps.next_view.action_mask)[t, row]]


def test_q_learning_takes_the_best_legal_action():
    steps, values = rollout()
    next_values = QLearning().next_value(values, steps)
    expected = [[legal_values(steps, values, t, row).max() for row in range(ROWS)] for t in range(TIME)]
    np.testing.assert_allclose(next_values, expected)
    assert np.any(np.asarray(next_values) < np.asarray(values).max(-1))


def test_sarsa_takes_the_next_action_or_its_expectation():
    steps, values = rollout()
    next_values = np.asarray(Sarsa().next_value(values, steps))
    for t in range(TIME):
        for row in range(ROWS):
            if t == TIME - 1 or steps.done[t, row]:
                legal, epsilon = legal_values(steps, values, t, row), float(steps.extras["epsilon"][t, row])
                expected = (1 - epsilon) * legal.max() + epsilon * legal.mean()
            else:
                expected = values[t, row, steps.action[t + 1, row]]
            assert next_values[t, row] == pytest.approx(float(expected), abs=1e-5)


def test_without_masks_all_actions_count():
    steps, values = rollout()
    steps = eqx.tree_at(
        lambda s: (s.view, s.next_view), steps, [View(v.observation) for v in (steps.view, steps.next_view)]
    )
    np.testing.assert_allclose(QLearning().next_value(values, steps), np.asarray(values).max(-1))
    epsilon = np.asarray(steps.extras["epsilon"][-1])
    last = (1 - epsilon) * np.asarray(values[-1]).max(-1) + epsilon * np.asarray(values[-1]).mean(-1)
    np.testing.assert_allclose(Sarsa().next_value(values, steps)[-1], last, rtol=1e-5)


@pytest.mark.parametrize("td_lambda", [0.0, 0.6, 1.0])
def test_target_is_the_lambda_return_of_the_target_network(td_lambda):
    """The loss of an update against targets written out by hand."""
    steps, _ = rollout(3)
    method = NStepQ(hidden_sizes=(8,), td_lambda=td_lambda, discount=0.9, feed=Rollouts(TIME, num_envs=ROWS))
    state, other = synthetic_batches.init_state(method, SPEC), synthetic_batches.init_state(method, SPEC, 1)
    state = eqx.tree_at(lambda s: s.target_critic, state, other.critic)

    def q_values(critic, observation):
        return np.asarray(jax.vmap(jax.vmap(lambda o: jax.tree.map(lambda x: x[0], critic).q_values(o)))(observation))

    online_values, target_values = (
        q_values(state.critic, steps.view.observation),
        q_values(other.critic, steps.next_view.observation),
    )
    best = np.where(steps.next_view.action_mask, target_values, -np.inf).max(-1)
    target = np.zeros((TIME, ROWS))
    for t in reversed(range(TIME)):
        next_return = best[t] if t == TIME - 1 else np.where(steps.done[t], best[t], target[min(t + 1, TIME - 1)])
        bootstrap = np.where(steps.terminated[t], 0.0, (1 - td_lambda) * best[t] + td_lambda * next_return)
        target[t] = np.asarray(steps.reward[t]) + 0.9 * bootstrap
    taken = np.take_along_axis(online_values, np.asarray(steps.action)[..., None], -1)[..., 0]
    batch = Batch(steps, jnp.ones((TIME, ROWS), bool), jnp.zeros(ROWS), jnp.zeros((), "int32"))
    new, report = jax.jit(method.update)(state, batch, KEY)
    loss = float(np.mean((q_values(new.critic, steps.view.observation) - online_values) ** 2))
    assert loss > 0  # the update changed the network
    assert float(report.metrics["critic_loss"]) == pytest.approx(np.mean((taken - target) ** 2), rel=1e-4)


# -- exploration -------------------------------------------------------------------------------------------


def act(method, mode, updates, rows, memory=None, key=KEY):
    state = method.init(EnvSpec("free", VECTOR, Discrete(4)), KEY)
    policy = method.policy(eqx.tree_at(lambda s: s.num_updates, state, jnp.int32(updates)), mode)
    memory = method.init_memory(policy, rows) if memory is None else memory
    view = View(jnp.broadcast_to(jnp.arange(3.0), (rows, 3)))
    return jax.jit(method.act)(policy, memory, view, key)


def test_episodes_sample_a_final_epsilon_and_keep_it():
    method, rows = NStepQ(hidden_sizes=(8,)), 20_000
    action, memory, extras = act(method, Mode.EXPLORE, 10_000, rows)
    shares = [float(jnp.mean(memory == jnp.float32(epsilon))) for epsilon in (0.1, 0.01, 0.5)]
    np.testing.assert_allclose(shares, [0.4, 0.3, 0.3], atol=0.015)
    np.testing.assert_array_equal(extras["epsilon"], memory)
    best = np.bincount(np.asarray(action)).argmax()
    for epsilon in (0.1, 0.01, 0.5):  # a random action is the greedy one with probability 1/4
        group = np.asarray(action)[np.asarray(memory == jnp.float32(epsilon))]
        assert np.mean(group != best) == pytest.approx(0.75 * epsilon, abs=0.02)
    _, next_memory, _ = act(method, Mode.EXPLORE, 10_000, rows, memory, jax.random.key(5))
    np.testing.assert_array_equal(next_memory, memory)


def test_epsilons_decay_from_one():
    method = NStepQ(hidden_sizes=(8,), epsilon_decay_updates=100.0)
    for updates, progress in [(0, 0.0), (50, 0.5), (100, 1.0), (500, 1.0)]:
        _, memory, extras = act(method, Mode.EXPLORE, updates, 64)
        np.testing.assert_allclose(extras["epsilon"], 1 - progress * (1 - np.asarray(memory)), rtol=1e-5)
    _, memory, extras = act(method, Mode.SAMPLE, 0, 64)
    np.testing.assert_array_equal(extras["epsilon"], memory)
    action, _, extras = act(method, Mode.EXPLOIT, 0, 64)
    assert not extras["epsilon"].any() and len(set(action.tolist())) == 1


def test_epsilons_and_probabilities_must_match():
    _, memory, _ = act(NStepQ(hidden_sizes=(8,), final_epsilons=(0.3,), final_epsilon_probs=(1.0,)), Mode.EXPLORE, 0, 4)
    assert memory.tolist() == pytest.approx([0.3] * 4)
    for wrong in ({"final_epsilon_probs": (0.5, 0.5)}, {"final_epsilon_probs": (0.4, 0.3, 0.2)}):
        with pytest.raises(UserError, match="sum to 1"):
            act(NStepQ(**wrong), Mode.EXPLORE, 0, 4)
    with pytest.raises(UserError, match="n-step-q needs one discrete choice"):
        NStepQ().init(EnvSpec("push", VECTOR, VECTOR), KEY)

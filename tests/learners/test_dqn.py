"""DQN: targets against numpy, and actions against their masks."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import VECTOR

from thespis.core.contracts import Mode
from thespis.core.laws.random_samples import random_transitions, random_view
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import Discrete
from thespis.data.feeds import Replay
from thespis.methods.online.dqn import DQN

KEY, ROWS = jax.random.key(0), 24
SPEC = EnvSpec("choices", VECTOR, Discrete(4), has_action_mask=True)


def q_values(critic, observation):
    """Values of all actions, by the only ensemble member."""
    return np.asarray(jax.vmap(jax.tree.map(lambda x: x[0], critic).q_values)(observation))


@pytest.mark.parametrize("double", [True, False])
def test_loss_matches_targets_written_out(double):
    method = DQN(hidden_sizes=(8,), double_q=double, discount=0.9, huber_delta=1e9, feed=Replay(batch_size=ROWS))
    state = method.init(SPEC, KEY)
    state = eqx.tree_at(lambda s: s.target_critic, state, method.init(SPEC, jax.random.key(1)).critic)
    steps = random_transitions(SPEC, np.random.default_rng(0), 1, ROWS)
    view, next_view = (jax.tree.map(lambda x: x[0], views) for views in (steps.view, steps.next_view))
    online, target, legal = (
        q_values(state.critic, next_view.observation),
        q_values(state.target_critic, next_view.observation),
        next_view.action_mask,
    )
    best = {name: np.where(legal, x, -np.inf).argmax(-1) for name, x in (("online", online), ("target", target))}
    assert (best["online"] != best["target"]).any() and (best["online"] != online.argmax(-1)).any()
    chosen = np.take_along_axis(target, best["online" if double else "target"][:, None], 1)[:, 0]
    expected = np.asarray(steps.reward[0]) + 0.9 * np.where(steps.terminated[0], 0.0, chosen)
    taken = np.take_along_axis(q_values(state.critic, view.observation), np.asarray(steps.action[0])[:, None], 1)[:, 0]
    batch = Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))
    report = jax.jit(method.update)(state, batch, KEY)[1]
    assert float(report.metrics["critic_loss"]) == pytest.approx(float(np.mean((taken - expected) ** 2)) / 2, rel=1e-4)


def test_greedy_actions_are_the_best_legal_ones():
    method, rows = DQN(hidden_sizes=(8,), final_epsilon=0.5), 200
    state = method.init(SPEC, KEY)
    view = jax.tree.map(jnp.asarray, random_view(SPEC, np.random.default_rng(0), (rows,)))
    values = q_values(state.critic, view.observation)
    best = np.where(view.action_mask, values, -np.inf).argmax(-1)
    assert (best != values.argmax(-1)).any()
    act = jax.jit(lambda policy, view: method.act(policy, (), view, KEY)[0])
    np.testing.assert_array_equal(act(method.policy(state, Mode.EXPLOIT), view), best)
    unmasked = View(view.observation)
    np.testing.assert_array_equal(act(method.policy(state, Mode.EXPLOIT), unmasked), values.argmax(-1))
    sampled = np.asarray(act(method.policy(state, Mode.SAMPLE), view))
    assert np.take_along_axis(np.asarray(view.action_mask), sampled[:, None], 1).all()
    assert 0.1 < np.mean(sampled != best) < 0.5

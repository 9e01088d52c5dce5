"""DQN's targets against loops in numpy, and its choices against their masks."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import VECTOR

from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.samples import random_steps, random_view
from thespis.core.spaces import Discrete
from thespis.methods.online.dqn import DQN

KEY, ROWS = jax.random.key(0), 24
SPEC = EnvSpec("choices", VECTOR, Discrete(4), legal=True)


def net(critic, observation):
    """Values of every choice by the one net that there is."""
    return np.asarray(jax.vmap(jax.tree.map(lambda x: x[0], critic).all)(observation))


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_is_that_of_targets_written_out(double):
    method = DQN(hidden=(8,), double=double, discount=0.9, huber=1e9, feed=Replay(batch=ROWS))
    state = method.init(SPEC, KEY)
    state = eqx.tree_at(lambda s: s.target, state, method.init(SPEC, jax.random.key(1)).critic)
    steps = random_steps(SPEC, np.random.default_rng(0), 1, ROWS)
    now, after = (jax.tree.map(lambda x: x[0], view) for view in (steps.view, steps.next_view))
    online, slow, legal = net(state.critic, after.observation), net(state.target, after.observation), after.legal
    best = {name: np.where(legal, x, -np.inf).argmax(-1) for name, x in (("online", online), ("slow", slow))}
    assert (best["online"] != best["slow"]).any() and (best["online"] != online.argmax(-1)).any()
    chosen = np.take_along_axis(slow, best["online" if double else "slow"][:, None], 1)[:, 0]
    wanted = np.asarray(steps.reward[0]) + 0.9 * np.where(steps.terminated[0], 0.0, chosen)
    taken = np.take_along_axis(net(state.critic, now.observation), np.asarray(steps.action[0])[:, None], 1)[:, 0]
    batch = Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))
    report = jax.jit(method.update)(state, batch, KEY)[1]
    assert float(report.metrics["critic_loss"]) == pytest.approx(float(np.mean((taken - wanted) ** 2)) / 2, rel=1e-4)


def test_greedy_play_takes_the_best_of_what_is_legal():
    method, rows = DQN(hidden=(8,), last_epsilon=0.5), 200
    state = method.init(SPEC, KEY)
    view = jax.tree.map(jnp.asarray, random_view(SPEC, np.random.default_rng(0), (rows,)))
    values = net(state.critic, view.observation)
    best = np.where(view.legal, values, -np.inf).argmax(-1)
    assert (best != values.argmax(-1)).any()
    act = jax.jit(lambda policy, view: method.act(policy, (), view, KEY)[0])
    np.testing.assert_array_equal(act(method.policy(state, Mode.EXPLOIT), view), best)
    free = View(view.observation)
    np.testing.assert_array_equal(act(method.policy(state, Mode.EXPLOIT), free), values.argmax(-1))
    sampled = np.asarray(act(method.policy(state, Mode.SAMPLE), view))
    assert np.take_along_axis(np.asarray(view.legal), sampled[:, None], 1).all()
    assert 0.1 < np.mean(sampled != best) < 0.5

"""Iterated Q-learning: targets of each network in the chain, and shifts of the window of networks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import Walk

from thespis.core.contracts import Mode
from thespis.core.laws.assertions import assert_close, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.core.spaces import Discrete
from thespis.data.feeds import Replay
from thespis.learners.off_policy.discrete_q import IteratedTargets, PeriodicCopy
from thespis.methods.online.dqn import DQN
from thespis.papers.i_qn.method import IDQN

SPEC, KEY, ROWS = Walk(Discrete(4), legal=True).spec, jax.random.key(0), 6
CHAIN = IDQN(
    hidden_sizes=(5,),
    target_network=IteratedTargets(3, 2),
    target_update_interval=5,
    feed=Replay(batch_size=ROWS),
    max_grad_norm=1e9,
)


def labels_after(targets, every, updates):
    """Online and target labels after ``updates``; each update labels network ``i`` with ``10 * update + i``."""
    online, target = jnp.array([1.0, 2.0, 3.0]), jnp.array([-1.0, -2.0, -3.0])
    for update in range(1, updates + 1):
        online = 10.0 * update + jnp.arange(3.0)
        online, target = targets.update(online, target, jnp.array(update), every)
    return online.tolist(), target.tolist()


def test_window_shifts():
    chain = IteratedTargets(ensemble_size=3, copy_interval=2)
    assert labels_after(chain, 5, 1) == ([10, 11, 12], [-1, -2, -3])
    assert labels_after(chain, 5, 2) == ([20, 21, 22], [-1, 20, 21])  # the first target stays
    assert labels_after(chain, 5, 3) == ([30, 31, 32], [-1, 20, 21])
    assert labels_after(chain, 5, 5) == ([51, 52, 52], [50, 51, 52])
    assert labels_after(chain, 5, 6) == ([60, 61, 62], [50, 60, 61])
    assert labels_after(chain, 2, 2) == ([21, 22, 22], [20, 21, 22])  # where both are due the window shifts
    assert labels_after(PeriodicCopy(), 2, 3) == ([30, 31, 32], [20, 21, 22])


def test_exact_fits_are_value_iteration():
    """A corridor of five states with reward 1 at its end: after ``n`` shifts the first target is ``T^n 0``."""
    rewards, next_state = jnp.array([0.0, 0, 0, 0, 1]), jnp.array([1, 2, 3, 4, 4])

    def bellman(q):
        return rewards + 0.9 * q[..., next_state]

    online, target = jnp.zeros((3, 5)), jnp.zeros((3, 5))
    iterates = [np.zeros(5)]
    for _ in range(20):
        iterates.append(np.asarray(rewards) + 0.9 * iterates[-1][np.asarray(next_state)])
    for update in range(1, 13):
        online, target = IteratedTargets(3, 1).update(bellman(target), target, jnp.array(update), 4)
        if update % 4 == 3:  # the chain has caught up with its first target
            for k in range(3):
                np.testing.assert_allclose(online[k], iterates[update // 4 + k + 1], rtol=1e-5)
        if update % 4 == 0:
            np.testing.assert_allclose(target[0], iterates[update // 4], rtol=1e-5)


@pytest.mark.long
def test_each_network_learns_from_its_own_target():
    state, other = synthetic_batches.init_state(CHAIN, SPEC), synthetic_batches.init_state(CHAIN, SPEC, 1)
    state = dataclasses.replace(state, target_critic=other.target_critic)
    steps = random_transitions(SPEC, np.random.default_rng(0), 1, ROWS)
    batch = Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))
    together, _ = jax.jit(CHAIN.update)(state, batch, KEY)
    update_single = jax.jit(dataclasses.replace(CHAIN, target_network=PeriodicCopy()).update)
    for k in range(3):
        single = jax.tree.map(lambda x, k=k: x[k : k + 1] if x.ndim else x, state)
        single, _ = update_single(single, batch, KEY)
        expected = jax.tree.map(lambda x, k=k: x[k : k + 1], together.critic)
        assert_close(
            to_numpy(single.critic), to_numpy(expected), "a network of the chain learns like a single one", 1e-5
        )
    assert (
        to_numpy(together.target_critic.advantage_out.weight).tolist()
        == to_numpy(state.target_critic.advantage_out.weight).tolist()
    )


@pytest.mark.parametrize(("method", "by_member"), [(CHAIN, True), (DQN(hidden_sizes=(5,)), False)])
def test_a_chain_explores_by_one_member(method, by_member):
    policy = method.policy(synthetic_batches.init_state(method, SPEC), Mode.EXPLORE)
    assert policy.acts_by_member == by_member and policy.ensemble_size == (3 if by_member else 1)

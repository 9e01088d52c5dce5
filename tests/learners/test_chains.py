"""Chains of nets: who is fitted to whom, and how the window moves."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import Walk

from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.laws import as_numpy, close
from thespis.core.records import Batch
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.learners.targets import Chain, Copied
from thespis.methods.online.dqn import DQN
from thespis.methods.online.i_dqn import IDQN

SPEC, KEY, ROWS = Walk(Discrete(4), legal=True).spec, jax.random.key(0), 6
CHAIN = IDQN(hidden=(5,), targets=Chain(3, 2), target_every=5, feed=Replay(batch=ROWS), max_gradient_norm=1e9)


def moved(targets, every, updates):
    """Where labels of nets are after ``updates`` in which each net gets the label ``10 * update + row``."""
    online, target = jnp.array([1.0, 2.0, 3.0]), jnp.array([-1.0, -2.0, -3.0])
    for update in range(1, updates + 1):
        online = 10.0 * update + jnp.arange(3.0)
        online, target = targets.renewed(online, target, jnp.array(update), every)
    return online.tolist(), target.tolist()


def test_the_window_moves():
    chain = Chain(members=3, copied=2)
    assert moved(chain, 5, 1) == ([10, 11, 12], [-1, -2, -3])
    assert moved(chain, 5, 2) == ([20, 21, 22], [-1, 20, 21])  # the first target stays
    assert moved(chain, 5, 3) == ([30, 31, 32], [-1, 20, 21])
    assert moved(chain, 5, 5) == ([51, 52, 52], [50, 51, 52])
    assert moved(chain, 5, 6) == ([60, 61, 62], [50, 60, 61])
    assert moved(chain, 2, 2) == ([21, 22, 22], [20, 21, 22])  # where both are due it moves
    assert moved(Copied(), 2, 3) == ([30, 31, 32], [20, 21, 22])


def test_exact_fits_are_value_iteration():
    """On a corridor of five places that pays 1 at its end: after ``n`` windows the first target is ``T^n``."""
    rewards, follows = jnp.array([0.0, 0, 0, 0, 1]), jnp.array([1, 2, 3, 4, 4])

    def bellman(q):
        return rewards + 0.9 * q[..., follows]

    online, target = jnp.zeros((3, 5)), jnp.zeros((3, 5))
    iterates = [np.zeros(5)]
    for _ in range(20):
        iterates.append(np.asarray(rewards) + 0.9 * iterates[-1][np.asarray(follows)])
    for update in range(1, 13):
        online, target = Chain(3, 1).renewed(bellman(target), target, jnp.array(update), 4)
        if update % 4 == 3:  # the chain has caught up with its first target
            for k in range(3):
                np.testing.assert_allclose(online[k], iterates[update // 4 + k + 1], rtol=1e-5)
        if update % 4 == 0:
            np.testing.assert_allclose(target[0], iterates[update // 4], rtol=1e-5)


def test_each_net_learns_as_a_lone_one_from_its_own_target():
    state, other = made_up.begun(CHAIN, SPEC), made_up.begun(CHAIN, SPEC, 1)
    state = dataclasses.replace(state, target=other.target)
    steps = random_steps(SPEC, np.random.default_rng(0), 1, ROWS)
    batch = Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))
    together, _ = jax.jit(CHAIN.update)(state, batch, KEY)
    alone = jax.jit(dataclasses.replace(CHAIN, targets=Copied()).update)
    for k in range(3):
        one = jax.tree.map(lambda x, k=k: x[k : k + 1] if x.ndim else x, state)
        one, _ = alone(one, batch, KEY)
        mine = jax.tree.map(lambda x, k=k: x[k : k + 1], together.critic)
        close(as_numpy(one.critic), as_numpy(mine), "a net of the chain is one alone", 1e-5)
    assert as_numpy(together.target.out.weight).tolist() == as_numpy(state.target.out.weight).tolist()


@pytest.mark.parametrize(("method", "alone"), [(CHAIN, True), (DQN(hidden=(5,)), False)])
def test_one_of_a_chain_explores(method, alone):
    policy = method.policy(made_up.begun(method, SPEC), Mode.EXPLORE)
    assert policy.alone == alone and policy.members == (3 if alone else 1)

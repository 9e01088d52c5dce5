"""Critics of off-policy methods see what is privileged, actors never do; without it nothing is changed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES

from thespis.core.conformance import check_method
from thespis.core.keys import key_of
from thespis.core.records import Batch, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box
from thespis.learners.backup import backup

METHODS = ["ddpg", "td3", "sac", "sac-v", "dsac"]
SPEC = dataclasses.replace(CASES["ddpg"].world.spec, privileged=Box((5,)))


def case(name):
    """Method, state after one update, and an episode, in a world that shows critics five numbers of their own."""
    method = CASES[name].method
    state = method.init(SPEC, key_of(0))
    steps = random_steps(SPEC, np.random.default_rng(0), 2, 6)
    batch = Batch(steps, jnp.ones((2, 6), bool), (), jnp.int32(1))
    update = jax.jit(method.update)
    return method, state, batch, lambda batch: update(state, batch, key_of(1))[0]


def changed(batch, field):
    """The batch with other numbers in one of its fields."""
    steps = batch.steps
    if field == "privileged":
        other = dataclasses.replace(steps, privileged=steps.privileged + 1, next_privileged=steps.next_privileged + 1)
    else:
        move = lambda view: View(view.observation + 1, view.legal)  # noqa: E731
        other = dataclasses.replace(steps, view=move(steps.view), next_view=move(steps.next_view))
    return dataclasses.replace(batch, steps=other)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_critic_judges_is_what_is_privileged(name):
    method, state, batch, _ = case(name)
    episode = jax.tree.map(lambda x: x[:, 0], batch.steps)
    judge = jax.jit(lambda episode: method.judge(state, episode).value)
    told, shown = jax.tree.map(lambda x: x[:, 0], (changed(batch, "privileged").steps, changed(batch, "view").steps))
    assert bool(jnp.all(judge(told) != judge(episode)))
    np.testing.assert_array_equal(judge(shown), judge(episode))


@pytest.mark.parametrize("name", ["td3", pytest.param("sac", marks=pytest.mark.slow)])
def test_learning_uses_it_and_acting_cannot(name):
    method, state, batch, update = case(name)
    critics = lambda s: np.concatenate([np.ravel(x) for x in jax.tree.leaves(s.critics)])  # noqa: E731
    assert np.any(critics(update(batch)) != critics(update(changed(batch, "privileged"))))
    encoder = jax.tree.leaves(state.critics.mlp)[0]
    assert encoder.shape[-2] == 5 + SPEC.action.shape[0]
    alone = method.init(dataclasses.replace(SPEC, privileged=None), key_of(0))
    actor = lambda s: s.moving.actor if name == "td3" else s.actor  # noqa: E731
    for mine, other in zip(*map(jax.tree.leaves, (actor(state), actor(alone))), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_laws_hold(name):
    check_method(CASES[name].method, SPEC)


def test_replayed_windows_carry_it_to_where_they_bootstrap():
    steps = random_steps(SPEC, np.random.default_rng(0), 3, 4)
    mask = np.array([[True] * 4, [True, True, False, False], [True, False, False, False]])
    data = backup(Batch(steps, jnp.asarray(mask), (), jnp.int32(0)), 0.9)
    np.testing.assert_array_equal(data.seen, steps.privileged[0])
    last = [2, 1, 0, 0]
    np.testing.assert_array_equal(data.next_seen, np.asarray(steps.next_privileged)[last, np.arange(4)])
    without = dataclasses.replace(steps, privileged=None, next_privileged=None)
    plain = backup(Batch(without, jnp.asarray(mask), (), jnp.int32(0)), 0.9)
    np.testing.assert_array_equal(plain.seen, plain.view.observation)
    np.testing.assert_array_equal(plain.next_seen, plain.next_view.observation)

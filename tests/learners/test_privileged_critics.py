"""Privileged observations in off-policy methods: critics use them, actors do not; without them nothing changes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES

from thespis.core.laws.components import check_method
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, View
from thespis.core.spaces import Box
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.runtime.keys import seed_key

METHODS = ["ddpg", "td3", "sac", "sac-v", "dsac"]
SPEC = dataclasses.replace(CASES["ddpg"].env.spec, privileged_space=Box((5,)))


def case(name):
    """Method, initial state, batch and update, with privileged observations of five numbers."""
    method = CASES[name].method
    state = method.init(SPEC, seed_key(0))
    steps = random_transitions(SPEC, np.random.default_rng(0), 2, 6)
    batch = Batch(steps, jnp.ones((2, 6), bool), (), jnp.int32(1))
    update = jax.jit(method.update)
    return method, state, batch, lambda batch: update(state, batch, seed_key(1))[0]


def perturb(batch, field):
    """The batch with other numbers in its privileged or in its ordinary observations."""
    steps = batch.steps
    if field == "privileged":
        perturbed = dataclasses.replace(
            steps, privileged=steps.privileged + 1, next_privileged=steps.next_privileged + 1
        )
    else:
        shift = lambda view: View(view.observation + 1, view.action_mask)  # noqa: E731
        perturbed = dataclasses.replace(steps, view=shift(steps.view), next_view=shift(steps.next_view))
    return dataclasses.replace(batch, steps=perturbed)


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_critic_values_depend_on_privileged_observations_only(name):
    method, state, batch, _ = case(name)
    episode = jax.tree.map(lambda x: x[:, 0], batch.steps)
    judge = jax.jit(lambda episode: method.judge(state, episode).value)
    other_privileged, other_view = jax.tree.map(
        lambda x: x[:, 0], (perturb(batch, "privileged").steps, perturb(batch, "view").steps)
    )
    assert bool(jnp.all(judge(other_privileged) != judge(episode)))
    np.testing.assert_array_equal(judge(other_view), judge(episode))


@pytest.mark.long
@pytest.mark.parametrize("name", ["td3", pytest.param("sac", marks=pytest.mark.slow)])
def test_updates_use_privileged_observations_and_actors_do_not(name):
    method, state, batch, update = case(name)
    critics = lambda s: np.concatenate([np.ravel(x) for x in jax.tree.leaves(s.critics)])  # noqa: E731
    assert np.any(critics(update(batch)) != critics(update(perturb(batch, "privileged"))))
    encoder = jax.tree.leaves(state.critics.mlp)[0]
    assert encoder.shape[-2] == 5 + SPEC.action_space.shape[0]
    unprivileged = method.init(dataclasses.replace(SPEC, privileged_space=None), seed_key(0))
    actor = lambda s: s.delayed.actor if name == "td3" else s.actor  # noqa: E731
    for ours, theirs in zip(*map(jax.tree.leaves, (actor(state), actor(unprivileged))), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_method_laws(name):
    check_method(CASES[name].method, SPEC)


def test_n_step_batches_carry_privileged_observations():
    steps = random_transitions(SPEC, np.random.default_rng(0), 3, 4)
    mask = np.array([[True] * 4, [True, True, False, False], [True, False, False, False]])
    data = n_step_batch(Batch(steps, jnp.asarray(mask), (), jnp.int32(0)), 0.9)
    np.testing.assert_array_equal(data.critic_observation, steps.privileged[0])
    last = [2, 1, 0, 0]
    np.testing.assert_array_equal(data.next_critic_observation, np.asarray(steps.next_privileged)[last, np.arange(4)])
    without = dataclasses.replace(steps, privileged=None, next_privileged=None)
    plain = n_step_batch(Batch(without, jnp.asarray(mask), (), jnp.int32(0)), 0.9)
    np.testing.assert_array_equal(plain.critic_observation, plain.view.observation)
    np.testing.assert_array_equal(plain.next_critic_observation, plain.next_view.observation)

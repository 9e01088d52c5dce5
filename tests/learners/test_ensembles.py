"""Ensembles of categorical critics: targets against numpy, independent training of members, and exploration."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import Walk

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_close, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, View
from thespis.core.spaces import Box, Discrete
from thespis.data.feeds import Replay
from thespis.learners.off_policy.categorical_q import (
    MemberDistribution,
    MixtureDistribution,
    categorical_targets,
    split_batch,
)
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.off_policy.discrete_q import PerEpisode, PerStep
from thespis.methods.online.c51 import C51
from thespis.papers.ensemble_categorical_rl.method import EnsembleC51

SPEC, KEY, ROWS, MEMBERS = Walk(Discrete(4), legal=True).spec, synthetic_batches.quick_key(0), 6, 3
SIZES = {"hidden_sizes": (5,), "num_atoms": 7, "v_min": -2.0, "v_max": 2.0, "max_grad_norm": 1e9}
METHOD = C51(**SIZES, ensemble_size=MEMBERS, target_update_interval=2, feed=Replay(batch_size=ROWS))


def batch():
    steps = random_transitions(SPEC, np.random.default_rng(0), 1, ROWS)
    return Batch(steps, *jax.device_put((np.ones((1, ROWS), bool), (), np.int32(0))))


def member(tree, i):
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)[i : i + 1]) if x.ndim else x, tree)


@pytest.mark.parametrize("target_distribution", [MemberDistribution(), MixtureDistribution()])
def test_targets_against_numpy(target_distribution):
    @jax.jit
    def targets_and_probs(target, batch):
        data = n_step_batch(batch, METHOD.discount)
        observations = data.next_view.observation
        probs = jax.vmap(lambda critic: jax.vmap(critic.probs)(observations))(target)
        return data, categorical_targets(target_distribution, target, split_batch(data, MEMBERS)), probs

    data, targets, all_probs = jax.tree.map(
        np.asarray, targets_and_probs(synthetic_batches.init_state(METHOD, SPEC).target_critic, batch())
    )
    atoms = np.linspace(-2.0, 2.0, 7)
    assert targets.shape == (MEMBERS, ROWS // MEMBERS, 7)
    assert not np.all(data.next_view.action_mask) and np.any(data.discount == 0)
    for i, row in enumerate(range(ROWS)):
        view = jax.tree.map(lambda x, row=row: x[row], data.next_view)
        member_probs = all_probs[:, row].astype("float64")
        probs = (
            member_probs.mean(axis=0) if isinstance(target_distribution, MixtureDistribution) else member_probs[i // 2]
        )
        best = max(np.flatnonzero(view.action_mask), key=lambda a, probs=probs: probs[a] @ atoms)
        expected = np.zeros(7)
        for z, p in zip(atoms, probs[best], strict=True):
            x = np.clip(float(data.reward[row]) + float(data.discount[row]) * z, -2.0, 2.0)
            expected += p * np.maximum(1 - np.abs(x - atoms) / (atoms[1] - atoms[0]), 0)
        np.testing.assert_allclose(targets[i // 2, i % 2], expected, atol=1e-5)


def test_members_with_own_targets_learn_like_single_networks():
    state, data, update = synthetic_batches.init_state(METHOD, SPEC), batch(), jax.jit(METHOD.update)
    together = update(update(state, data, KEY)[0], data, KEY)[0]
    update_single = jax.jit(dataclasses.replace(METHOD, ensemble_size=1).update)
    for i in range(MEMBERS):
        steps = jax.tree.map(lambda x, i=i: np.asarray(x)[:, 2 * i : 2 * i + 2], data.steps)
        member_batch = Batch(*jax.device_put((steps, np.asarray(data.mask)[:, :2], (), data.update_index)))
        single = member(state, i)
        for _ in range(2):
            single, _ = update_single(single, member_batch, KEY)
        assert_close(to_numpy(single), to_numpy(member(together, i)), "a member learns like a single network", 1e-5)


def test_mixture_targets_depend_on_all_members():
    mixed, data = dataclasses.replace(METHOD, target_distribution=MixtureDistribution()), batch()
    state, updates = synthetic_batches.init_state(METHOD, SPEC), [jax.jit(method.update) for method in (METHOD, mixed)]
    own, mixture = (update(state, data, KEY)[0].critic.out.weight for update in updates)
    assert np.abs(np.asarray(own) - np.asarray(mixture)).max() > 1e-4
    first_member = jax.tree.map(lambda x: jax.device_put(np.asarray(x)[:1].repeat(MEMBERS, 0)), state.target_critic)
    equal_targets = eqx.tree_at(lambda s: s.target_critic, state, first_member)
    own, mixture = (update(equal_targets, data, KEY)[0].critic.out.weight for update in updates)
    np.testing.assert_allclose(own, mixture, atol=1e-6)  # with equal members the mixture is the member


@pytest.mark.parametrize("exploration", [PerEpisode(), PerStep()])
def test_one_member_explores_and_the_mean_exploits(exploration):
    method = dataclasses.replace(METHOD, exploration=exploration, final_epsilon=0.0)
    state, rows = synthetic_batches.init_state(method, SPEC), 64

    @jax.jit
    def act(state, key):
        view = View(jnp.tile(jnp.array([0.3, -1.0, 2.0]), (rows, 1)), jnp.ones((rows, 4), bool))
        q_values = jax.vmap(lambda critic: critic.q_values(view.observation[0]))(state.critic)
        greedy = method.policy(state, Mode.EXPLOIT)
        greedy_action, _, _ = method.act(greedy, method.init_memory(greedy, rows), view, key)
        sampled = method.policy(state, Mode.SAMPLE)
        memory, explored = method.init_memory(sampled, rows), []
        for i in range(3):
            action, memory, _ = method.act(sampled, memory, view, jax.random.fold_in(key, i))
            explored.append(action)
        return q_values, greedy_action, explored

    q_values, action, explored = jax.tree.map(np.asarray, act(state, KEY))
    greedy_by_member = q_values.argmax(axis=1)
    assert set(action.tolist()) == {q_values.mean(axis=0).argmax()}
    assert len(set(greedy_by_member.tolist())) > 1, "the members must disagree"
    assert {x.item() for x in np.unique(explored)} == set(greedy_by_member.tolist())
    assert all((x == explored[0]).all() for x in explored) == isinstance(exploration, PerEpisode)


def test_invalid_settings_are_refused():
    with pytest.raises(UserError, match="cannot be split among 4 members"):
        jax.eval_shape(
            dataclasses.replace(METHOD, ensemble_size=4).update,
            synthetic_batches.init_state(METHOD, SPEC),
            batch(),
            KEY,
        )
    with pytest.raises(UserError, match="v_max > v_min"):
        jax.eval_shape(lambda: C51(v_min=1.0, v_max=1.0).init(SPEC, KEY))
    with pytest.raises(UserError, match="ensemble-c51 needs one discrete choice"):
        jax.eval_shape(lambda: EnsembleC51().init(Walk(Box((1,), -1.0, 1.0)).spec, KEY))

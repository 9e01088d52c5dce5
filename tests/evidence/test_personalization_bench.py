"""Bench of personalization: exact expected utilities are the mean rewards of sampled play, user by user."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import generate_responses
from thespis.core.contracts import Mode
from thespis.core.records import Batch
from thespis.envs.text.task import TextEnv
from thespis.evidence.benches import personalization as bench
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

METHOD = with_array_leaves(SFT(model="blank", num_layers=1, hidden_size=32, learning_rate=1e-2))
GUIDE = TextEnv(dataclasses.replace(bench.TASK, demonstrator_noise=0.0))
"""An environment whose demonstrator names the user's best item, so that a model says items, and not the same to all."""


@pytest.fixture(scope="module")
def run():
    """A model that was fitted to a few demonstrations of the best items, and one with other weights."""
    state = jax.jit(lambda key: METHOD.init(GUIDE.spec, key))(seed_key(3))
    sampler: Any = METHOD.feed.make_sampler(demonstration_dataset(GUIDE, 400).steps)
    update = jax.jit(lambda *args: METHOD.update(*args)[0])
    for i in range(60):
        steps, mask = sampler.sample(seed_key(i))
        state = update(state, Batch(steps, mask, (), np.array(i, "int32")), seed_key(i))
    states = jax.tree.map(lambda x: np.stack([x, 0.8 * np.asarray(x) if x.ndim > 1 else x]), state)
    name = f"{bench.__name__}:CHOICES"
    return types.SimpleNamespace(method=METHOD, states=states, config={"env": name}, env=bench.CHOICES)


@pytest.mark.long
def test_utilities_are_the_rewards_of_sampled_play(run):
    num_samples, task = 4, run.env.task
    utilities = bench.user_utilities(run, run.states)
    assert utilities.shape == (2, bench.NUM_USERS)
    width = run.env.spec.observation_space.max_length

    @jax.jit
    def play(state, key):
        users, prompts = jax.vmap(task.init)(jax.random.split(seed_key(0), bench.NUM_USERS))
        rows = jnp.repeat(jnp.arange(bench.NUM_USERS), num_samples)
        text = jnp.full((len(rows), width), -1).at[:, : prompts.shape[1]].set(prompts[rows])
        policy = run.method.policy(state, Mode.SAMPLE)
        responses = generate_responses(policy.model, policy.sampler, policy.dialogue_spec, text, key)
        steps = jax.vmap(lambda user, x: task.step(user, x, key)[1])(jax.tree.map(lambda x: x[rows], users), responses)
        return users.angle, steps.reward.reshape(-1, num_samples).mean(axis=1)

    for seed in range(2):
        angle, rewards = map(np.asarray, play(jax.tree.map(lambda x, i=seed: x[i], run.states), seed_key(7)))
        groups = [np.abs(angle) < 1, np.abs(angle) > 1.5]
        means = [utilities[seed][group].mean() for group in groups]
        np.testing.assert_allclose([rewards[group].mean() for group in groups], means, atol=0.06)
        assert abs(means[0] - means[1]) > 0.2, "the groups differ by more than chance"
        high, low = (
            utilities[seed] > np.quantile(utilities[seed], 0.7),
            utilities[seed] < np.quantile(utilities[seed], 0.3),
        )
        assert rewards[high].mean() - rewards[low].mean() > 0.3


def test_measures_are_the_mean_and_the_share_below_zero(run, monkeypatch):
    utilities = np.array([[0.5, -0.1, 0.2, 0.6], [-0.5, -0.1, 0.2, -0.6]])
    monkeypatch.setattr(bench, "user_utilities", lambda run, states: utilities)
    np.testing.assert_allclose(bench.expected_utility().compute(run), [0.3, -0.25])
    np.testing.assert_allclose(bench.poorly_served_users().compute(run), [0.25, 0.75])
    assert bench.expected_utility().larger_is_better and not bench.poorly_served_users().larger_is_better


def test_the_best_item_for_all_users_serves_a_fifth_of_them_poorly():
    """What can be reached without knowing the user, and with the user's best item: by the known utilities."""
    users, _ = jax.jit(jax.vmap(bench.TASK.init))(jax.random.split(seed_key(0), bench.NUM_USERS))
    utilities = np.cos(np.asarray(users.angle)[:, None] - bench.TASK.item_angles)
    best = utilities.mean(axis=0).argmax()
    assert best == 0 and utilities[:, best].mean() == pytest.approx(0.438, abs=0.01)
    assert (utilities[:, best] < 0).mean() == pytest.approx(0.22, abs=0.01)
    assert utilities.max(axis=1).mean() == pytest.approx(0.989, abs=0.002)

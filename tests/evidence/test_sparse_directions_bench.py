"""Bench of directions: exact expected returns are the mean rewards of sampled play from prompts, place by place."""

from __future__ import annotations

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import generate_responses
from thespis.core.contracts import Mode
from thespis.core.records import Batch
from thespis.evidence.benches import sparse_directions as bench
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

METHOD = with_array_leaves(SFT(model="blank", num_layers=1, hidden_size=32, learning_rate=1e-2))


@pytest.fixture(scope="module")
def run():
    """A model that was fitted to a few right responses, and one with other weights."""
    state = jax.jit(lambda key: METHOD.init(bench.WAYS.spec, key))(seed_key(3))
    sampler: Any = METHOD.feed.make_sampler(demonstration_dataset(bench.WAYS, 200).steps)
    update = jax.jit(lambda *args: METHOD.update(*args)[0])
    for i in range(60):
        steps, mask = sampler.sample(seed_key(i))
        state = update(state, Batch(steps, mask, (), np.array(i, "int32")), seed_key(i))
    states = jax.tree.map(lambda x: np.stack([x, 0.85 * np.asarray(x) if x.ndim > 1 else x]), state)
    return types.SimpleNamespace(method=METHOD, states=states, config={"env": bench.PROMPTS_ENV})


@pytest.mark.long
def test_expected_returns_are_the_mean_rewards_of_sampled_play(run):
    num_samples, task, prompts = 400, bench.TASK, jnp.asarray(bench.TASK.prompt_tokens)
    space: Any = bench.PROMPTS.spec.observation_space
    probabilities = np.exp(np.asarray(bench.way_log_probs(run, run.states)))
    assert probabilities.shape == (2, task.num_places)

    @jax.jit
    def play(state, key):
        places = jnp.repeat(jnp.arange(task.num_places), num_samples)
        text = jnp.full((len(places), space.max_length), -1)
        text = text.at[:, : prompts.shape[1]].set(prompts[places])
        policy = run.method.policy(state, Mode.SAMPLE)
        responses = generate_responses(policy.model, policy.sampler, policy.dialogue_spec, text, key)
        rewards = jax.vmap(lambda place, x: task.step(place, x, key)[1].reward)(places, responses)
        return rewards.reshape(-1, num_samples).mean(axis=1)

    for seed in range(2):
        rewards = np.asarray(play(jax.tree.map(lambda x, i=seed: x[i], run.states), seed_key(7)))
        np.testing.assert_allclose(rewards, probabilities[seed], atol=0.1)
    assert np.ptp(probabilities) > 0.2
    np.testing.assert_allclose(bench.expected_return().compute(run), probabilities.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(bench.unfound_share().compute(run), (probabilities < 0.5).mean(axis=1))

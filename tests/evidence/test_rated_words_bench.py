"""Bench of rated words: its exact probabilities are those of sampled responses, and its measures are those by hand."""

from __future__ import annotations

import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import generate_responses
from thespis.core.contracts import Mode
from thespis.evidence.benches import rated_words as bench
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key


@pytest.fixture(scope="module")
def run():
    """Two models with random weights, large ones so that their responses differ in probability."""
    method = SFT(model="blank", num_layers=1, hidden_size=32)

    def init(key):
        state = method.init(bench.UTILITIES.spec, key)
        return eqx.tree_at(lambda s: s.model, state, jax.tree.map(lambda x: 4 * x if x.ndim > 1 else x, state.model))

    states = jax.tree.map(lambda *x: jnp.stack(x), *[init(seed_key(i)) for i in (3, 4)])
    return types.SimpleNamespace(method=method, states=states)


@pytest.mark.long
def test_probabilities_are_those_of_sampled_responses_and_of_saying_no_word(run):
    num_samples, task = 4_000, bench.TASK
    probs = np.exp(np.asarray(bench.response_log_probs(run, run.states)))
    np.testing.assert_allclose(probs.sum(axis=2), 1.0, atol=1e-4)
    assert probs.shape == (2, 6, 17)
    policy = run.method.policy(jax.tree.map(lambda x: x[0], run.states), Mode.SAMPLE)
    width = bench.UTILITIES.spec.observation_space.max_length
    for prompt in (0, 5):
        text = np.full((num_samples, width), -1, "int32")
        text[:, : task.prompt_tokens.shape[1]] = task.prompt_tokens[prompt]
        responses = np.asarray(
            generate_responses(policy.model, policy.sampler, policy.dialogue_spec, jnp.asarray(text), seed_key(0))
        )
        words = [task.task_spec.encode(f"{word} <end>") for word in task.words]
        shares = np.array([(responses == word).all(axis=1).mean() for word in words])
        np.testing.assert_allclose(shares, probs[0, prompt, :-1], atol=0.03)
        assert 1 - shares.sum() == pytest.approx(probs[0, prompt, -1], abs=0.03)


@pytest.mark.long
def test_measures_by_hand(run, monkeypatch):
    """Each of the two models is compared with the other, as if it had been trained from it."""
    untrained = jax.tree.map(lambda x: x[::-1], run.states)
    monkeypatch.setattr(bench, "untrained_states", lambda run: untrained)
    probs = np.exp(np.asarray(bench.response_log_probs(run, run.states), "float64"))
    before = np.exp(np.asarray(bench.response_log_probs(run, untrained), "float64"))
    utilities = np.c_[bench.TASK.utilities, bench.TASK.utilities.min(axis=1) - 1]
    for seed in range(2):
        gaps, kls = [], []
        for p, q, u in zip(probs[seed], before[seed], utilities, strict=True):
            kls.append(sum(p * np.log(p / q)))
            best = bench.BETA * np.log(sum(q * np.exp(u / bench.BETA)))
            gaps.append(best - (sum(p * u) - bench.BETA * kls[-1]))
        assert bench.optimality_gap().compute(run)[seed] == pytest.approx(np.mean(gaps), rel=1e-3)
        assert bench.divergence().compute(run)[seed] == pytest.approx(np.mean(kls), rel=1e-3)
        expected = np.mean((probs[seed] * utilities).sum(axis=1))
        assert bench.expected_utility().compute(run)[seed] == pytest.approx(expected, rel=1e-3)
        assert bench.no_word_probability().compute(run)[seed] == pytest.approx(probs[seed, :, -1].mean(), rel=1e-3)


def test_offsets_change_no_preference_and_labels_are_noisy_utilities():
    np.testing.assert_array_equal(bench.OFFSETS.task.utilities, bench.UTILITIES.task.utilities)
    np.testing.assert_array_equal(bench.LABELS.task.utilities, bench.UTILITIES.task.utilities)
    assert bench.OFFSETS.task.offset_scale == 2 and bench.LABELS.task.reward_noise == 1

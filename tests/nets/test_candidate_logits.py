"""Candidate scoring: log-probabilities of candidate responses, against the decoder on every full sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_batches import quick_key

from thespis.nets.candidate_scoring import CandidateScorer
from thespis.nets.decoder import DecoderConfig, init_decoder

MODEL = jax.jit(init_decoder, static_argnums=0)(DecoderConfig(11, 32, 2, 2, 1, 16, 48), quick_key(0))
CANDIDATES = ((3, 2), (4, 5, 6, 2), (2,), (4, 2))
LENGTH = 9


def random_prompt(count: int) -> np.ndarray:
    tokens = np.random.default_rng(count).integers(0, 11, LENGTH)
    return np.where(np.arange(LENGTH) < count, tokens, -1).astype("int32")


@pytest.mark.long
@pytest.mark.parametrize(
    "count", [4, pytest.param(1, marks=pytest.mark.slow), pytest.param(LENGTH, marks=pytest.mark.slow)]
)
def test_log_probs_match_full_sequences(count):
    text = random_prompt(count)
    sequences = [np.array([*text[:count], *candidate]) for candidate in CANDIDATES]

    @jax.jit
    def both(model, text):
        scorer = CandidateScorer(model, CANDIDATES)
        features = [model(jnp.asarray(sequence), jnp.arange(len(sequence))) for sequence in sequences]
        prompt_feature = model(text[:count], jnp.arange(count))[-1]
        return (
            scorer.log_probs(text),
            [model.logits(x[count - 1 :]) for x in features],
            scorer.prompt_features(text),
            prompt_feature,
        )

    log_probs, all_logits, prompt_features, prompt_feature = both(MODEL, text)
    for index, candidate in enumerate(CANDIDATES):
        expected = 0.0
        for logits, token in zip(np.asarray(all_logits[index], "float64"), candidate, strict=False):
            expected += logits[token] - np.log(np.exp(logits).sum())
        assert float(np.asarray(log_probs)[index]) == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(prompt_features, prompt_feature, atol=1e-4)


@pytest.mark.long
def test_context_length_keeps_the_last_tokens():
    @jax.jit
    def evaluate(model, text, kept_tokens):
        truncated, full = CandidateScorer(model, CANDIDATES, context_length=4), CandidateScorer(model, CANDIDATES)
        return (truncated.log_probs(text), truncated.prompt_features(text)), (
            full.log_probs(kept_tokens),
            full.prompt_features(kept_tokens),
        )

    for count in (2, 4, 7):
        kept_tokens = np.full(LENGTH, -1, "int32")
        kept_tokens[: min(count, 4)] = random_prompt(count)[max(count - 4, 0) : count]
        for result, expected in zip(*evaluate(MODEL, random_prompt(count), kept_tokens), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.long
def test_gradients_match_full_sequences():
    text = random_prompt(5)

    def candidate_log_prob(model):
        return CandidateScorer(model, CANDIDATES).log_probs(jnp.asarray(text))[1]

    def sequence_log_prob(model):
        tokens = jnp.asarray([*text[:5], *CANDIDATES[1]])
        log_probs = jax.nn.log_softmax(model.logits(model(tokens, jnp.arange(9))))
        return sum(log_probs[4 + i, token] for i, token in enumerate(CANDIDATES[1]))

    both = jax.jit(lambda model: (jax.grad(candidate_log_prob)(model), jax.grad(sequence_log_prob)(model)))(MODEL)
    for result, expected in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-4)

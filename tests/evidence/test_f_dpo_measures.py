"""Measures of f-DPO: gaps, divergences and entropies of two policies on rated words, by hand."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evidence.benches.rated_words import BETA, response_utilities
from thespis.objectives import f_divergences
from thespis.papers.f_dpo import measures


def test_measures_by_hand(monkeypatch):
    rng = np.random.default_rng(0)
    before, after = rng.dirichlet(np.ones(17), size=(2, 2, 6))
    monkeypatch.setattr(measures, "untrained_states", lambda run: "before")
    monkeypatch.setattr(
        measures, "response_log_probs", lambda run, states: jnp.log({"before": before, "after": after}[states])
    )
    run = types.SimpleNamespace(states="after")
    entropies = -(after * np.log(after)).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(measures.response_entropy().compute(run), entropies, rtol=1e-4)
    forward_kl = (before * np.log(before / after)).sum(axis=2)
    measure = measures.f_divergence("forward KL", f_divergences.forward_kl_generator)
    np.testing.assert_allclose(measure.compute(run), forward_kl.mean(axis=1), rtol=1e-3)

    gaps = measures.FORWARD_KL_GAP.compute(run)
    utilities = np.asarray(response_utilities(), "float64")
    for seed in range(2):
        expected = []
        for q, p, r, kl in zip(before[seed], after[seed], utilities, forward_kl[seed], strict=True):
            low, high = r.max() + 1e-9, r.max() + 10
            for _ in range(100):  # the best policy is q beta / (multiplier - r), which sums to 1
                middle = (low + high) / 2
                low, high = (middle, high) if (q * BETA / (middle - r)).sum() > 1 else (low, middle)
            best = q * BETA / (low - r)
            expected.append(best @ r - BETA * (q @ np.log(q / best)) - (p @ r - BETA * kl))
        assert gaps[seed] == pytest.approx(np.mean(expected), rel=1e-3)
        assert measures.JENSEN_SHANNON_GAP.compute(run)[seed] > 0

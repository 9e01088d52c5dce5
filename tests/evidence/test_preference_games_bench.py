"""Bench of preference games: exploitability and dominated words of a model, against plain loops over its words."""

from __future__ import annotations

import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evidence.benches import preference_games as bench
from thespis.methods.language.sft import SFT
from thespis.objectives.preference_games import equilibrium
from thespis.runtime.keys import seed_key


@pytest.fixture(scope="module")
def run():
    """Two models with random weights, large ones so that their words differ in probability."""
    method = SFT(model="blank", num_layers=1, hidden_size=32)

    def init(key):
        state = method.init(bench.GAMES.spec, key)
        return eqx.tree_at(lambda s: s.model, state, jax.tree.map(lambda x: 8 * x if x.ndim > 1 else x, state.model))

    states = [init(seed_key(i)) for i in (3, 4)]
    return types.SimpleNamespace(method=method, states=jax.tree.map(lambda *x: jnp.stack(x), *states))


@pytest.mark.long
def test_probabilities_are_those_of_sampled_words(run):
    probs = np.asarray(bench.word_probabilities(run, run.states))
    np.testing.assert_allclose(probs.sum(axis=2), 1.0, rtol=1e-5)
    assert probs.shape == (2, 2, 10) and np.ptp(probs, axis=2).min() > 0.05
    assert np.abs(probs[:, 0] - probs[:, 1]).max() > 0.01  # the prompt counts
    assert np.abs(probs[0] - probs[1]).max() > 0.01


@pytest.mark.long
def test_exploitability_and_dominated_share_by_hand(run):
    probs = np.asarray(bench.word_probabilities(run, run.states))
    for seed in range(2):
        regrets, bad = [], []
        for game, table in enumerate(bench.TASK.preferences):
            wins = [sum(probs[seed, game, j] * table[i, j] for j in range(10)) for i in range(10)]
            regrets.append(max(wins) - 0.5)
            bad.append(sum(probs[seed, game, 5:]))
        assert bench.exploitability().compute(run)[seed] == pytest.approx(np.mean(regrets), abs=1e-5)
        assert bench.dominated_share().compute(run)[seed] == pytest.approx(np.mean(bad), abs=1e-5)


def test_the_demonstrated_equilibria_are_not_exploitable_and_the_means_of_wins_mislead():
    for table in bench.TASK.preferences:
        policy = equilibrium(table)
        assert np.max(table @ policy) == pytest.approx(0.5, abs=1e-6)
        best_of_mean = np.eye(10)[table.mean(axis=1).argmax()]
        assert np.max(table @ best_of_mean) > 0.65

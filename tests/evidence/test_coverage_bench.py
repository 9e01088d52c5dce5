"""Measures of the bench of coverage: random paths against NumPy, double counting of an agent that does not move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.evidence.benches.coverage import (
    ADDITIVE_ENVS,
    FIELD_ENV,
    HILLS_ENV,
    PATH_VALUE,
    double_counting,
    random_path_value,
)
from thespis.papers.gmah.envs import MOVES
from thespis.papers.subpo.envs import SLIPPERY_COVERAGE

SEEDS = [1_100, 1_101, 1_102]


class FixedAction(eqx.Module):
    """Policy that always takes the same action."""

    action: int = eqx.field(static=True)

    def policy(self, state, mode):
        return state

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        num_envs = len(jax.tree.leaves(view.observation)[0])
        return jnp.full(num_envs, self.action), memory, {}


def run_of(env: str, action: int = 0) -> Any:
    return SimpleNamespace(
        config={"env": env, "seeds": SEEDS}, method=FixedAction(action), states=np.arange(len(SEEDS)), path=env
    )


def test_random_paths_have_the_value_of_random_walks():
    """Also where the run's own environment pays every position alone."""
    weights, rng = np.asarray(SLIPPERY_COVERAGE.weights, float), np.random.default_rng(0)

    def walk_value():
        position, covered = np.zeros(2, int), np.zeros(weights.shape, bool)
        covered[:2, :2] = True
        start = weights[covered].sum()
        for _ in range(SLIPPERY_COVERAGE.horizon):
            position = np.clip(position + MOVES[rng.integers(len(MOVES))], 0, 7)
            covered[position[0] : position[0] + 2, position[1] : position[1] + 2] = True
        return weights[covered].sum() - start

    expected = np.mean([walk_value() for _ in range(4_000)])
    alone, additive = (random_path_value().compute(run_of(env)) for env in (HILLS_ENV, ADDITIVE_ENVS[HILLS_ENV]))
    assert alone.shape == (len(SEEDS),) and alone.mean() == pytest.approx(expected, rel=0.1)
    np.testing.assert_array_equal(alone, additive)


@pytest.mark.parametrize("env", [HILLS_ENV, FIELD_ENV])
def test_who_stays_counts_the_same_cells_again_and_again(env):
    """Nothing is gained, or little, by what is slipped to; who moves on down a column counts less of it twice."""
    stays, moves = (double_counting().compute(run_of(ADDITIVE_ENVS[env], action)) for action in (0, 4))
    values = [PATH_VALUE.compute(run_of(ADDITIVE_ENVS[env], action)) for action in (0, 4)]
    assert (stays > moves).all() and (stays > 0.5).all() and (values[0] < values[1]).all()
    np.testing.assert_allclose(PATH_VALUE.compute(run_of(env)), values[0], rtol=1e-5)

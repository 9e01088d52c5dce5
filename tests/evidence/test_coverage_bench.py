"""Measures of the bench of coverage, against walks in NumPy."""

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


def walk_values(next_action) -> tuple[float, float]:
    """Values of one walk on the hills: of the whole path, and of its positions one by one."""
    weights = np.asarray(SLIPPERY_COVERAGE.weights, float)
    position, covered, alone = np.zeros(2, int), np.zeros(weights.shape, bool), 0.0
    covered[:2, :2] = True
    start = weights[covered].sum()
    for _ in range(SLIPPERY_COVERAGE.horizon):
        position = np.clip(position + MOVES[next_action()], 0, 7)
        block = slice(position[0], position[0] + 2), slice(position[1], position[1] + 2)
        covered[block] = True
        alone += weights[block].sum()
    return weights[covered].sum() - start, alone


@pytest.mark.long
def test_random_paths_have_the_value_of_random_walks():
    """Also where the run's own environment pays every position alone."""
    rng = np.random.default_rng(0)
    expected = np.mean([walk_values(lambda: rng.integers(len(MOVES)))[0] for _ in range(1_500)])
    alone, additive = (random_path_value().compute(run_of(env)) for env in (HILLS_ENV, ADDITIVE_ENVS[HILLS_ENV]))
    assert alone.shape == (len(SEEDS),) and alone.mean() == pytest.approx(expected, rel=0.1)
    np.testing.assert_array_equal(alone, additive)


@pytest.mark.long
@pytest.mark.parametrize("action", [0, 4])
def test_double_counting_is_what_a_path_lacks_of_its_positions(action):
    """Of an agent that stays, but for slipping, and of one that moves on down a column."""
    rng = np.random.default_rng(1)

    def next_action():
        return rng.integers(len(MOVES)) if rng.random() < SLIPPERY_COVERAGE.slip_prob else action

    path, alone = np.mean([walk_values(next_action) for _ in range(1_000)], axis=0)
    share = double_counting().compute(run_of(ADDITIVE_ENVS[HILLS_ENV], action))
    assert share.mean() == pytest.approx(1 - path / alone, abs=0.02)
    assert PATH_VALUE.compute(run_of(ADDITIVE_ENVS[HILLS_ENV], action)).mean() == pytest.approx(path, rel=0.1, abs=0.05)


@pytest.mark.long
@pytest.mark.parametrize("env", [HILLS_ENV, FIELD_ENV])
def test_values_of_paths_do_not_depend_on_what_the_environment_pays(env):
    run, additive = run_of(env, 4), run_of(ADDITIVE_ENVS[env], 4)
    np.testing.assert_allclose(PATH_VALUE.compute(run), PATH_VALUE.compute(additive), rtol=1e-5)
    np.testing.assert_allclose(double_counting().compute(run), double_counting().compute(additive), rtol=1e-5)

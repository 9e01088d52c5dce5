"""SubPO: gains as policy-gradient weights, against the exact gradient of the expected value over all paths."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CHOICE

from thespis.core.laws.random_samples import random_transitions
from thespis.data.feeds import Episodes, Rollouts
from thespis.methods.online.a2c import A2C
from thespis.papers.subpo.method import GainSoFar, GainToGo, SubPO, TotalGain
from thespis.runtime.keys import seed_key

COVERED = [{0, 1}, {1, 2}, {2, 3, 4}]
ITEM_VALUES = [1.0, 0.5, 2.0, 0.3, 0.2]
"""Each place covers items; a path's value is that of all items it covers. From each place one may go to any."""
PATHS = np.array(list(itertools.product(range(3), repeat=3)))


def path_value(path):
    return sum(ITEM_VALUES[i] for i in set().union(*(COVERED[place] for place in path)))


def log_probs_of(logits, path):
    """Log-probability of each step, which depends on the time and the current place, at first place 0."""
    places = jnp.concatenate([jnp.zeros(1, "int32"), path[:-1]])
    return jax.nn.log_softmax(logits)[jnp.arange(3), places, path]


def gradient(gains, logits):
    """The expected gradient estimate over all paths of three steps, with a baseline that depends on time only."""
    gain = np.array(
        [[path_value(path[: i + 1]) - (path_value(path[:i]) if i else 0.0) for i in range(3)] for path in PATHS]
    )
    to_go = gain[:, ::-1].cumsum(1)[:, ::-1] - np.array([2.0, 1.0, 0.5])
    alive = jnp.ones((3, len(PATHS)), bool)
    weights = gains(jnp.array(gain.T, "float32"), jnp.array(to_go.T, "float32"), alive).T
    path_probs = jnp.exp(jax.vmap(log_probs_of, (None, 0))(logits, jnp.array(PATHS)).sum(axis=1))

    def surrogate(other_logits):
        scores = jax.vmap(log_probs_of, (None, 0))(other_logits, jnp.array(PATHS))
        return jnp.sum(path_probs * jnp.sum(scores * weights, axis=1))

    return jax.grad(surrogate)(logits)


@pytest.mark.parametrize(("gains", "unbiased"), [(GainToGo(), True), (TotalGain(), True), (GainSoFar(), False)])
def test_gains_to_go_give_the_gradient_of_the_expected_value(gains, unbiased):
    logits = jax.random.normal(seed_key(1), (3, 3, 3))
    path_values = jnp.array([path_value(path) for path in PATHS])

    def expected(logits):
        return jnp.sum(jnp.exp(jax.vmap(log_probs_of, (None, 0))(logits, jnp.array(PATHS)).sum(axis=1)) * path_values)

    error = float(jnp.abs(gradient(gains, logits) - jax.grad(expected)(logits)).max())
    assert error < 1e-5 if unbiased else error > 0.05, error


def test_gains_after_the_end_do_not_count():
    gain, alive = jnp.array([[1.0, 2.0, 4.0]]).T, jnp.array([[True, True, False]]).T
    np.testing.assert_array_equal(GainSoFar()(gain, gain, alive)[:, 0], [1.0, 3.0, 3.0])
    np.testing.assert_array_equal(TotalGain()(gain, jnp.zeros((3, 1)), alive)[:2, 0], [0.0, 1.0])


@pytest.mark.slow
def test_equal_length_episodes_reduce_to_undiscounted_a2c():
    settings = {"hidden_sizes": (4,), "learning_rate": 0.01, "discount": 1.0, "max_grad_norm": 1e9, "optimizer": "adam"}
    subpo = SubPO(hidden_sizes=(4,), feed=Episodes(4, num_envs=3))
    a2c = A2C(**settings, feed=Rollouts(4, num_envs=3))
    state = jax.jit(lambda key: subpo.init(CHOICE.spec, key))(seed_key(0))
    steps = random_transitions(CHOICE.spec, np.random.default_rng(0), 4, 3)
    first, last = (jnp.zeros((4, 3), bool).at[i].set(True) for i in (0, -1))
    steps = dataclasses.replace(steps, is_first=first, terminated=last, truncated=jnp.zeros((4, 3), bool))
    batch = jax.jit(lambda state: synthetic_batches.collect_batch(a2c, state, steps, seed_key(2)))(state)
    assert batch.mask.all()
    ours, theirs = (jax.jit(method.update)(state, batch, seed_key(3))[0] for method in (subpo, a2c))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours, theirs)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), ours.network.policy_head, state.network.policy_head)
    assert max(jax.tree.leaves(moved)) > 1e-3

"""Attention pooling over the observations of an episode (CLAM): against weighted means in numpy."""

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.spaces import MultiDiscrete
from thespis.papers.clam.attention_pooling import AttentionPooling, PoolingState

NETWORK = AttentionPooling(MultiDiscrete((4, 4)), (8,), 3, jax.random.key(0))
OBS = jax.random.randint(jax.random.key(1), (6, 2, 2), 0, 4)
FIRST = jnp.zeros((6, 2), bool).at[0].set(True).at[3, 1].set(True)


def expected_mean(steps):
    """The weighted mean over some observations of one row, each concatenated with the one before it."""
    total, weights = 0.0, 0.0
    for previous, current in steps:
        pair = np.concatenate(
            [np.eye(4)[current].ravel(), np.zeros(8) if previous is None else np.eye(4)[previous].ravel()]
        )
        layer = NETWORK.mlp.layers[0]
        hidden = np.tanh(pair @ layer.weight + layer.bias)
        score = hidden @ NETWORK.score
        weight = np.exp(5 * np.tanh(score / 5))
        total, weights = total + weight * np.tanh(hidden @ NETWORK.value.weight + NETWORK.value.bias), weights + weight
    return total / weights


def test_unroll_gives_the_weighted_mean_of_the_episode_so_far():
    result = NETWORK.unroll(NETWORK.init_memory(2), OBS, FIRST).mean
    obs = np.asarray(OBS)
    for row, starts in ((0, [0] * 6), (1, [0, 0, 0, 3, 3, 3])):
        for time, start in enumerate(starts):
            pairs = [(None if t == start else obs[t - 1, row], obs[t, row]) for t in range(start, time + 1)]
            np.testing.assert_allclose(result[time, row], expected_mean(pairs), atol=1e-5)


def test_stepping_equals_unrolling():
    state, unrolled = NETWORK.init_memory(2), NETWORK.unroll(NETWORK.init_memory(2), OBS, FIRST)
    for time in range(6):
        state = jax.tree.map(
            lambda new, old, t=time: jnp.where(FIRST[t].reshape(2, *[1] * (old.ndim - 1)), new, old),
            NETWORK.init_memory(2),
            state,
        )
        state = jax.vmap(NETWORK)(state, OBS[time])
        for leaf, expected in zip(jax.tree.leaves(state), jax.tree.leaves(unrolled), strict=True):
            np.testing.assert_allclose(leaf, expected[time], atol=1e-5)


def test_pool_uses_the_selected_steps_only():
    steps = NETWORK.step_features(NETWORK.init_memory(2).last_features, OBS, FIRST)
    by_row = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), steps)
    selected = jnp.array([[True, False, True, False, False, True], [False] * 6])
    result, obs = by_row.pool(selected), np.asarray(OBS)
    np.testing.assert_allclose(
        result[0], expected_mean([(None if t == 0 else obs[t - 1, 0], obs[t, 0]) for t in (0, 2, 5)]), atol=1e-5
    )
    assert (
        result[1].tolist() == [0.0] * 3
        and PoolingState(jnp.zeros(1), jnp.zeros(3), jnp.zeros(())).mean.tolist() == [0.0] * 3
    )

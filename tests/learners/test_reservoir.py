"""Reservoir buffer of NFSP: a uniform sample of all added items, against expected frequencies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.data.reservoir import ReservoirBuffer
from thespis.runtime.keys import seed_key

CAPACITY, ROWS, ROUNDS = 10, 7, 8


def fill_reservoir(key, mask):
    """A reservoir after adding the numbers 0, 1, 2 ... in rounds, where ``mask [round, row]`` is set."""
    buffer = ReservoirBuffer(jnp.full(CAPACITY, -1), jnp.zeros((), "int32"))
    numbers = jnp.arange(ROUNDS * ROWS).reshape(ROUNDS, ROWS)
    for i in range(ROUNDS):
        buffer = buffer.add(numbers[i], mask[i], jax.random.fold_in(key, i))
    return buffer


def test_every_item_is_kept_with_equal_probability():
    mask = jnp.ones((ROUNDS, ROWS), bool).at[:, 2].set(False).at[3].set(False)
    buffer = jax.jit(jax.vmap(lambda key: fill_reservoir(key, mask)))(jax.random.split(seed_key(1), 20_000))
    count = int(mask.sum())
    assert (np.asarray(buffer.num_seen) == count).all()
    items = np.asarray(buffer.items)
    assert all(len(set(row)) == CAPACITY for row in items[:200])  # no duplicates, no empty slot
    frequencies = np.bincount(items.ravel(), minlength=ROUNDS * ROWS) / 20_000
    np.testing.assert_array_equal(frequencies[~np.asarray(mask).ravel()], 0)
    np.testing.assert_allclose(frequencies[np.asarray(mask).ravel()], CAPACITY / count, atol=4 * np.sqrt(0.2 / 20_000))


def test_first_items_are_all_kept_and_sampled_uniformly():
    buffer = fill_reservoir(seed_key(0), jnp.zeros((ROUNDS, ROWS), bool).at[0, 1:5].set(True))
    np.testing.assert_array_equal(buffer.items[:4], [1, 2, 3, 4])
    counts = np.bincount(np.asarray(buffer.sample(seed_key(2), 8_000)), minlength=6)
    np.testing.assert_allclose(counts, [0, 2000, 2000, 2000, 2000, 0], atol=160)
    empty = ReservoirBuffer(jnp.full(CAPACITY, -1), jnp.zeros((), "int32"))
    np.testing.assert_array_equal(empty.sample(seed_key(2), 3), -1)

"""A reservoir holds a fair sample of all that was offered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.keys import key_of
from thespis.learners.reservoir import Reservoir

CAPACITY, ROWS, ROUNDS = 10, 7, 8


def filled(key, wanted):
    """The numbers 0, 1, 2 ... offered in rounds; ``wanted [round, row]``."""
    store = Reservoir(jnp.full(CAPACITY, -1), jnp.zeros((), "int32"))
    numbers = jnp.arange(ROUNDS * ROWS).reshape(ROUNDS, ROWS)
    for i in range(ROUNDS):
        store = store.add(numbers[i], wanted[i], jax.random.fold_in(key, i))
    return store


def test_every_item_is_as_likely_as_any_other():
    wanted = jnp.ones((ROUNDS, ROWS), bool).at[:, 2].set(False).at[3].set(False)
    store = jax.jit(jax.vmap(lambda key: filled(key, wanted)))(jax.random.split(key_of(1), 20_000))
    count = int(wanted.sum())
    assert (np.asarray(store.seen) == count).all()
    held = np.asarray(store.items)
    assert all(len(set(row)) == CAPACITY for row in held[:200])  # nothing twice, no place left empty
    share = np.bincount(held.ravel(), minlength=ROUNDS * ROWS) / 20_000
    np.testing.assert_array_equal(share[~np.asarray(wanted).ravel()], 0)
    np.testing.assert_allclose(share[np.asarray(wanted).ravel()], CAPACITY / count, atol=4 * np.sqrt(0.2 / 20_000))


def test_the_first_items_are_all_there_and_drawn_alike():
    store = filled(key_of(0), jnp.zeros((ROUNDS, ROWS), bool).at[0, 1:5].set(True))
    np.testing.assert_array_equal(store.items[:4], [1, 2, 3, 4])
    drawn = np.bincount(np.asarray(store.sample(key_of(2), 8_000)), minlength=6)
    np.testing.assert_allclose(drawn, [0, 2000, 2000, 2000, 2000, 0], atol=160)
    empty = Reservoir(jnp.full(CAPACITY, -1), jnp.zeros((), "int32"))
    np.testing.assert_array_equal(empty.sample(key_of(2), 3), -1)

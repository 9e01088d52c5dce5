"""How the tests of this room play: random legal actions in the world's units, and what came of them."""

import functools

import jax
import numpy as np

from thespis.core.spaces import random_action, to_world


def actions(spec, n, tick, legal=None):
    """Random world actions of ``n`` worlds."""
    return jax.tree.map(np.asarray, _draw(spec.action, n, tick, legal))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw(space, n, tick, legal):
    keys = jax.random.split(jax.random.key(tick), n)
    return to_world(space, jax.vmap(lambda key, mask: random_action(space, key, mask))(keys, legal))


def play(worlds, ticks, first, start=0):
    """Steps ``worlds`` on; ``[(view before, step, view after), ...]``."""
    told, view = [], first
    for tick in range(start, start + ticks):
        step, after = worlds.step(actions(worlds.spec, worlds.n, tick, view.legal))
        told.append((view, step, after))
        view = after
    return told


def equal(one, other):
    """Whether two trees hold the same bits."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)

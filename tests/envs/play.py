"""How the tests of this room play: random legal actions in the world's units, and what came of them."""

import functools

import jax
import numpy as np

from thespis.core.agents import per_group
from thespis.core.spaces import random_action, to_world


def actions(spec, n, tick, legal=None):
    """Random world actions of ``n`` worlds."""
    return jax.tree.map(np.asarray, _draw(spec.action, spec.groups, n, tick, legal))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _draw(space, groups, n, tick, legal):
    def draw(part, axes, mask=None):
        keys = jax.random.split(jax.random.key(tick), (n, *axes))
        one = lambda key, mask: random_action(part, key, mask)  # noqa: E731
        return (jax.vmap(jax.vmap(one)) if axes else jax.vmap(one))(keys, mask)

    return to_world(space, per_group(groups, space, draw, legal))


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

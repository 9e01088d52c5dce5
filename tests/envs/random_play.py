"""Helpers of the tests of environments: random legal actions in environment units, and the transitions they lead to."""

import functools

import jax
import numpy as np

from thespis.core.spaces import map_groups, random_action, unscale_action


def random_actions(spec, n, tick, legal=None):
    """Random legal actions for ``n`` environments, in environment units."""
    return jax.tree.map(np.asarray, _sample(spec.action_space, spec.groups, n, tick, legal))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sample(space, groups, n, tick, legal):
    def sample_part(part, axes, mask=None):
        keys = jax.random.split(jax.random.key(tick), (n, *axes))
        sample = lambda key, mask: random_action(part, key, mask)  # noqa: E731
        return (jax.vmap(jax.vmap(sample)) if axes else jax.vmap(sample))(keys, mask)

    return unscale_action(space, map_groups(groups, space, sample_part, legal))


def play(vector_env, ticks, first_view, start=0):
    """Steps ``vector_env`` with random actions; returns ``[(view before, step, view after), ...]``."""
    transitions, view = [], first_view
    for tick in range(start, start + ticks):
        step, after = vector_env.step(random_actions(vector_env.spec, vector_env.num_envs, tick, view.action_mask))
        transitions.append((view, step, after))
        view = after
    return transitions


def equal(left, right):
    """Whether two trees are equal: dtypes and every bit."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)

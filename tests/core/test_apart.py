"""Seeds that lie apart: a function that keeps its loops where one seed is alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.apart import lone


def _doubled(x, limit):
    """How often ``x`` doubles before it passes the limit, and what it is then."""
    return jax.lax.while_loop(lambda s: s[1] < limit, lambda s: (s[0] + 1, 2 * s[1]), (0, x))


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_a_lone_function_is_what_vmap_makes_of_it(seeds, axes):
    grid = {0: jnp.arange(1.0, seeds + 1), None: jnp.array(2.0)}
    x, limit = grid[axes[0]], 10 * grid[axes[1]]
    expected = jax.vmap(_doubled, axes)(x, limit)
    found = jax.jit(jax.vmap(lone(_doubled), axes))(x, limit)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_loop_of_one_seed_copies_nothing():
    def copies(count):
        program = jax.jit(jax.vmap(lone(_doubled))).lower(jnp.ones(count), 9 * jnp.ones(count))
        return program.as_text().count("stablehlo.select")

    assert copies(1) == 0
    assert copies(3) > 0


@pytest.mark.parametrize("seeds", [1, 3])
def test_constants_of_a_traced_program_reach_it_as_arrays(seeds):
    """JAX hands a rule the literals of the program that is batched as numbers."""
    seen = []

    def noted(x, start):
        seen.append(start)
        return x + start

    program = jax.jit(lambda x: lone(noted)(x, jnp.array(3)))
    np.testing.assert_array_equal(jax.vmap(program)(jnp.arange(seeds)), jnp.arange(seeds) + 3)
    assert all(isinstance(start, jax.Array) for start in seen)

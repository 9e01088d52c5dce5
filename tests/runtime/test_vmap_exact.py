"""Calls under ``vmap``: same results, without batched loops for a single seed, and one of two branches alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.runtime.vmap_exact import call_either, skip_unit_vmap


def _double_until(x, limit):
    """Double ``x`` until it reaches the limit; returns the number of steps and the result."""
    return jax.lax.while_loop(lambda s: s[1] < limit, lambda s: (s[0] + 1, 2 * s[1]), (0, x))


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_results_equal_vmap(seeds, axes):
    grid = {0: jnp.arange(1.0, seeds + 1), None: jnp.array(2.0)}
    x, limit = grid[axes[0]], 10 * grid[axes[1]]
    expected = jax.vmap(_double_until, axes)(x, limit)
    results = jax.jit(jax.vmap(skip_unit_vmap(_double_until), axes))(x, limit)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, reference)


def test_loop_of_a_single_seed_copies_nothing():
    def copies(count):
        program = jax.jit(jax.vmap(skip_unit_vmap(_double_until))).lower(jnp.ones(count), 9 * jnp.ones(count))
        return program.as_text().count("stablehlo.select")

    assert copies(1) == 0
    assert copies(3) > 0


@pytest.mark.parametrize("seeds", [1, 3])
def test_constants_of_a_traced_program_are_arrays(seeds):
    """JAX passes literals of a batched program to the rule as Python numbers."""
    starts = []

    def record(x, start):
        starts.append(start)
        return x + start

    program = jax.jit(lambda x: skip_unit_vmap(record)(x, jnp.array(3)))
    np.testing.assert_array_equal(jax.vmap(program)(jnp.arange(seeds)), jnp.arange(seeds) + 3)
    assert all(isinstance(start, jax.Array) for start in starts)


@pytest.mark.parametrize("conditions", [[True], [False], [True, False, True]])
def test_either_of_two_functions_is_called_for_each_seed(conditions):
    """A single seed computes one of them, even where its condition is mapped; the other arguments may be shared."""
    calls = []

    def recorded(name, result):
        def function(x, shared):
            jax.debug.callback(lambda: calls.append(name))
            return {"result": result(x, shared), "x": x}

        return function

    call = call_either(recorded("sum", lambda x, shared: x + shared), recorded("product", lambda x, shared: x * shared))
    x, condition = jnp.arange(2.0, 2.0 + len(conditions)), jnp.array(conditions)
    results = jax.block_until_ready(jax.jit(jax.vmap(call, (0, 0, None)))(condition, x, jnp.array(10.0)))
    np.testing.assert_array_equal(results["result"], np.where(conditions, x + 10, x * 10))
    np.testing.assert_array_equal(results["x"], x)
    jax.effects_barrier()
    assert set(calls) == ({"sum", "product"} if len(conditions) > 1 else {"sum" if conditions[0] else "product"})

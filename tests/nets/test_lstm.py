"""LSTM: steps and gradients against Equinox, and a sum of two products that has the same bits in all programs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from thespis.nets.lstm import LSTM
from thespis.nets.recurrent import round_product

CORE = LSTM(5)
CELL = CORE.build(3, jax.random.key(0))
INPUTS = jax.random.normal(jax.random.key(1), (7, 3))


def final_state(step, weight):
    """The memory after all inputs, with other recurrent weights."""
    cell = eqx.tree_at(lambda c: c.weight_hh, CELL, weight)
    memory = (jnp.zeros(5), jnp.zeros(5))
    for x in INPUTS:
        memory = step(cell, x, memory)
    return jnp.stack(memory)


def test_states_and_gradients_are_those_of_equinox():
    def ours(cell, x, memory):
        _, memory = CORE.step(cell, CORE.project(cell, x), memory)
        return memory

    def theirs(cell, x, memory):
        return cell(x, memory)

    for compute in (final_state, jax.jacobian(final_state, argnums=1)):
        np.testing.assert_allclose(compute(ours, CELL.weight_hh), compute(theirs, CELL.weight_hh), atol=1e-6)


def test_a_rounded_product_keeps_its_value_and_its_gradient():
    x = jnp.array([-3e38, -1.5, 0.0, 3e38])
    np.testing.assert_array_equal(round_product(x), x)
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: 2 * round_product(x)))(x), np.full(4, 2.0))
    program = jax.jit(round_product).lower(x).compile().as_text()
    assert program and "clamp" in program  # the compiler has not removed it

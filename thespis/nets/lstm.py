r"""Long short-term memory: the recurrent core with a cell and gates for what enters, stays in and leaves it.

.. math:: c_t = f_t \odot c_{t-1} + i_t \odot g_t, \quad h_t = o_t \odot \tanh(c_t)

Source: Hochreiter and Schmidhuber, 1997; forget gate: Gers et al., 2000.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.nets.recurrent import RecurrentCore, round_product

LSTMMemory = tuple[Float[Array, "*row hidden_size"], Float[Array, "*row hidden_size"]]
"""Outputs and cells."""


@dataclasses.dataclass(frozen=True)
class LSTM(RecurrentCore):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as a setting for memory."""

    hidden_size: int = 64
    """Number of units."""
    forget_bias: float = 0.0
    """Added to the initial biases of the forget gates: with 1, a cell keeps 73% of its value in one step."""

    def build(self, in_size: int, key: Key[Array, ""]) -> eqx.nn.LSTMCell:
        """The cell with fresh parameters."""
        cell = eqx.nn.LSTMCell(in_size, self.hidden_size, key=key)
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        assert cell.bias is not None
        return eqx.tree_at(lambda c: c.bias, cell, cell.bias.at[forget].add(self.forget_bias))

    def init_memory(self, cell: eqx.nn.LSTMCell, n: int) -> LSTMMemory:
        """Memory of ``n`` fresh episodes."""
        return jnp.zeros((n, self.hidden_size)), jnp.zeros((n, self.hidden_size))

    def project(self, cell: eqx.nn.LSTMCell, x: Float[Array, " in"]) -> Float[Array, " gates"]:
        """The input's part of the gates."""
        assert cell.bias is not None
        return cell.weight_ih @ x + cell.bias

    def step(
        self, cell: eqx.nn.LSTMCell, projected: Float[Array, " gates"], memory: LSTMMemory
    ) -> tuple[Float[Array, " hidden_size"], LSTMMemory]:
        """Features of one input, and the memory after it."""
        output, state = memory
        enters, stays, candidate, leaves = jnp.split(projected + cell.weight_hh @ output, 4)
        state = round_product(jax.nn.sigmoid(stays) * state) + jax.nn.sigmoid(enters) * jnp.tanh(candidate)
        output = jax.nn.sigmoid(leaves) * jnp.tanh(state)
        return output, (output, state)

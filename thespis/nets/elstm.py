r"""Element-wise LSTM: a recurrent core for which real-time recurrent learning (RTRL) is exact and cheap.

.. math:: z_t = \tanh(Z x_t + w^z \odot c_{t-1} + b^z), \quad f_t = \sigma(F x_t + w^f \odot c_{t-1} + b^f)
.. math:: c_t = f_t \odot c_{t-1} + (1 - f_t) \odot z_t, \quad h_t = \sigma(O [x_t, c_t] + b^o) \odot c_t

A unit's cell depends on its own past alone, so its derivative needs one number for each weight: the sensitivity
:math:`S_t = \partial c_t / \partial \theta`, carried forward as

.. math:: S_t = \frac{\partial c_t}{\partial c_{t-1}} \odot S_{t-1} + \frac{\partial c_t}{\partial \theta}.

A rollout that is trained on starts at :math:`c_0 + S_0 (\theta - \theta_{stop})`, whose second term is zero but has a
gradient: plain backpropagation through the rollout then gives the gradient through all of the episode for the core's
own weights. Layers before the core get gradients through the rollout alone.

Source: Irie, Gopalakrishnan and Schmidhuber, 2023; the cell, the initialisation and which weights use RTRL are those of
the authors' code (``QuasiLSTM`` there), of which nothing is copied. As in theirs, sensitivities are those under the
weights that acted, and are not recomputed when the weights change. Differs from theirs: the output gate's bias is
initially 0.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.nets.recurrent import RecurrentCore, round_product


class ELSTMState(eqx.Module):
    """Memory of an :class:`ELSTMCell`; any leading axes.

    ``sensitivity`` is the derivative of each cell with respect to each weight of its candidate and of its forget gate;
    ``None`` where it is not carried.
    """

    cell: Float[Array, "*row size"]
    sensitivity: Float[Array, "*row 2 size weights"] | None = None


class ELSTMCell(eqx.Module):
    """Element-wise LSTM cell with its parameters: ``features, memory = cell(x, memory)``.

    ``gates`` are the weights of candidates and forget gates. A unit's weights are a row: one for each input, one for
    the unit's own cell, and the bias.
    """

    gates: Float[Array, "2 size weights"]
    output_gate: Linear
    use_rtrl: bool = eqx.field(static=True)

    def __init__(self, in_size: int, hidden_size: int, forget_bias: float, use_rtrl: bool, key: Key[Array, ""]):
        gates_key, output_key = jax.random.split(key)
        gates = 0.1 * jax.random.normal(gates_key, (2, hidden_size, in_size + 2))
        self.gates = gates.at[1, :, -1].add(forget_bias)
        self.output_gate = Linear(in_size + hidden_size, hidden_size, uniform_fan_in, output_key)
        self.use_rtrl = use_rtrl

    @property
    def hidden_size(self) -> int:
        """Number of recurrent units in the cell."""
        return self.gates.shape[1]

    def init_memory(self, n: int) -> ELSTMState:
        """Memory of ``n`` fresh episodes."""
        sensitivity = jnp.zeros((n, *self.gates.shape)) if self.use_rtrl else None
        return ELSTMState(jnp.zeros((n, self.hidden_size)), sensitivity)

    def resume_memory(self, memory: ELSTMState) -> ELSTMState:
        """The initial memory of a rollout that is trained on: the same cells, with the gradient of their past.

        It has no sensitivities, since gradients flow by themselves within the rollout.
        """
        if memory.sensitivity is None:
            return memory
        zero = self.gates - jax.lax.stop_gradient(self.gates)
        return ELSTMState(memory.cell + jnp.sum(memory.sensitivity * zero, axis=(-3, -1)))

    def __call__(self, x: Float[Array, " in"], memory: ELSTMState) -> tuple[Float[Array, " size"], ELSTMState]:
        """Features of one input, and the memory after it."""
        last_cell = memory.cell
        candidate, forget = self.gates[..., :-2] @ x + self.gates[..., -2] * last_cell + self.gates[..., -1]
        candidate, forget = jnp.tanh(candidate), jax.nn.sigmoid(forget)
        cell = round_product(forget * last_cell) + (1 - forget) * candidate
        sensitivity = memory.sensitivity
        if sensitivity is not None:
            sensitivity = jax.lax.stop_gradient(self._update_sensitivity(sensitivity, x, last_cell, candidate, forget))
        features = jax.nn.sigmoid(self.output_gate(jnp.concatenate([x, cell]))) * cell
        return features, ELSTMState(cell, sensitivity)

    def _update_sensitivity(
        self,
        sensitivity: Float[Array, "2 size weights"],
        x: Float[Array, " in"],
        cell: Float[Array, " size"],
        candidate: Float[Array, " size"],
        forget: Float[Array, " size"],
    ) -> Float[Array, "2 size weights"]:
        """Sensitivities after one step."""
        d_candidate = (1 - forget) * (1 - candidate**2)
        d_forget = (cell - candidate) * forget * (1 - forget)
        d_gates = jnp.stack([d_candidate, d_forget])
        d_cell = forget + jnp.sum(d_gates * self.gates[..., -2], axis=0)
        inputs = jnp.broadcast_to(x, (self.hidden_size, len(x)))
        gate_inputs = jnp.concatenate([inputs, cell[:, None], jnp.ones((self.hidden_size, 1))], axis=1)
        return round_product(d_cell[:, None] * sensitivity) + d_gates[..., None] * gate_inputs


@dataclasses.dataclass(frozen=True)
class ELSTM(RecurrentCore):
    """Element-wise LSTM (Irie et al., 2023), as a setting for memory."""

    hidden_size: int = 64
    """Number of units."""
    use_rtrl: bool = True
    """Whether the memory carries sensitivities: gradients then reach back to the start of an episode, however short the
    rollouts of on-policy methods. Without, they end where a rollout starts.
    """
    forget_bias: float = 0.0
    """Added to the initial biases of the forget gates: with 3, a cell keeps 95% of its value in one step."""

    def build(self, in_size: int, key: Key[Array, ""]) -> ELSTMCell:
        """The cell with fresh parameters."""
        return ELSTMCell(in_size, self.hidden_size, self.forget_bias, self.use_rtrl, key)

    def init_memory(self, cell: ELSTMCell, n: int) -> ELSTMState:
        """Memory of ``n`` fresh episodes."""
        return cell.init_memory(n)

    def step(
        self, cell: ELSTMCell, x: Float[Array, " in"], memory: ELSTMState
    ) -> tuple[Float[Array, " size"], ELSTMState]:
        """Features of one input, and the memory after it."""
        return cell(x, memory)

    def resume_memory(self, cell: ELSTMCell, memory: ELSTMState) -> ELSTMState:
        """The initial memory of a rollout that is trained on: the same cells, with the gradient of their past."""
        return cell.resume_memory(memory)

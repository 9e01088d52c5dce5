r"""A recurrent core whose memory is element-wise, so that real-time recurrent learning is exact and cheap.

.. math:: z_t = \tanh(Z x_t + w^z \odot c_{t-1} + b^z), \quad f_t = \sigma(F x_t + w^f \odot c_{t-1} + b^f)
.. math:: c_t = f_t \odot c_{t-1} + (1 - f_t) \odot z_t, \quad h_t = \sigma(O [x_t, c_t] + b^o) \odot c_t

A unit's cell depends on its own past alone, so what it would have been with other weights is known from one number for
each weight: the sensitivity :math:`S_t = \partial c_t / \partial \theta`, carried forward as

.. math:: S_t = \frac{\partial c_t}{\partial c_{t-1}} \odot S_{t-1} + \frac{\partial c_t}{\partial \theta}.

A stretch that is learnt from begins at :math:`c_0 + S_0 (\theta - \theta_{stop})`, whose second term is zero but has a
gradient: plain backpropagation through the stretch then gives the gradient through all of the episode, as far as the
core's own weights go. What stands before the core learns through the stretch alone.

Source: Irie, Gopalakrishnan and Schmidhuber, 2023; cell, start of the weights and what learns how are those of the
authors' code (``QuasiLSTM`` there), of which nothing is copied. Like theirs, sensitivities are those under the weights
that acted, and are not worked out again when the weights change. Differs: the output gate's bias begins at 0.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.nets.mlp import Linear, uniform_fan_in


class Cells(eqx.Module):
    """The memory of an :class:`ELSTMCell`; any leading axes.

    ``sensitivity`` is what each cell changes by with each weight of its candidate and of its forget gate; ``None``
    where it is not carried.
    """

    cell: Float[Array, "*row size"]
    sensitivity: Float[Array, "*row 2 size weights"] | None = None


class ELSTMCell(eqx.Module):
    """The cell with its parameters: ``features, memory = cell(x, memory)``.

    ``gates`` are the weights of candidates and forget gates, those of one unit in a row: for each input, for the unit's
    own cell, and the bias.
    """

    gates: Float[Array, "2 size weights"]
    output: Linear
    sensitivities: bool = eqx.field(static=True)

    def __init__(self, size_in: int, size: int, forget: float, sensitivities: bool, key: Key[Array, ""]):
        gates_key, output_key = jax.random.split(key)
        gates = 0.1 * jax.random.normal(gates_key, (2, size, size_in + 2))
        self.gates = gates.at[1, :, -1].add(forget)
        self.output = Linear(size_in + size, size, uniform_fan_in, output_key)
        self.sensitivities = sensitivities

    @property
    def hidden_size(self) -> int:
        """Number of units."""
        return self.gates.shape[1]

    def begin(self, n: int) -> Cells:
        """Memory of ``n`` fresh episodes."""
        carried = jnp.zeros((n, *self.gates.shape)) if self.sensitivities else None
        return Cells(jnp.zeros((n, self.hidden_size)), carried)

    def resumed(self, memory: Cells) -> Cells:
        """The memory with which a stretch that is learnt from begins: the same cells, with the gradient of their past.

        They carry no sensitivities on, for within the stretch gradients flow by themselves.
        """
        if memory.sensitivity is None:
            return memory
        moved = self.gates - jax.lax.stop_gradient(self.gates)
        return Cells(memory.cell + jnp.sum(memory.sensitivity * moved, axis=(-3, -1)))

    def __call__(self, x: Float[Array, " in"], memory: Cells) -> tuple[Float[Array, " size"], Cells]:
        """Features of one input, and the memory after it."""
        old = memory.cell
        candidate, forget = self.gates[..., :-2] @ x + self.gates[..., -2] * old + self.gates[..., -1]
        candidate, forget = jnp.tanh(candidate), jax.nn.sigmoid(forget)
        cell = forget * old + (1 - forget) * candidate
        carried = memory.sensitivity
        if carried is not None:
            carried = jax.lax.stop_gradient(self._carried(carried, x, old, candidate, forget))
        features = jax.nn.sigmoid(self.output(jnp.concatenate([x, cell]))) * cell
        return features, Cells(cell, carried)

    def _carried(
        self, before: Float[Array, "2 size weights"], x: Float[Array, " in"], old: Float[Array, " size"],
        candidate: Float[Array, " size"], forget: Float[Array, " size"],
    ) -> Float[Array, "2 size weights"]:  # fmt: skip
        """Sensitivities after a step."""
        by_candidate = (1 - forget) * (1 - candidate**2)
        by_forget = (old - candidate) * forget * (1 - forget)
        by_gates = jnp.stack([by_candidate, by_forget])
        by_old = forget + jnp.sum(by_gates * self.gates[..., -2], axis=0)
        inputs = jnp.broadcast_to(x, (self.hidden_size, len(x)))
        seen = jnp.concatenate([inputs, old[:, None], jnp.ones((self.hidden_size, 1))], axis=1)
        return by_old[:, None] * before + by_gates[..., None] * seen


@dataclasses.dataclass(frozen=True)
class ELSTM:
    """Element-wise LSTM (Irie et al., 2023), as a choice of memory."""

    size: int = 64
    """Units."""
    sensitivities: bool = True
    """Whether the memory carries what the cells change by with each weight: gradients then reach back to an episode's
    beginning, however short the rollouts. Without, they end where a rollout begins."""
    forget: float = 0.0
    """What is added to the forget gates' biases at first: with 3, a cell keeps 95% of itself over a step."""

    def build(self, size_in: int, key: Key[Array, ""]) -> ELSTMCell:
        """The cell with its parameters."""
        return ELSTMCell(size_in, self.size, self.forget, self.sensitivities, key)

"""Parts of networks and losses as a user's own module brings them, for slots of the library's methods."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from thespis.critics.mixers import LinearUtilityNetwork, Mixer, Utility
from thespis.learners.multi_agent.role_contrast import AuxiliaryLoss
from thespis.learners.off_policy.recurrent_q import ValueTransform
from thespis.learners.optim.normalizers import ObsNormalizer
from thespis.methods.online.drq_v2 import Augmentation
from thespis.nets.recurrent import RecurrentCore
from thespis.nets.set_attention import SetEncoder


@dataclasses.dataclass(frozen=True)
class LSTM(RecurrentCore):
    """Long short-term memory, with Equinox's cell; its memory is a pair of arrays."""

    hidden_size: int = 6

    def build(self, in_size, key):
        return eqx.nn.LSTMCell(in_size, self.hidden_size, key=key)

    def init_memory(self, cell, n):
        return jnp.zeros((n, self.hidden_size)), jnp.zeros((n, self.hidden_size))

    def step(self, cell, x, memory):
        memory = cell(x, memory)
        return memory[0], memory


class MeanOfRows(eqx.Module):
    """The mean row of a set."""

    def __call__(self, context, rows):
        return jnp.mean(rows, axis=0)


@dataclasses.dataclass(frozen=True)
class MeanPooling(SetEncoder):
    """Sets by the mean of their rows."""

    def build(self, context_size, row_size, key):
        return MeanOfRows()


class ScaledUtility(Utility):
    """A linear utility whose outputs have the features as a role."""

    role_size: int = eqx.field(static=True, default=5)

    def build(self, spec, hidden_sizes, memory, key):
        return FeatureNetwork(LinearUtilityNetwork(spec, (*hidden_sizes, self.role_size), memory, key))


class FeatureNetwork(eqx.Module):
    """The linear network, with its features among the auxiliary outputs."""

    linear: LinearUtilityNetwork

    @property
    def body(self):
        return self.linear.body

    def body_input(self, observation):
        return observation

    def q_values(self, features, observation):
        return self.linear.q_values(features, observation)

    def aux_outputs(self, features):
        return {"role": features}


class WeightedSum(Mixer):
    """A sum with a learned positive weight for each agent."""

    def build(self, state_space, num_agents, role_size, key):
        return WeightedSumNetwork(jnp.zeros(num_agents))


class WeightedSumNetwork(eqx.Module):
    """The weights' logarithms."""

    log_weights: jax.Array

    def __call__(self, values, state):
        return jnp.exp(self.log_weights) @ values

    def mixing_context(self, is_first, inputs, next_inputs):
        return inputs.state, next_inputs.state


class CountingLoss(AuxiliaryLoss):
    """No loss, but a count of its updates and the mean role as a metric."""

    def init(self, networks, role_size, key):
        return jnp.zeros((), "int32")

    def update(self, networks, state, aux_outputs, alive, num_updates):
        roles = [jnp.mean(outputs["role"]) for outputs in aux_outputs.values()]
        return networks, state + 1, {"mean_role": sum(roles) / len(roles)}


class Mirror(Augmentation):
    """The observation with its signs changed, at random."""

    def __call__(self, space, observation, key):
        sign = jnp.where(jax.random.bernoulli(key), 1, -1)
        return jax.tree.map(lambda x: x * sign.astype(x.dtype), observation)


class Halved(ValueTransform):
    """Q-values are learned at half their size."""

    def rescale(self, value):
        return value / 2

    def unscale(self, rescaled):
        return rescaled * 2


class ByLargest(ObsNormalizer):
    """Observations over the largest number so far."""

    def init(self, space):
        return jnp.ones(())

    def normalize(self, state, observation):
        return jax.tree.map(lambda x: x / state, observation)

    def update(self, state, observations, mask):
        rows = [
            jnp.where(mask, jnp.max(jnp.abs(x), axis=tuple(range(2, x.ndim))), 0) for x in jax.tree.leaves(observations)
        ]
        return jnp.maximum(state, jnp.max(jnp.stack([jnp.max(row) for row in rows])))

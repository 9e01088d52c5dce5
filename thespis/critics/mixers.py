"""Value decomposition: a team value mixed from one value of each agent, monotonic in each (VDN, QMIX).

So the best joint action is the best action of each agent. A mixer takes the values of all agents in one row, with 0 for
agents that are not alive.
"""

from __future__ import annotations

import abc
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete, Space
from thespis.nets.body import Body, Encoder, RecurrentModule
from thespis.nets.mlp import MLP, Linear, uniform_fan_in
from thespis.nets.recurrent import RecurrentCore


@runtime_checkable
class UtilityNetwork(Protocol):
    """Network of one agent: Q-values of all its actions, an ``equinox.Module``."""

    @property
    def body(self) -> RecurrentModule:
        """The body, with memory or without: features of any shape."""
        ...

    def body_input(self, observation: PyTree) -> PyTree:
        """The part of an observation that the body sees; ``observation`` is the agent's own with its index."""
        ...

    def q_values(self, features: PyTree, observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all actions, from the body's features."""
        ...

    def aux_outputs(self, features: PyTree) -> dict[str, Array]:
        """Auxiliary outputs for the mixer and the auxiliary loss, such as a ``role``."""
        ...


class Utility(eqx.Module):
    """Slot: the network of an agent's utility, its part of the team's value."""

    @property
    @abc.abstractmethod
    def role_size(self) -> int:
        """Size of the role vector among the auxiliary outputs, for the mixer; 0: there is none. A field may do."""

    @abc.abstractmethod
    def build(
        self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]
    ) -> UtilityNetwork:
        """The network of one agent, whose environment is ``spec``."""


class LinearUtility(Utility):
    """Utility network with a linear output for every action, from features of the observation."""

    @property
    def role_size(self) -> int:
        """Size of the role vector for the mixer: 0."""
        return 0

    def build(
        self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]
    ) -> LinearUtilityNetwork:
        """The network of one agent, whose environment is ``spec``."""
        return LinearUtilityNetwork(spec, hidden_sizes, memory, key)


class LinearUtilityNetwork(eqx.Module):
    """Utility network: Q-values of all actions of one agent, with or without recurrent memory."""

    body: Body
    out: Linear

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]):
        assert isinstance(spec.action_space, Discrete)
        body_key, out_key = jax.random.split(key)
        body_options: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": memory}
        self.body = Body(spec.observation_space, hidden_sizes, body_key, **body_options)
        self.out = Linear(self.body.feature_size, spec.action_space.n, uniform_fan_in, out_key)

    def body_input(self, observation: PyTree) -> PyTree:
        """The part of an observation that the body sees: all of it."""
        return observation

    def q_values(self, features: Float[Array, " size"], observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all actions, from the body's features."""
        return self.out(features)

    def aux_outputs(self, features: Float[Array, " size"]) -> dict[str, Array]:
        """Auxiliary outputs for the mixer: none."""
        return {}


class MixerInputs(eqx.Module):
    """Inputs of a mixer besides the values: state, and outputs of the agents of each group, ``[time, row, ...]``."""

    state: PyTree
    """State in the space that the mixer was built for."""
    aux_outputs: dict[str, dict[str, Float[Array, "time row agent ..."]]]
    """Auxiliary outputs of the agents' networks."""
    alive: dict[str, Bool[Array, "time row agent"]]
    """Which agents decide."""


@runtime_checkable
class MixerNetwork(Protocol):
    """Network of a mixer, an ``equinox.Module``."""

    def __call__(self, values: Float[Array, " agents"], state: PyTree) -> Float[Array, ""]:
        """Value of the team, mixed from the agents' utilities in a context at one step."""
        ...

    def mixing_context(
        self, is_first: Bool[Array, "time row"], inputs: MixerInputs, next_inputs: MixerInputs
    ) -> tuple[PyTree, PyTree]:
        """Contexts at all steps and after them, ``[time, row, ...]``: the state, for one."""
        ...


class Mixer(eqx.Module):
    """Slot: how the values of all agents become the value of the team."""

    @abc.abstractmethod
    def build(self, state_space: Space, num_agents: int, role_size: int, key: Key[Array, ""]) -> MixerNetwork:
        """The mixer's network.

        It takes the values of ``num_agents`` agents and the state, which lies in ``state_space``. ``role_size``: size
        of the agents' role vectors; 0 without roles.
        """


class SumMixer(Mixer):
    """Sum mixer: adds the agents' values (VDN: Sunehag et al., 2018)."""

    def build(self, state_space: Space, num_agents: int, role_size: int, key: Key[Array, ""]) -> SumMixerNetwork:
        """The sum, which has no parameters."""
        return SumMixerNetwork()


class SumMixerNetwork(eqx.Module):
    """Network of the sum mixer: the sum of all values."""

    def __call__(self, values: Float[Array, " agents"], state: PyTree) -> Float[Array, ""]:
        """Value of the team, mixed from the agents' utilities."""
        return jnp.sum(values)

    def mixing_context(
        self, is_first: Bool[Array, "time row"], inputs: MixerInputs, next_inputs: MixerInputs
    ) -> tuple[PyTree, PyTree]:
        """Contexts at all steps and after them: the state, which the sum ignores."""
        return inputs.state, next_inputs.state


class MonotonicMixer(Mixer):
    """Mixing network with non-negative weights that are generated from the state (QMIX: Rashid et al., 2018)."""

    hidden_size: int = eqx.field(static=True, default=32)
    """Units of its one hidden layer."""
    hypernet_sizes: tuple[int, ...] = eqx.field(static=True, default=(64,))
    """Hidden layers of the hypernetworks."""

    def build(self, state_space: Space, num_agents: int, role_size: int, key: Key[Array, ""]) -> MonotonicMixerNetwork:
        """The network for the values of ``num_agents`` agents, with weights generated from ``state_space``."""
        return MonotonicMixerNetwork(self, state_space, num_agents, key)


class MonotonicMixerNetwork(eqx.Module):
    """Monotonic mixing network ``|w2|' elu(|W1| q + b1) + b2``: weights and biases are functions of the state.

    ``|.|`` and elu make the value increase in every ``q``; ``b1`` is linear in the state, ``b2`` is not.
    """

    encoder: Encoder
    hyper_w1: LinearOutputMLP
    hyper_b1: Linear
    hyper_w2: LinearOutputMLP
    hyper_b2: LinearOutputMLP
    hidden_size: int = eqx.field(static=True)

    def __init__(self, config: MonotonicMixer, state_space: Space, num_agents: int, key: Key[Array, ""]):
        keys = jax.random.split(key, 5)
        self.encoder, self.hidden_size = Encoder(state_space, keys[0]), config.hidden_size
        size = self.encoder.feature_size
        self.hyper_w1 = LinearOutputMLP(size, config.hypernet_sizes, num_agents * config.hidden_size, keys[1])
        self.hyper_b1 = Linear(size, config.hidden_size, uniform_fan_in, keys[2])
        self.hyper_w2 = LinearOutputMLP(size, config.hypernet_sizes, config.hidden_size, keys[3])
        self.hyper_b2 = LinearOutputMLP(size, (config.hidden_size,), 1, keys[4])

    def __call__(self, values: Float[Array, " agents"], state: PyTree) -> Float[Array, ""]:
        """Value of the team, mixed from the agents' utilities."""
        features = self.encoder(state)
        weights = jnp.abs(self.hyper_w1(features)).reshape(values.shape[0], self.hidden_size)
        hidden = jax.nn.elu(values @ weights + self.hyper_b1(features))
        return hidden @ jnp.abs(self.hyper_w2(features)) + self.hyper_b2(features)[0]

    def mixing_context(
        self, is_first: Bool[Array, "time row"], inputs: MixerInputs, next_inputs: MixerInputs
    ) -> tuple[PyTree, PyTree]:
        """Contexts at all steps and after them: the state."""
        return inputs.state, next_inputs.state


class LinearOutputMLP(eqx.Module):
    """MLP with a linear output layer."""

    mlp: MLP
    out: Linear

    def __init__(self, in_size: int, hidden_sizes: tuple[int, ...], out_size: int, key: Key[Array, ""]):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(in_size, hidden_sizes, uniform_fan_in, jax.nn.relu, mlp_key)
        self.out = Linear(hidden_sizes[-1] if hidden_sizes else in_size, out_size, uniform_fan_in, out_key)

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " count"]:
        """Outputs for one vector."""
        return self.out(self.mlp(x))

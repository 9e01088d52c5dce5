"""Roles of agents in value decomposition (ACORM): utility networks with roles, and a mixer with attention over roles.

A utility network embeds an agent's history of observations, computes a role from the embedding, and gives Q-values
under this role. The monotonic mixer has attention over the roles of all agents: queries come from the state, keys and
values from the roles.

Source: Hu et al., 2024.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, CompositeSpace, Discrete, Space, dict_space
from thespis.critics.mixers import Mixer, MixerInputs, MonotonicMixer, MonotonicMixerNetwork, Utility
from thespis.nets.body import GRU, Body, Encoder, unroll
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.nets.recurrent import RecurrentCore
from thespis.runtime.keys import fold


class AttentionMixer(Mixer):
    """QMIX mixer whose weights come from the state and from attention over roles (Hu et al., 2024)."""

    inner_mixer: MonotonicMixer = MonotonicMixer()
    """The mixing network on the state and the attended roles."""
    query_size: int = eqx.field(static=True, default=64)
    """Size of each query; there is one for each agent, and together they are the units of the state's GRU."""
    num_heads: int = eqx.field(static=True, default=4)
    """Number of attention heads."""
    attention_size: int = eqx.field(static=True, default=128)
    """Units of all heads together, a multiple of ``num_heads``."""
    output_size: int = eqx.field(static=True, default=64)
    """Size of the attention output for each query."""

    def build(self, state_space: Space, num_agents: int, role_size: int, key: Key[Array, ""]) -> AttentionMixerNetwork:
        """The network for the values of ``num_agents`` agents. Raises ``UserError`` where agents have no roles."""
        if not role_size:
            raise UserError(
                "AttentionMixer mixes by roles, and these agents have none: set utility_network=RoleUtility()"
            )
        if self.attention_size % self.num_heads:
            raise UserError(
                f"attention_size must be a multiple of num_heads={self.num_heads}, and is {self.attention_size}"
            )
        return AttentionMixerNetwork(self, state_space, num_agents, role_size, key)


class AttentionMixerNetwork(eqx.Module):
    """A GRU over states makes queries, roles are keys and values, and the output joins the state in the inner mixer."""

    body: Body
    query_proj: Linear
    key_proj: Linear
    value_proj: Linear
    output_proj: Linear
    inner_mixer: MonotonicMixerNetwork
    num_agents: int = eqx.field(static=True)
    num_heads: int = eqx.field(static=True)

    def __init__(
        self, config: AttentionMixer, state_space: Space, num_agents: int, role_size: int, key: Key[Array, ""]
    ):
        size = Encoder(state_space, key).feature_size
        body_options: dict[str, Any] = {
            "init": uniform_fan_in,
            "activation": jax.nn.relu,
            "memory": GRU(num_agents * config.query_size),
        }
        self.body = Body(state_space, (size,), fold(key, "body"), **body_options)
        self.query_proj = Linear(config.query_size, config.attention_size, uniform_fan_in, fold(key, "asks"))
        self.key_proj = Linear(role_size, config.attention_size, uniform_fan_in, fold(key, "keys"))
        self.value_proj = Linear(role_size, config.attention_size, uniform_fan_in, fold(key, "values"))
        self.output_proj = Linear(config.attention_size, config.output_size, uniform_fan_in, fold(key, "answers"))
        self.inner_mixer = config.inner_mixer.build(
            Box((size + num_agents * config.output_size,)), num_agents, 0, fold(key, "inner")
        )
        self.num_agents, self.num_heads = num_agents, config.num_heads

    def __call__(self, values: Float[Array, " num_agents"], context: dict[str, Any]) -> Float[Array, ""]:
        """Value of the team, mixed from the agents' utilities."""
        queries = context["queries"].reshape(self.num_agents, -1)
        attended = self.attend(queries, context["roles"], context["there"])
        features = self.body.mlp(self.body.encoder(context["state"]))
        return self.inner_mixer(values, jnp.concatenate([features, attended.ravel()]))

    def attend(
        self, queries: Float[Array, "n query"], roles: Float[Array, "m role"], alive: Bool[Array, " m"]
    ) -> Float[Array, "n out"]:
        """Attention output of each query: for each head the weighted mean of the roles of agents that are alive."""

        def split_heads(layer: Linear, x: Float[Array, "k size"]) -> Float[Array, "k head part"]:
            return jax.vmap(layer)(x).reshape(x.shape[0], self.num_heads, -1)

        projected_queries, keys, values = (
            split_heads(self.query_proj, queries),
            split_heads(self.key_proj, roles),
            split_heads(self.value_proj, roles),
        )
        scores = jnp.einsum("nhp,mhp->hnm", projected_queries, keys) / jnp.sqrt(1.0 * projected_queries.shape[-1])
        weights = jax.nn.softmax(jnp.where(alive, scores, -1e9), axis=-1) * alive
        heads = jnp.einsum("hnm,mhp->nhp", weights, values).reshape(queries.shape[0], -1)
        return jax.vmap(self.output_proj)(heads)

    def mixing_context(
        self, is_first: Bool[Array, "time row"], inputs: MixerInputs, next_inputs: MixerInputs
    ) -> tuple[PyTree, PyTree]:
        """Contexts at all steps and after them: state, queries, all roles, and which agents are alive."""
        queries, memories = unroll(self.body, self.body.init_memory(is_first.shape[1]), inputs.state, is_first)
        next_queries, _ = jax.vmap(jax.vmap(self.body))(memories, next_inputs.state)
        return _context_with_queries(inputs, queries), _context_with_queries(next_inputs, next_queries)


def _context_with_queries(inputs: MixerInputs, queries: Float[Array, "time row size"]) -> dict[str, Any]:
    roles = jnp.concatenate([outputs["role"] for outputs in inputs.aux_outputs.values()], axis=2)
    alive = jnp.concatenate([inputs.alive[name] for name in inputs.aux_outputs], axis=2)
    return {"state": inputs.state, "queries": queries, "roles": roles, "there": alive}


class RoleUtility(Utility):
    """Utility network with roles, vectors in (0, 1) computed from a history embedding (Hu et al., 2024)."""

    role_size: int = eqx.field(static=True, default=64)
    """Size of a role vector, which the mixer gets."""
    embedding_size: int = eqx.field(static=True, default=128)
    """Size of the embedding, and units of the layers and the GRU that compute it."""
    index_visible: bool = eqx.field(static=True, default=True)
    """Whether the network gets the agent's index besides its observation. In the authors' code it does not."""

    def build(
        self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]
    ) -> RoleUtilityNetwork:
        """The network of one agent, whose environment is ``spec``."""
        return RoleUtilityNetwork(self, spec, hidden_sizes, memory, key)


class RoleEncoder(eqx.Module):
    """Two bodies: one is recurrent and computes the role, the other sees the observation and the role."""

    history_body: Body
    embedding_layer: Linear
    role_layer: Linear
    utility_body: Body

    def __init__(
        self,
        config: RoleUtility,
        observation_space: Space,
        hidden_sizes: tuple[int, ...],
        memory: RecurrentCore | None,
        key: Key[Array, ""],
    ):
        keys = jax.random.split(key, 4)
        body_options: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu}
        self.history_body = Body(
            observation_space, (config.embedding_size,), keys[0], memory=GRU(config.embedding_size), **body_options
        )
        self.embedding_layer = Linear(config.embedding_size, config.embedding_size, uniform_fan_in, keys[1])
        self.role_layer = Linear(config.embedding_size, config.role_size, uniform_fan_in, keys[2])
        self.utility_body = Body(
            dict_space(seen=observation_space, role=Box((config.role_size,))),
            hidden_sizes,
            keys[3],
            memory=memory,
            **body_options,
        )

    def init_memory(self, n: int) -> tuple[Any, Any]:
        """Recurrent memories of both bodies, for ``n`` fresh episodes."""
        return self.history_body.init_memory(n), self.utility_body.init_memory(n)

    def encode(self, observation: PyTree) -> tuple[PyTree, Float[Array, " units"]]:
        """The observation, which the second body reads with the role, and what the first memory reads of it."""
        return observation, self.history_body.encode(observation)

    def step(
        self, memory: tuple[Any, Any], encoded: tuple[PyTree, Float[Array, " units"]]
    ) -> tuple[dict[str, Array], tuple[Any, Any]]:
        """Outputs ``own`` (features), ``embedding`` and ``role``, and the memories of both bodies."""
        history_memory, utility_memory = memory
        observation, history = encoded
        history, history_memory = self.history_body.step(history_memory, history)
        embedding = self.embedding_layer(history)
        role = role_from_embedding(self.role_layer, embedding)
        features, utility_memory = self.utility_body(utility_memory, {"seen": observation, "role": role})
        return {"own": features, "embedding": embedding, "role": role}, (history_memory, utility_memory)

    def __call__(self, memory: tuple[Any, Any], observation: PyTree) -> tuple[dict[str, Array], tuple[Any, Any]]:
        """Outputs ``own`` (features), ``embedding`` and ``role``, and the memories of both bodies."""
        return self.step(memory, self.encode(observation))


class RoleUtilityNetwork(eqx.Module):
    """Q-values of all actions of one agent under its role."""

    body: RoleEncoder
    out: Linear
    index_visible: bool = eqx.field(static=True)

    def __init__(
        self,
        config: RoleUtility,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        memory: RecurrentCore | None,
        key: Key[Array, ""],
    ):
        assert isinstance(spec.action_space, Discrete)
        body_key, out_key = jax.random.split(key)
        space, self.index_visible = spec.observation_space, config.index_visible
        if not self.index_visible:
            assert isinstance(space, CompositeSpace)
            space = dict(space.spaces)["own"]
        self.body = RoleEncoder(config, space, hidden_sizes, memory, body_key)
        self.out = Linear(self.body.utility_body.feature_size, spec.action_space.n, uniform_fan_in, out_key)

    def body_input(self, observation: PyTree) -> PyTree:
        """The part of an observation that the body sees: all of it, or all but the agent's index."""
        return observation if self.index_visible else observation["own"]

    def q_values(self, features: dict[str, Array], observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all actions, from the body's features."""
        return self.out(features["own"])

    def aux_outputs(self, features: dict[str, Array]) -> dict[str, Array]:
        """The ``role``, which the mixer gets, and the ``embedding`` that it is computed from."""
        return {"role": features["role"], "embedding": features["embedding"]}


def role_from_embedding(layer: Linear, embedding: Float[Array, " units"]) -> Float[Array, " roles"]:
    """The role computed from an embedding, each number in (0, 1)."""
    return jax.nn.sigmoid(layer(embedding))

"""Dot-product utilities (RODE): a key computed from the observation, times an embedding of each choice.

Embeddings are not learned here: they are part of the observation.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, CompositeSpace, Discrete, Space, dict_space
from thespis.critics.mixers import Utility
from thespis.nets.body import Body
from thespis.nets.mlp import uniform_fan_in
from thespis.nets.recurrent import RecurrentCore


def role_observation_space(observation: Space, num_actions: int, embedding_size: int, num_roles: int) -> CompositeSpace:
    """Observation space of a :class:`DotProductUtility` for agents that observe ``observation``."""
    return dict_space(own=observation, role=Discrete(num_roles), said=Box((num_actions, embedding_size)))


class DotProductUtility(Utility):
    """Utility network: products of a key, one for each role, with embeddings of the choices (Wang et al., 2021).

    Observations are those of :func:`role_observation_space`.
    """

    @property
    def role_size(self) -> int:
        """Size of the role vector for the mixer: 0."""
        return 0

    def build(
        self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]
    ) -> DotProductUtilityNetwork:
        """The network of one agent, whose environment is ``spec``."""
        return DotProductUtilityNetwork(spec, hidden_sizes, memory, key)


class DotProductUtilityNetwork(eqx.Module):
    """Dot-product utility network ``Q(o, role, a) = z_a' W_role h(o)``.

    The role and all ``z`` are part of the observation.
    """

    body: Body
    role_keys: Float[Array, "role latent size"]

    def __init__(self, spec: EnvSpec, hidden_sizes: tuple[int, ...], memory: RecurrentCore | None, key: Key[Array, ""]):
        body_key, keys_key = jax.random.split(key)
        spaces = _subspaces(spec.observation_space)
        own_spaces = _subspaces(spaces["own"])
        body_options: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": memory}
        self.body = Body(
            dict_space(own=own_spaces["own"], which=spaces["which"]), hidden_sizes, body_key, **body_options
        )
        latent, size = own_spaces["said"].shape[1], self.body.feature_size
        keys = uniform_fan_in(keys_key, (size, own_spaces["role"].n * latent))
        self.role_keys = keys.T.reshape(own_spaces["role"].n, latent, size)

    def body_input(self, observation: PyTree) -> PyTree:
        """The part of an observation that the body sees: neither the role nor the embeddings."""
        return {"own": observation["own"]["own"], "which": observation["which"]}

    def q_values(self, features: Float[Array, " size"], observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all choices, under the agent's role."""
        own = observation["own"]
        return own["said"] @ (jnp.take(self.role_keys, own["role"], axis=0) @ features)

    def aux_outputs(self, features: Float[Array, " size"]) -> dict[str, Array]:
        """Auxiliary outputs for the mixer: none."""
        return {}


def _subspaces(space: Space) -> dict[str, Any]:
    assert isinstance(space, CompositeSpace)
    return dict(space.spaces)

"""Recurrent Q-network: ``Q(h, ·)`` of all discrete actions, where ``h`` is a memory of the episode so far."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.nets.body import DEFAULT_NETWORK, Body, NetworkOptions
from thespis.nets.mlp import Linear, uniform_fan_in
from thespis.nets.recurrent import RecurrentCore


class RecurrentQ(eqx.Module):
    """Recurrent Q-network of discrete actions, optionally dueling; without ``memory`` it is feed-forward."""

    body: Body
    advantage_out: Linear
    value_out: Linear | None

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        memory: RecurrentCore | None,
        dueling: bool = False,
        options: NetworkOptions = DEFAULT_NETWORK,
    ):
        assert isinstance(spec.action_space, Discrete)
        body_key, out_key, state_key = jax.random.split(key, 3)
        self.body = options.build_body(
            spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in, memory=memory
        )
        self.advantage_out = Linear(self.body.feature_size, spec.action_space.n, uniform_fan_in, out_key)
        self.value_out = Linear(self.body.feature_size, 1, uniform_fan_in, state_key) if dueling else None

    def init_memory(self, n: int) -> Any:
        """Memory of ``n`` fresh episodes; ``()`` without a recurrent core."""
        return self.body.init_memory(n)

    def encode(self, observation: PyTree) -> Float[Array, " features"]:
        """What the recurrent core reads of one observation."""
        return self.body.encode(observation)

    def step(self, memory: Any, encoded: Float[Array, " features"]) -> tuple[Float[Array, " n"], Any]:
        """Q-values of all actions for one encoded observation, and the memory after it."""
        features, memory = self.body.step(memory, encoded)
        values = self.advantage_out(features)
        if self.value_out is not None:
            values = values - jnp.mean(values) + self.value_out(features)
        return values, memory

    def __call__(self, memory: Any, observation: PyTree) -> tuple[Float[Array, " n"], Any]:
        """Q-values of all actions for one observation, and the memory after it."""
        return self.step(memory, self.encode(observation))

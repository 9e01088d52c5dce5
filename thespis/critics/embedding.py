"""Values under a role: what an agent has seen so far becomes an embedding, that a role, by which it values choices."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, Space, dict_space
from thespis.nets.body import GRU, Body
from thespis.nets.mlp import Linear, uniform_fan_in


class Embedded(eqx.Module):
    """Roles are numbers in (0, 1) made from an embedding of what the agent has seen (Hu et al., 2024)."""

    roles: int = eqx.field(static=True, default=64)
    """Numbers of a role; the mixer is told them."""
    units: int = eqx.field(static=True, default=128)
    """Units of the layers and the GRU that make the embedding, and its numbers."""

    def build(self, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]) -> Embedding:
        """The net of one agent, whose world is ``spec``."""
        return Embedding(self, spec, hidden, memory, key)


class Rolled(eqx.Module):
    """Two bodies: one remembers and makes the role, the other sees the role beside the observation."""

    history: Body
    embed: Linear
    role: Linear
    own: Body

    def __init__(self, kind: Embedded, seen: Space, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]):
        keys = jax.random.split(key, 4)
        rest: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu}
        self.history = Body(seen, (kind.units,), keys[0], memory=GRU(kind.units), **rest)
        self.embed = Linear(kind.units, kind.units, uniform_fan_in, keys[1])
        self.role = Linear(kind.units, kind.roles, uniform_fan_in, keys[2])
        self.own = Body(dict_space(seen=seen, role=Box((kind.roles,))), hidden, keys[3], memory=memory, **rest)

    def begin(self, n: int) -> tuple[Any, Any]:
        """Memories of both, of ``n`` fresh episodes."""
        return self.history.begin(n), self.own.begin(n)

    def __call__(self, memory: tuple[Any, Any], observation: PyTree) -> tuple[dict[str, Array], tuple[Any, Any]]:
        """``own``: features; ``embedding``; ``role``. And both memories after it."""
        past, kept = memory
        told, past = self.history(past, observation)
        embedding = self.embed(told)
        role = as_role(self.role, embedding)
        features, kept = self.own(kept, {"seen": observation, "role": role})
        return {"own": features, "embedding": embedding, "role": role}, (past, kept)


class Embedding(eqx.Module):
    """The values of every choice of one agent under its role."""

    body: Rolled
    out: Linear

    def __init__(self, kind: Embedded, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]):
        assert isinstance(spec.action, Discrete)
        body_key, out_key = jax.random.split(key)
        self.body = Rolled(kind, spec.observation, hidden, memory, body_key)
        self.out = Linear(self.body.own.size, spec.action.n, uniform_fan_in, out_key)

    def look(self, observation: PyTree) -> PyTree:
        """What of an observation the body sees."""
        return observation

    def values(self, features: dict[str, Array], observation: PyTree) -> Float[Array, " n"]:
        """Of every choice, from the body's features."""
        return self.out(features["own"])

    def tells(self, features: dict[str, Array]) -> dict[str, Array]:
        """The ``role``, which the mixer is told, and the ``embedding`` that it is made from."""
        return {"role": features["role"], "embedding": features["embedding"]}


def as_role(layer: Linear, embedding: Float[Array, " units"]) -> Float[Array, " roles"]:
    """The role that a layer makes of an embedding, each number in (0, 1)."""
    return jax.nn.sigmoid(layer(embedding))

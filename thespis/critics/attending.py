"""A monotone mixture that goes by roles: the state asks which of them matter, and their sums enter the weights."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.core.spaces import Box, Space
from thespis.critics.mixing import Mixed, Monotonic, Scene
from thespis.nets.body import GRU, Body, Encoder, unroll
from thespis.nets.mlp import Linear, uniform_fan_in


class Attending(eqx.Module):
    """QMIX's net, whose weights come from the state and from roles that it attends to (Hu et al., 2024)."""

    mixer: Monotonic = Monotonic()
    """The net of what is then known."""
    query: int = eqx.field(static=True, default=64)
    """Numbers of each query; there is one for each agent, and together they are the units of the state's GRU."""
    heads: int = eqx.field(static=True, default=4)
    """Parts in which roles are attended to."""
    units: int = eqx.field(static=True, default=128)
    """Units of all heads together, a multiple of ``heads``."""
    out: int = eqx.field(static=True, default=64)
    """Numbers that each query is answered with."""

    def build(self, state: Space, agents: int, roles: int, key: Key[Array, ""]) -> Attended:
        """The net for ``agents`` values. Raises ``UserError`` where agents have no roles."""
        if not roles:
            raise UserError("Attending mixes by roles, and these agents have none: give the method utility=Embedded()")
        if self.units % self.heads:
            raise UserError(f"Attending's units must be a multiple of its {self.heads} heads, and are {self.units}")
        return Attended(self, state, agents, roles, key)


class Attended(eqx.Module):
    """What a GRU makes of states so far asks, roles answer; answers stand beside the state in the mixing net."""

    body: Body
    asks: Linear
    keys: Linear
    values: Linear
    answers: Linear
    inner: Mixed
    agents: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)

    def __init__(self, kind: Attending, state: Space, agents: int, roles: int, key: Key[Array, ""]):
        size = Encoder(state, key).size
        rest: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": GRU(agents * kind.query)}
        self.body = Body(state, (size,), fold(key, "body"), **rest)
        self.asks = Linear(kind.query, kind.units, uniform_fan_in, fold(key, "asks"))
        self.keys = Linear(roles, kind.units, uniform_fan_in, fold(key, "keys"))
        self.values = Linear(roles, kind.units, uniform_fan_in, fold(key, "values"))
        self.answers = Linear(kind.units, kind.out, uniform_fan_in, fold(key, "answers"))
        self.inner = kind.mixer.build(Box((size + agents * kind.out,)), agents, 0, fold(key, "inner"))
        self.agents, self.heads = agents, kind.heads

    def __call__(self, values: Float[Array, " agents"], scene: dict[str, Any]) -> Float[Array, ""]:
        """The value of the team."""
        queries = scene["queries"].reshape(self.agents, -1)
        answers = self.attend(queries, scene["roles"], scene["there"])
        known = self.body.mlp(self.body.encoder(scene["state"]))
        return self.inner(values, jnp.concatenate([known, answers.ravel()]))

    def attend(
        self, queries: Float[Array, "n query"], roles: Float[Array, "m role"], there: Bool[Array, " m"]
    ) -> Float[Array, "n out"]:
        """Each query's answer: for each head a mean of the roles of those who are there, weighted by likeness."""

        def parts(layer: Linear, x: Float[Array, "k size"]) -> Float[Array, "k head part"]:
            return jax.vmap(layer)(x).reshape(x.shape[0], self.heads, -1)

        asked, keys, values = parts(self.asks, queries), parts(self.keys, roles), parts(self.values, roles)
        alike = jnp.einsum("nhp,mhp->hnm", asked, keys) / jnp.sqrt(1.0 * asked.shape[-1])
        weights = jax.nn.softmax(jnp.where(there, alike, -1e9), axis=-1) * there
        heard = jnp.einsum("hnm,mhp->nhp", weights, values).reshape(queries.shape[0], -1)
        return jax.vmap(self.answers)(heard)

    def scenes(self, first: Bool[Array, "time row"], now: Scene, following: Scene) -> tuple[PyTree, PyTree]:
        """What it goes by at all steps and after them: the state, queries, all roles, and who is there."""
        queries, memories = unroll(self.body, self.body.begin(first.shape[1]), now.state, first)
        after, _ = jax.vmap(jax.vmap(self.body))(memories, following.state)
        return _beside(now, queries), _beside(following, after)


def _beside(scene: Scene, queries: Float[Array, "time row size"]) -> dict[str, Any]:
    roles = jnp.concatenate([said["role"] for said in scene.told.values()], axis=2)
    there = jnp.concatenate([scene.alive[name] for name in scene.told], axis=2)
    return {"state": scene.state, "queries": queries, "roles": roles, "there": there}

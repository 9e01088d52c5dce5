"""Values of choices by what the choices are: a key made from what is seen, times a representation of each.

Nothing of a choice is learnt here: whoever knows its representation puts it into the observation.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, Space, Tree, dict_space
from thespis.nets.body import GRU, Body
from thespis.nets.mlp import uniform_fan_in


def matched_space(own: Space, choices: int, latent: int, roles: int) -> Tree:
    """What a :class:`Matching` sees of a world in which an agent sees ``own``."""
    return dict_space(own=own, role=Discrete(roles), said=Box((choices, latent)))


class Matched(eqx.Module):
    """Values are products of a key, one for each role, with representations of the choices (Wang et al., 2021).

    Observations are those of :func:`matched_space`.
    """

    @property
    def roles(self) -> int:
        """Numbers of the role that the mixer is told: none."""
        return 0

    def build(self, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]) -> Matching:
        """The net of one agent, whose world is ``spec``."""
        return Matching(spec, hidden, memory, key)


class Matching(eqx.Module):
    """``Q(o, role, a) = z_a' W_role h(o)``, with the role and all ``z`` as part of what is seen."""

    body: Body
    keys: Float[Array, "role latent size"]

    def __init__(self, spec: EnvSpec, hidden: tuple[int, ...], memory: GRU | None, key: Key[Array, ""]):
        body_key, keys_key = jax.random.split(key)
        seen = _parts(spec.observation)
        own = _parts(seen["own"])
        kind: dict[str, Any] = {"init": uniform_fan_in, "activation": jax.nn.relu, "memory": memory}
        self.body = Body(dict_space(own=own["own"], which=seen["which"]), hidden, body_key, **kind)
        latent, size = own["said"].shape[1], self.body.size
        keys = uniform_fan_in(keys_key, (size, own["role"].n * latent))
        self.keys = keys.T.reshape(own["role"].n, latent, size)

    def look(self, observation: PyTree) -> PyTree:
        """What the body sees: neither the role nor representations."""
        return {"own": observation["own"]["own"], "which": observation["which"]}

    def values(self, features: Float[Array, " size"], observation: PyTree) -> Float[Array, " n"]:
        """Of every choice, under the role that the agent has."""
        said = observation["own"]
        return said["said"] @ (jnp.take(self.keys, said["role"], axis=0) @ features)

    def tells(self, features: Float[Array, " size"]) -> dict[str, Array]:
        """What the mixer is told beside the value: nothing."""
        return {}


def _parts(space: Space) -> dict[str, Any]:
    assert isinstance(space, Tree)
    return dict(space.parts)

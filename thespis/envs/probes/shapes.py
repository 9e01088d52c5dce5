"""Worlds of every shape: several choices at once, dicts of parts, pictures."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space
from thespis.envs.probes.probe import Known, Place, answer, zero


class Pair(eqx.Module):
    """One step, a vector of two choices (of 3 and of 2): reward 1 if both are those asked for, else 0."""

    name: str = eqx.field(static=True, default="pair")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((6,), 0.0, 1.0), MultiDiscrete((3, 2)))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One of the six pairs by chance, one-hot."""
        cue = jax.random.randint(key, (), 0, 6)
        return Place(zero(), cue), answer(jax.nn.one_hot(cue, 6))

    def step(self, state: Place, action: Int[Array, 2], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        right = (action[0] == state.cue // 2) & (action[1] == state.cue % 2)
        return state, answer(jnp.zeros(6), right, terminated=True)

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        return [Known(np.eye(6, dtype="float32")[i], 1.0, np.array([i // 2, i % 2], "int32")) for i in range(6)]


class Hybrid(eqx.Module):
    """One step; observation and action are dicts. Pays 1 for the choice shown, less the squared distance of
    the amount from the level shown.
    """

    name: str = eqx.field(static=True, default="hybrid")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(
            f"probe:{self.name}",
            dict_space(cue=Discrete(2), level=Box((1,), -1.0, 1.0)),
            dict_space(amount=Box((1,), -1.0, 1.0), choice=Discrete(2)),
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """Cue and level by chance."""
        cue, high = jax.random.bernoulli(key, shape=(2,)).astype("int32")
        shown = {"cue": cue, "level": jnp.where(high, 0.5, -0.5).reshape(1)}
        return Place(zero(), shown), answer(shown)

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        right = (action["choice"] == state.cue["cue"]).astype("float32")
        reward = right - jnp.sum((action["amount"] - state.cue["level"]) ** 2)
        return state, answer(jax.tree.map(jnp.zeros_like, state.cue), reward, terminated=True)

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        levels = [np.full(1, level, "float32") for level in (-0.5, 0.5)]
        return [
            Known({"cue": cue, "level": level}, 1.0, {"amount": level, "choice": cue})
            for cue, level in itertools.product(map(np.int32, range(2)), levels)
        ]


class Picture(eqx.Module):
    """One step; a 10 x 10 picture of bytes is bright on the side (left 0, right 1) whose action pays 1."""

    name: str = eqx.field(static=True, default="picture")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((10, 10, 1), 0.0, 255.0, "uint8"), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A side by chance."""
        side = jax.random.randint(key, (), 0, 2)
        return Place(zero(), side), answer(jnp.asarray(_pictures())[side])

    def step(self, state: Place, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The verdict."""
        return state, answer(jnp.zeros((10, 10, 1), "uint8"), action == state.cue, terminated=True)

    def known(self, discount: float) -> list[Known]:
        """1 everywhere."""
        return [Known(picture, 1.0, np.int32(side)) for side, picture in enumerate(_pictures())]


def _pictures() -> np.ndarray:
    left = np.where(np.arange(10) < 5, 255, 0).astype("uint8")
    return np.stack([np.tile(row[None, :, None], (10, 1, 1)) for row in (left, left[::-1])])

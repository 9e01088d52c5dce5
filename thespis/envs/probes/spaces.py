"""Probes of spaces: MultiDiscrete actions, dict spaces and images."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space
from thespis.envs.probes.probe import KnownValue, ProbeState, probe_time_step, start_time


class MultiDiscreteProbe(eqx.Module):
    """One-step probe of ``MultiDiscrete`` actions: reward 1 if both choices match the observation, else 0.

    The action is a vector of two choices, of 3 and of 2.
    """

    name: str = eqx.field(static=True, default="pair")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((6,), 0.0, 1.0), MultiDiscrete((3, 2)))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws one of the six pairs at random and shows it one-hot."""
        cue = jax.random.randint(key, (), 0, 6)
        return ProbeState(start_time(), cue), probe_time_step(jax.nn.one_hot(cue, 6))

    def step(self, state: ProbeState, action: Int[Array, 2], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Rewards the right pair and ends the episode."""
        right = (action[0] == state.cue // 2) & (action[1] == state.cue % 2)
        return state, probe_time_step(jnp.zeros(6), right, terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for every observation."""
        return [KnownValue(np.eye(6, dtype="float32")[i], 1.0, np.array([i // 2, i % 2], "int32")) for i in range(6)]


class DictSpaceProbe(eqx.Module):
    """One-step probe of dict spaces: observation and action are dicts.

    The reward is 1 for the choice shown, minus the squared distance of ``amount`` from the ``level`` shown.
    """

    name: str = eqx.field(static=True, default="hybrid")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(
            f"probe:{self.name}",
            dict_space(cue=Discrete(2), level=Box((1,), -1.0, 1.0)),
            dict_space(amount=Box((1,), -1.0, 1.0), choice=Discrete(2)),
        )

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws cue and level at random."""
        cue, high = jax.random.bernoulli(key, shape=(2,)).astype("int32")
        observation = {"cue": cue, "level": jnp.where(high, 0.5, -0.5).reshape(1)}
        return ProbeState(start_time(), observation), probe_time_step(observation)

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Rewards choice and amount, and ends the episode."""
        right = (action["choice"] == state.cue["cue"]).astype("float32")
        reward = right - jnp.sum((action["amount"] - state.cue["level"]) ** 2)
        return state, probe_time_step(jax.tree.map(jnp.zeros_like, state.cue), reward, terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for every observation."""
        levels = [np.full(1, level, "float32") for level in (-0.5, 0.5)]
        return [
            KnownValue({"cue": cue, "level": level}, 1.0, {"amount": level, "choice": cue})
            for cue, level in itertools.product(map(np.int32, range(2)), levels)
        ]


class ImageProbe(eqx.Module):
    """One-step probe of images: the bright side of a 10 x 10 uint8 image is the action that pays 1, the other pays 0.

    Left is action 0, right is action 1.
    """

    name: str = eqx.field(static=True, default="picture")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((10, 10, 1), 0.0, 255.0, "uint8"), Discrete(2))

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a side at random."""
        side = jax.random.randint(key, (), 0, 2)
        return ProbeState(start_time(), side), probe_time_step(jnp.asarray(_images())[side])

    def step(self, state: ProbeState, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Rewards the bright side and ends the episode."""
        return state, probe_time_step(jnp.zeros((10, 10, 1), "uint8"), action == state.cue, terminated=True)

    def known_values(self, discount: float) -> list[KnownValue]:
        """Value 1 for every observation."""
        return [KnownValue(image, 1.0, np.int32(side)) for side, image in enumerate(_images())]


def _images() -> np.ndarray:
    left = np.where(np.arange(10) < 5, 255, 0).astype("uint8")
    return np.stack([np.tile(row[None, :, None], (10, 1, 1)) for row in (left, left[::-1])])

"""Probes of data streams: they test training loops, replay buffers and seeds, not methods."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import KnownValue, ProbeState, probe_time_step, start_time
from thespis.envs.probes.values import DISCRETE_ACTION

_NUM_TAGS = 2**24  # integers that float32 represents exactly


class EpisodeTagProbe(eqx.Module):
    """Data-stream probe: observations tell the episode (a random tag), its step, and when and how the episode ends.

    An episode lasts 1 to 7 steps. The observation is ``[tag, step, length, cut]``, where ``cut`` is 1 if the episode is
    truncated and 0 if it terminates. The reward is the step's number, counted from 1.
    """

    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="coded")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((4,), 0.0, float(_NUM_TAGS)), self.action, time_limit=7)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws a new tag, a length and the way the episode ends."""
        tag_key, length_key, cut_key = jax.random.split(key, 3)
        tag = jax.random.randint(tag_key, (), 0, _NUM_TAGS)
        length = jax.random.randint(length_key, (), 1, 8)
        cut = jax.random.bernoulli(cut_key).astype("int32")
        code = jnp.stack([tag, jnp.zeros_like(tag), length, cut]).astype("float32")
        return ProbeState(start_time(), code), probe_time_step(code)

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Advances one step within the same episode."""
        time = state.time + 1
        code = state.cue.at[1].set(time.astype("float32"))
        over, cut = time >= code[2], code[3] > 0
        return ProbeState(time, code), probe_time_step(code, time, over & ~cut, over & cut)

    def known_values(self, discount: float) -> list[KnownValue]:
        """No values; check transitions with :func:`is_successor`."""
        return []


def is_successor(
    observation: Float[Array | np.ndarray, "*batch 4"],
    next_observation: Float[Array | np.ndarray, "*batch 4"],
) -> Bool[Array | np.ndarray, "*batch"]:
    """Whether the second observation of :class:`EpisodeTagProbe` is the true successor of the first."""
    return ((next_observation - observation) == np.array([0, 1, 0, 0], "float32")).all(-1)


class RandomStreamProbe(eqx.Module):
    """Random-stream probe: observations are the random numbers drawn at the reset and at the latest step.

    Episodes last 5 steps. Two environments, or two episodes, that show the same pair share a random stream. The reward
    is always 0.
    """

    action: Discrete | Box = eqx.field(static=True, default=DISCRETE_ACTION)
    name: str = eqx.field(static=True, default="seeds")

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        return EnvSpec(f"probe:{self.name}", Box((2,), 0.0, float(_NUM_TAGS)), self.action, time_limit=5)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draws the first number."""
        first = _random_number(key)
        return ProbeState(start_time(), first), probe_time_step(jnp.stack([first, jnp.zeros(())]))

    def step(self, state: ProbeState, action: PyTree, key: Key[Array, ""]) -> tuple[ProbeState, TimeStep]:
        """Draw the next random number, which becomes the observation."""
        time = state.time + 1
        return ProbeState(time, state.cue), probe_time_step(
            jnp.stack([state.cue, _random_number(key)]), truncated=time >= 5
        )

    def known_values(self, discount: float) -> list[KnownValue]:
        """No values: no observation occurs twice."""
        return []


def _random_number(key: Key[Array, ""]) -> Float[Array, ""]:
    return jax.random.randint(key, (), 0, _NUM_TAGS).astype("float32")

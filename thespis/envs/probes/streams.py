"""Worlds that show where their data comes from: they test loops, replay and seeds, not methods."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import Known, Place, answer, zero
from thespis.envs.probes.values import ANY_CHOICE

_TAGS = 2**24  # whole numbers that float32 holds exactly


class Coded(eqx.Module):
    """Every observation says which episode it is of (a tag by chance), which step, and when and how it ends.

    An episode lasts 1 to 7 steps. ``[tag, step, length, cut]``, where ``cut`` is 1 if it is truncated and 0
    if it ends truly. The reward is the step's number, from 1.
    """

    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="coded")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((4,), 0.0, float(_TAGS)), self.action, time_limit=7)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """A new tag, length and way to end."""
        tag_key, length_key, cut_key = jax.random.split(key, 3)
        tag = jax.random.randint(tag_key, (), 0, _TAGS)
        length = jax.random.randint(length_key, (), 1, 8)
        cut = jax.random.bernoulli(cut_key).astype("int32")
        code = jnp.stack([tag, jnp.zeros_like(tag), length, cut]).astype("float32")
        return Place(zero(), code), answer(code)

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """One step on in the same episode."""
        time = state.time + 1
        code = state.cue.at[1].set(time.astype("float32"))
        over, cut = time >= code[2], code[3] > 0
        return Place(time, code), answer(code, time, over & ~cut, over & cut)

    def known(self, discount: float) -> list[Known]:
        """No values: use :func:`follows`."""
        return []


def follows(
    observation: Float[Array | np.ndarray, "*batch 4"],
    next_observation: Float[Array | np.ndarray, "*batch 4"],
) -> Bool[Array | np.ndarray, "*batch"]:
    """Whether the second observation of :class:`Coded` is the true successor of the first."""
    return ((next_observation - observation) == np.array([0, 1, 0, 0], "float32")).all(-1)


class Seeds(eqx.Module):
    """Observations are the random numbers drawn at the reset and at the latest step; episodes last 5 steps.

    Two worlds, or two episodes, that show the same pair share a stream. Nothing is ever paid.
    """

    action: Discrete | Box = eqx.field(static=True, default=ANY_CHOICE)
    name: str = eqx.field(static=True, default="seeds")

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits."""
        return EnvSpec(f"probe:{self.name}", Box((2,), 0.0, float(_TAGS)), self.action, time_limit=5)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """The first number is drawn."""
        first = _draw(key)
        return Place(zero(), first), answer(jnp.stack([first, jnp.zeros(())]))

    def step(self, state: Place, action: PyTree, key: Key[Array, ""]) -> tuple[Place, TimeStep]:
        """Another number is drawn."""
        time = state.time + 1
        return Place(time, state.cue), answer(jnp.stack([state.cue, _draw(key)]), truncated=time >= 5)

    def known(self, discount: float) -> list[Known]:
        """No observation is seen twice."""
        return []


def _draw(key: Key[Array, ""]) -> Float[Array, ""]:
    return jax.random.randint(key, (), 0, _TAGS).astype("float32")

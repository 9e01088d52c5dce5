"""What a probe is: a tiny compiled world together with what must be learnt in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import TimeStep


@dataclasses.dataclass(frozen=True)
class Known:
    """One observation, its discounted value, and the best canonical action there (``None``: any)."""

    observation: Any
    value: float
    action: Any = None


@dataclasses.dataclass(frozen=True)
class Probe:
    """A world and its known answer.

    ``known(discount)`` lists observations with their values, which hold under ``policy``: any whatever, or
    the best one. ``catches`` names the mistake that the wrong answer gives away. Where one observation does
    not tell what to do, ``best`` maps all observations of the episode so far to the best action.
    """

    name: str
    environment: Environment
    catches: str
    known: Callable[[float], list[Known]]
    policy: Literal["any", "best"] = "best"
    best: Callable[[list[Any]], Any] | None = None

    def find(self, observation: Any, discount: float) -> Known | None:
        """What is known of an observation."""
        return next((known for known in self.known(discount) if _equal(known.observation, observation)), None)

    def act(self, history: list[Any]) -> Any:
        """The best canonical action after the observations of an episode so far; ``None`` if any will do."""
        if self.best is not None:
            return self.best(history)
        known = self.find(history[-1], 0.0)
        return None if known is None else known.action


class Place(eqx.Module):
    """The state of most probes: steps taken in this episode, and what the episode is about."""

    time: Int[Array, ""]
    cue: PyTree = ()


def answer(
    observation: Any, reward: Any = 0.0, terminated: Any = False, truncated: Any = False, legal: Any = None
) -> TimeStep:
    """A time step in the dtypes that the contract wants; ``observation`` is already in its space's."""
    return TimeStep(
        observation,
        jnp.asarray(reward, "float32"),
        jnp.asarray(terminated, bool),
        jnp.asarray(truncated, bool),
        legal,
    )


def zero() -> Int[Array, ""]:
    """The time at an episode's start."""
    return jnp.zeros((), "int32")


def _equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))

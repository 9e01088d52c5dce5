"""Probes: a tiny compiled environment together with the values and actions that must be learned in it."""

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
class KnownValue:
    """Known answer for one observation: its discounted value, and the optimal action there.

    The action is in canonical units; ``None``: any action.
    """

    observation: Any
    value: float
    action: Any = None


@dataclasses.dataclass(frozen=True)
class Probe:
    """Probe environment with its known answer.

    ``known_values(discount)`` lists observations with their values, which hold under ``policy``: any policy, or the
    best one. ``detects`` names the mistakes that a wrong answer reveals. Where one observation does not determine the
    optimal action, ``optimal_policy`` maps all observations of the episode so far to it.
    """

    name: str
    environment: Environment
    detects: str
    known_values: Callable[[float], list[KnownValue]]
    policy: Literal["any", "best"] = "best"
    optimal_policy: Callable[[list[Any]], Any] | None = None

    def lookup(self, observation: Any, discount: float) -> KnownValue | None:
        """The known value of an observation, or ``None`` if it is not listed."""
        return next(
            (entry for entry in self.known_values(discount) if _trees_equal(entry.observation, observation)), None
        )

    def optimal_action(self, history: list[Any]) -> Any:
        """The optimal canonical action after the observations of an episode so far; ``None`` if any action will do."""
        if self.optimal_policy is not None:
            return self.optimal_policy(history)
        entry = self.lookup(history[-1], 0.0)
        return None if entry is None else entry.action


class ProbeState(eqx.Module):
    """State of most probes: the step within the episode, and the cue that was drawn for it."""

    time: Int[Array, ""]
    cue: PyTree = ()


def probe_time_step(
    observation: Any, reward: Any = 0.0, terminated: Any = False, truncated: Any = False, action_mask: Any = None
) -> TimeStep:
    """Make a time step in the dtypes of the contract; ``observation`` must already have its space's dtype."""
    return TimeStep(
        observation,
        jnp.asarray(reward, "float32"),
        jnp.asarray(terminated, bool),
        jnp.asarray(truncated, bool),
        action_mask,
    )


def start_time() -> Int[Array, ""]:
    """Step count at the start of an episode: 0."""
    return jnp.zeros((), "int32")


def _trees_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))

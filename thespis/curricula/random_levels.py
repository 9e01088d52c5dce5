"""Random levels (domain randomisation over levels): every environment plays a fresh random level in each rollout."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.contracts import Levels
from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition
from thespis.runtime.keys import indexed_keys


def require_levels(spec: EnvSpec) -> Levels:
    """The levels of an environment. Raises ``UserError`` if it has none."""
    if not isinstance(spec.levels, Levels):
        raise UserError(
            f"{spec.name} has no levels (spec.levels): choose an environment with levels (maze), or --randomize"
        )
    return spec.levels


class RandomLevelsState(eqx.Module):
    """State: the generator of levels, which never changes."""

    levels: Levels = eqx.field(static=True)


class RandomLevels(eqx.Module):
    """Curriculum of random levels, drawn anew for every environment in each rollout.

    An environment plays its level again where an episode ends before the rollout does. Only for methods that learn
    from rollouts is a rollout longer than a few steps: the environments start again in each of them.
    """

    name: ClassVar[str] = "random-levels"
    citations: ClassVar[tuple[Citation, ...]] = ()
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RandomLevelsState:
        """The environment's levels. Raises ``UserError`` if it has none."""
        return RandomLevelsState(require_levels(spec))

    def draw(self, state: RandomLevelsState, key: Key[Array, ""], n: int) -> Draw:
        """Random levels."""
        return Draw(jax.vmap(state.levels.sample)(indexed_keys(key, n)))

    def update(
        self,
        state: RandomLevelsState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[RandomLevelsState, Report]:
        """Return the state unchanged; reports the mean return of finished episodes."""
        return state, Report({"return": mean_return(stats)})


def mean_return(stats: EpisodeStats) -> Any:
    """Mean return of the episodes that ended; 0 if none did."""
    return jnp.sum(jnp.where(stats.done, stats.returns, 0.0)) / jnp.maximum(jnp.sum(stats.done), 1)

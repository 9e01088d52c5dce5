"""The reward of the world itself, or a multiple of it: nothing is learnt."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Key

from thespis.core.records import Batch, Citation, EnvSpec, Report, Transition
from thespis.learners.gradient import Number


class EnvironmentReward(eqx.Module):
    """Update sees the rewards that the world gave, times ``scale``."""

    scale: Number = 1.0
    """Factor of every reward."""

    name: ClassVar[str] = "environment"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """Nothing is learnt."""
        return ()

    def score(self, state: tuple[()], steps: Transition) -> Float[Array, "*axes"]:
        """The scaled rewards."""
        return self.scale * steps.reward

    def update(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> tuple[tuple[()], Report]:
        """Nothing to do."""
        return state, Report({})

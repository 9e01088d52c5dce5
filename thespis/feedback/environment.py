"""The reward of the world itself: nothing is learnt, nothing is changed."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Key

from thespis.core.records import Batch, Citation, EnvSpec, Report, Transition


class EnvironmentReward(eqx.Module):
    """Update sees the rewards that the world gave."""

    name: ClassVar[str] = "environment"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """Nothing is learnt."""
        return ()

    def score(self, state: tuple[()], steps: Transition) -> Float[Array, "*axes"]:
        """The rewards as they are."""
        return steps.reward

    def update(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> tuple[tuple[()], Report]:
        """Nothing to do."""
        return state, Report({})

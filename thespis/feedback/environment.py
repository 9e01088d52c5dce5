"""The environment's own reward, optionally scaled."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Key

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Transition


class EnvironmentReward(eqx.Module):
    """Environment reward times ``reward_scale``; nothing is learned."""

    reward_scale: Number = 1.0
    """Factor of every reward."""

    name: ClassVar[str] = "environment"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def score(self, state: tuple[()], steps: Transition) -> Float[Array, "*axes"]:
        """Rewards of the environment, multiplied by the scale."""
        return self.reward_scale * steps.reward

    def update(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> tuple[tuple[()], Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})

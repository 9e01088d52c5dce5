"""The environment's own reward, optionally scaled."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards


class EnvironmentReward(eqx.Module):
    """Environment reward times ``reward_scale``; nothing is learned."""

    reward_scale: Number = 1.0
    """Factor of every reward."""

    name: ClassVar[str] = "environment"
    citations: ClassVar[tuple[Citation, ...]] = ()

    @property
    def feed(self) -> None:
        """No data of its own: it learns from the method's batch."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def score(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """Rewards of the environment, multiplied by the scale."""
        return Rewards(self.reward_scale * batch.steps.reward)

    def update(
        self, state: tuple[()], batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[tuple[()], Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})

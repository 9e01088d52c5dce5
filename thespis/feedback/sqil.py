"""SQIL (soft Q imitation learning): demonstrations have the reward 1, the learner's own steps 0.

For off-policy methods whose feed mixes demonstrations with replay. Source: Reddy et al., 2020 (arXiv:1905.11108).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, EnvSpec, Report, Rewards


class SQIL(eqx.Module):
    """SQIL feedback: a reward of 1 for rows from demonstrations and 0 for all others.

    The method's feed is a mix with a source of demonstrations; half of each batch in the paper.
    """

    source: str = eqx.field(static=True, default="demos")
    """Name of the mix's source of demonstrations."""

    name: ClassVar[str] = "sqil"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SQIL: Imitation Learning via RL with Sparse Rewards", "Reddy et al.", 2020, "arXiv:1905.11108"),
    )

    @property
    def feed(self) -> None:
        """No data of its own: the demonstrations are in the method's batch."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """An empty state."""
        return ()

    def score(self, state: tuple[()], batch: Batch, key: Key[Array, ""]) -> Rewards:
        """Rewards by source. Raises ``UserError`` if the batch is of one source alone."""
        if self.source not in dict(batch.sources):
            raise UserError(
                f"SQIL needs batches with rows of {self.source!r}: mix demonstrations into the replay (feed.demos=DIR)"
            )
        counts = [jnp.full(count, float(name == self.source)) for name, count in batch.sources]
        return Rewards(jnp.broadcast_to(jnp.concatenate(counts), batch.steps.reward.shape))

    def update(
        self, state: tuple[()], batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[tuple[()], Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})

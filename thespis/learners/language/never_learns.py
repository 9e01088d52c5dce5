"""Base of actors that never learn, as seats of a conversation: a frozen model, a rule, a model behind an endpoint."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from thespis.core.records import Batch, Citation, Critique, Report, Transition


class NeverLearns(eqx.Module):
    """Actor that never learns: no critic, and updates that change nothing."""

    citations: ClassVar[tuple[Citation, ...]] = ()
    details: ClassVar[tuple[str, ...]] = ()
    learns: ClassVar[bool] = False

    def judge(self, state: Any, episode: Transition) -> Critique:
        """Empty: there is no critic of values."""
        return Critique()

    def update(self, state: Any, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """The same state, and no metrics."""
        return state, Report({})

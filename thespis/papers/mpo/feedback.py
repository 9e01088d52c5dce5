"""An auditor of a rubric that knows nothing, to compare with one that does."""

from __future__ import annotations

from typing import ClassVar

import jax
from jaxtyping import Array, Float, Key

from thespis.feedback.rubric_reward import AuditedRubric
from thespis.runtime.keys import fold


class ShuffledAudits(AuditedRubric):
    """Audited rubric reward, for text, whose auditor mistakes responses for each other: its revisions are random.

    The true rewards that it looks up are those of the audited responses in random order, so that the changes of weights
    are of the same size as those of an auditor who knows, and carry no information.
    """

    name: ClassVar[str] = "shuffled-audits"

    def audit(
        self,
        weights: Float[Array, " check"],
        checks: Float[Array, "response check"],
        true_rewards: Float[Array, " response"],
        key: Key[Array, ""],
    ) -> Float[Array, " check"]:
        """The weights that explain rewards in random order."""
        shuffled = jax.random.permutation(fold(key, "order"), true_rewards)
        return super().audit(weights, checks, shuffled, key)

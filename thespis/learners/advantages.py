"""Over what advantages are standardised."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from thespis.objectives.normalise import standardise


class WholeBatch(eqx.Module):
    """Over the whole batch: the same for any split into minibatches."""

    def whole(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return standardise(advantage)

    def part(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


class PerMinibatch(eqx.Module):
    """Over each minibatch, as most published code does; the answer depends on the split."""

    def whole(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def part(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return standardise(advantage)


class Unscaled(eqx.Module):
    """Over nothing: advantages as they were estimated."""

    def whole(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def part(self, advantage: Float[Array, "..."]) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


AdvantageScale = WholeBatch | PerMinibatch | Unscaled

"""Over what advantages are standardised: entries that ``mask`` lets through, all if there is none."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

from thespis.objectives.normalise import standardise

Mask = Bool[Array, "..."] | None


class WholeBatch(eqx.Module):
    """Over the whole batch: the same for any split into minibatches."""

    def whole(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return standardise(advantage, mask)

    def part(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


class PerMinibatch(eqx.Module):
    """Over each minibatch, as most published code does; the answer depends on the split."""

    def whole(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def part(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return standardise(advantage, mask)


class Unscaled(eqx.Module):
    """Over nothing: advantages as they were estimated."""

    def whole(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of a batch before it is split."""
        return advantage

    def part(self, advantage: Float[Array, "..."], mask: Mask = None) -> Float[Array, "..."]:
        """Advantages of one minibatch."""
        return advantage


AdvantageScale = WholeBatch | PerMinibatch | Unscaled

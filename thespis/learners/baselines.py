"""What a conversation has earned, beside others that began alike."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float

from thespis.objectives import groups


class Alone(eqx.Module):
    """No baseline."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """As they are."""
        return returns


class Mean(eqx.Module):
    """Less the mean of the group (Liu et al. 2025, Dr. GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.beyond_mean`."""
        return groups.beyond_mean(returns)


class Others(eqx.Module):
    """Less the mean of the others of the group: unbiased (Ahmadian et al. 2024, RLOO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.leave_one_out`."""
        return groups.leave_one_out(returns)


class Scaled(eqx.Module):
    """Less the mean of the group, over its deviation: biased (Shao et al. 2024, GRPO)."""

    def __call__(self, returns: Float[Array, "group member"]) -> Float[Array, "group member"]:
        """See :func:`thespis.objectives.groups.scaled`."""
        return groups.scaled(returns)


Comparison = Alone | Mean | Others | Scaled

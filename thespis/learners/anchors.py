"""What draws a policy beside its advantages."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from thespis.learners.gradient import Number
from thespis.objectives.normalise import mean
from thespis.objectives.policies import reverse_kl

Rows = Float[Array, "time row"]


class Free(eqx.Module):
    """Nothing."""

    def pull(
        self, log_prob: Rows, before: Rows, entropy: Float[Array, ""], alive: Bool[Array, "..."] | None
    ) -> Float[Array, ""]:
        """No loss."""
        return jnp.zeros(())


class Magnet(eqx.Module):
    r"""The uniform policy, and the policy before the update (Sokota et al. 2023).

    .. math:: \alpha \, KL(\pi \| uniform) + \tfrac{1}{\eta} KL(\pi \| \pi_t)

    The second divergence is estimated from the actions played, with an unbiased gradient.
    """

    uniform: Number = 0.1
    """Weight of the divergence from the uniform policy, in units of reward."""
    inertia: Number = 5.0
    """Weight of the divergence from the policy before, in units of reward."""

    def pull(
        self, log_prob: Rows, before: Rows, entropy: Float[Array, ""], alive: Bool[Array, "..."] | None
    ) -> Float[Array, ""]:
        """The loss; ``before`` are the log-probabilities of the same actions as they were drawn."""
        return self.inertia * mean(reverse_kl(log_prob, before, before), alive) - self.uniform * entropy


Anchor = Free | Magnet

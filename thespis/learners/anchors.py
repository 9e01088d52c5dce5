"""What draws a policy beside its advantages."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.learners.gradient import Number
from thespis.objectives.normalise import mean
from thespis.objectives.policies import reverse_kl

Rows = Float[Array, "time row"]


class Free(eqx.Module):
    """Nothing."""

    def pull(
        self, log_prob: Rows, before: Rows, entropy: Float[Array, ""], alive: Bool[Array, "..."] | None, index: Array
    ) -> Float[Array, ""]:
        """No loss."""
        return jnp.zeros(())


class Magnet(eqx.Module):
    r"""The policy before the update, and the uniform one, the magnet (Sokota et al. 2023).

    .. math:: \alpha_t \, KL(\pi \| uniform) + \tfrac{1}{\eta_t} KL(\pi \| \pi_t)

    where both :math:`\alpha` and :math:`\eta` shrink as :math:`1 / \sqrt{1 + t / \tau}` with the number of updates. The
    second divergence is estimated from the actions played, with an unbiased gradient.
    """

    uniform: Number = 0.2
    """First weight of the divergence from the uniform policy, in units of reward."""
    inertia: Number = 2.0
    """First weight of the divergence from the policy before, which grows as the other one shrinks."""
    halfway: Number = 50.0
    """Updates after which the first weight is 0.7 of what it was; it shrinks with the root of their number."""

    def pull(
        self,
        log_prob: Rows,
        before: Rows,
        entropy: Float[Array, ""],
        alive: Bool[Array, "..."] | None,
        index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The loss; ``before`` are the log-probabilities of the same actions as they were drawn."""
        shrunk = 1.0 / jnp.sqrt(1.0 + index / self.halfway)
        moved = mean(reverse_kl(log_prob, before, before), alive)
        return self.inertia / shrunk * moved - self.uniform * shrunk * entropy


Anchor = Free | Magnet

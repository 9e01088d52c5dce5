"""What draws a policy beside its advantages."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.actors.distributions import Distribution
from thespis.learners.actor_critic import Evaluated
from thespis.learners.gradient import Number
from thespis.learners.on_policy import Replayed
from thespis.objectives.normalise import mean
from thespis.objectives.policies import reverse_kl

Before = Callable[[], Distribution]
"""Says what the policy before the update would do at the same steps, leaves ``[time, row, ...]``."""


class Free(eqx.Module):
    """Nothing."""

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Array) -> Float[Array, ""]:
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

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Int[Array, ""]) -> Float[Array, ""]:
        """The loss."""
        shrunk = 1.0 / jnp.sqrt(1.0 + index / self.halfway)
        moved = mean(reverse_kl(now.log_prob, data.log_prob, data.log_prob), data.alive)
        return self.inertia / shrunk * moved - self.uniform * shrunk * now.entropy


class Tether(eqx.Module):
    r"""The policy before the update, by its divergence and the root of it at each step (Su and Lu 2022).

    .. math:: E_s\left[ \beta_1 \sqrt{KL(\pi_{old} \| \pi)} + \beta_2 KL(\pi_{old} \| \pi) \right]
    """

    root: Number = 1.0
    """Weight of the root of the divergence."""
    divergence: Number = 1.0
    """Weight of the divergence."""

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Array) -> Float[Array, ""]:
        """The loss."""
        root, divergence = moved(before(), now.policy, data)
        return self.root * root + self.divergence * divergence


def moved(before: Distribution, now: Distribution, data: Evaluated) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean root and mean of the divergence ``KL(before || now)``, over the steps where the actor decided."""
    apart = jax.vmap(jax.vmap(lambda p, q: p.kl(q)))(jax.lax.stop_gradient(before), now)
    apart = jnp.maximum(apart, 0.0)  # rounding may put it below
    return mean(jnp.sqrt(apart + 1e-12), data.alive), mean(apart, data.alive)  # the slope of a root has no end at 0


Anchor = Free | Magnet | Tether

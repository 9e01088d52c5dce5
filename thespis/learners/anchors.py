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

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Int[Array, ""]) -> Float[Array, ""]:
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

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Int[Array, ""]) -> Float[Array, ""]:
        """The loss."""
        moved = mean(reverse_kl(now.log_prob, data.log_prob, data.log_prob), data.alive)
        return self.inertia * moved - self.uniform * now.entropy


class Tether(eqx.Module):
    r"""The policy before the update, by its divergence and the root of it at each step (Su and Lu 2022).

    .. math:: E_s\left[ \beta_1 \sqrt{KL(\pi_{old} \| \pi)} + \beta_2 KL(\pi_{old} \| \pi) \right]
    """

    root: Number = 1.0
    """Weight of the root of the divergence."""
    divergence: Number = 1.0
    """Weight of the divergence."""

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Int[Array, ""]) -> Float[Array, ""]:
        """The loss."""
        root, divergence = moved(jax.lax.stop_gradient(before()), now.policy, data)
        return self.root * root + self.divergence * divergence


class Proximal(eqx.Module):
    r"""The policy before the update, less and less free to be left: a step of mirror descent (Tomar et al. 2022).

    .. math:: \tfrac{1}{t_k} E_s\left[ KL(\pi \| \pi_k) \right], \quad t_k = t_0 (1 - k / K)
    """

    first: Number = 1.0
    """The step size of mirror descent at first, one over units of advantage."""
    updates: Number = 500.0
    """Rollouts until it would be nothing; it stays at a hundredth of the first."""

    def pull(self, now: Replayed, data: Evaluated, before: Before, index: Int[Array, ""]) -> Float[Array, ""]:
        """The loss."""
        size = self.first * jnp.maximum(1.0 - index / self.updates, 0.01)
        return moved(now.policy, jax.lax.stop_gradient(before()), data)[1] / size


def moved(before: Distribution, now: Distribution, data: Evaluated) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean root and mean of the divergence ``KL(before || now)``, over the steps where the actor decided."""
    apart = jax.vmap(jax.vmap(lambda p, q: p.kl(q)))(before, now)
    apart = jnp.maximum(apart, 0.0)  # rounding may put it below
    return mean(jnp.sqrt(apart + 1e-12), data.alive), mean(apart, data.alive)  # the slope of a root has no end at 0


Anchor = Free | Magnet | Tether | Proximal

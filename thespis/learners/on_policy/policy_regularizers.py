"""Policy regularizers: loss terms that keep a policy close to the old policy or to the uniform policy."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.actors.distributions import Distribution
from thespis.core.records import Number
from thespis.learners.on_policy.actor_critic import RolloutWithAdvantages
from thespis.learners.on_policy.method import RolloutEvaluation
from thespis.objectives.policy_losses import reverse_kl
from thespis.objectives.statistics import masked_mean

OldPolicy = Callable[[], Distribution]
"""Returns the action distributions of the policy before the update at the same steps, leaves ``[time, row, ...]``."""


class _NoRegularizer(eqx.Module):
    """No policy regularization: a penalty of zero."""

    def penalty(
        self,
        current: RolloutEvaluation,
        rollout: RolloutWithAdvantages,
        old_policy: OldPolicy,
        update_index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """A loss of zero: there is no penalty."""
        return jnp.zeros(())


NO_REGULARIZER = _NoRegularizer()
"""What ``policy_regularizer=None`` does."""


class PolicyRegularizer(eqx.Module):
    """Slot: a loss that keeps the policy close to another one, added to that of the actor."""

    @abc.abstractmethod
    def penalty(
        self,
        current: RolloutEvaluation,
        rollout: RolloutWithAdvantages,
        old_policy: OldPolicy,
        update_index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Regularization loss of the policy, to be minimised. ``update_index`` counts rollouts."""


class MagnetKL(PolicyRegularizer):
    r"""KL penalty towards the uniform policy and towards the policy before the update (Sokota et al. 2023).

    .. math:: \alpha \, KL(\pi \| uniform) + \tfrac{1}{\eta} KL(\pi \| \pi_t)

    The second divergence is estimated from the sampled actions, with an unbiased gradient.
    """

    uniform_coef: Number = 0.1
    """Weight of the KL from the uniform policy, in units of reward."""
    kl_coef: Number = 5.0
    """Weight of the KL from the policy before the update, in units of reward."""

    def penalty(
        self,
        current: RolloutEvaluation,
        rollout: RolloutWithAdvantages,
        old_policy: OldPolicy,
        update_index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The regularization loss, up to a constant."""
        moved = masked_mean(reverse_kl(current.log_prob, rollout.log_prob, rollout.log_prob), rollout.alive)
        return self.kl_coef * moved - self.uniform_coef * current.entropy


class SqrtKL(PolicyRegularizer):
    r"""Penalty on the KL from the policy before the update and on its square root, at each step (Su and Lu 2022).

    .. math:: E_s\left[ \beta_1 \sqrt{KL(\pi_{old} \| \pi)} + \beta_2 KL(\pi_{old} \| \pi) \right]
    """

    sqrt_kl_coef: Number = 1.0
    """Weight of the square root of the KL."""
    kl_coef: Number = 1.0
    """Weight of the KL."""

    def penalty(
        self,
        current: RolloutEvaluation,
        rollout: RolloutWithAdvantages,
        old_policy: OldPolicy,
        update_index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Regularization loss of the policy, to be minimised."""
        root, divergence = policy_divergence(jax.lax.stop_gradient(old_policy()), current.policy, rollout)
        return self.sqrt_kl_coef * root + self.kl_coef * divergence


class MirrorDescentKL(PolicyRegularizer):
    r"""KL penalty of mirror descent policy optimization with a falling step size (Tomar et al. 2022).

    .. math:: \tfrac{1}{t_k} E_s\left[ KL(\pi \| \pi_k) \right], \quad t_k = t_0 (1 - k / K)
    """

    init_step_size: Number = 1.0
    """Initial step size of mirror descent, one over units of advantage."""
    num_updates: Number = 500.0
    """Rollouts until the step size would be 0; it stays at a hundredth of the initial one."""

    def penalty(
        self,
        current: RolloutEvaluation,
        rollout: RolloutWithAdvantages,
        old_policy: OldPolicy,
        update_index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Regularization loss of the policy, to be minimised."""
        size = self.init_step_size * jnp.maximum(1.0 - update_index / self.num_updates, 0.01)
        return policy_divergence(current.policy, jax.lax.stop_gradient(old_policy()), rollout)[1] / size


def policy_divergence(
    old_policy: Distribution, new_policy: Distribution, rollout: RolloutWithAdvantages
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Policy divergence: mean square root and mean of ``KL(old_policy || new_policy)``, where the agent acted."""
    kl = jax.vmap(jax.vmap(lambda p, q: p.kl(q)))(old_policy, new_policy)
    kl = jnp.maximum(kl, 0.0)  # rounding may make it negative
    # 1e-12: the gradient of the square root is infinite at 0
    return masked_mean(jnp.sqrt(kl + 1e-12), rollout.alive), masked_mean(kl, rollout.alive)

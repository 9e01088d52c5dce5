r"""Meta-gradients: a hyperparameter is learned from the loss after the update that it influenced.

.. math:: \frac{d L'(\theta', \tau')}{d \eta} = \frac{\partial L'}{\partial \theta'} \cdot \frac{d \theta'}{d \eta},
          \qquad \theta' = \theta - f(\theta, \tau, \eta)

(After Xu, van Hasselt and Silver 2018; through one step.) As :math:`\eta` is one number, :math:`d\theta'/d\eta` is as
large as :math:`\theta`: it is stored, exactly, until the next rollout :math:`\tau'` gives the other factor.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thespis.core.records import Number
from thespis.learners.on_policy.actor_critic import ActorCritic, RolloutWithAdvantages, RolloutWithValues
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.objectives.statistics import masked_mean


class OuterCritic(eqx.Module):
    """Slot: the critic of the outer objective."""

    has_critic: eqx.AbstractClassVar[bool]
    """Whether it has parameters of its own."""

    @abc.abstractmethod
    def init(self, network: ActorCritic) -> PyTree:
        """Its parameters, from another freshly initialized ``network``; ``()`` if it has none."""

    @abc.abstractmethod
    def outer_network(self, network: ActorCritic, outer_critic: PyTree) -> ActorCritic:
        """The network of the outer objective."""


class SharedCritic(OuterCritic):
    """Outer objective that uses the critic of the learned discount, too: biased (Xu et al. 2018)."""

    has_critic: ClassVar[bool] = False

    def init(self, network: ActorCritic) -> tuple[()]:
        """No parameters of its own."""
        return ()

    def outer_network(self, network: ActorCritic, outer_critic: PyTree) -> ActorCritic:
        """Outer critic: the network of the inner one."""
        return network


class SeparateCritic(OuterCritic):
    """Outer critic with a network of its own, learned with the outer discount (Bonnet et al. 2022)."""

    has_critic: ClassVar[bool] = True

    def init(self, network: ActorCritic) -> PyTree:
        """Parameters of the outer critic: the critic of another freshly initialized ``network``."""
        return network.critic

    def outer_network(self, network: ActorCritic, outer_critic: PyTree) -> ActorCritic:
        """The network with the outer critic in place of its own."""
        return eqx.tree_at(lambda n: n.critic, network, outer_critic)


class DiscountBounds(eqx.Module):
    """Bounds of a learned discount, which is parameterized by a logit: ``low + (high - low) sigmoid(logit)``."""

    low: Number = 0.0
    """Lower bound of the discount, exclusive."""
    high: Number = 1.0
    """Upper bound of the discount, exclusive."""

    def to_logit(self, discount: Number) -> Float[Array, ""]:
        """The logit of a discount."""
        share = (discount - self.low) / (self.high - self.low)
        return jnp.asarray(jnp.log(share) - jnp.log1p(-share), "float32")

    def from_logit(self, logit: Float[Array, ""]) -> Float[Array, ""]:
        """The discount of a logit."""
        return self.low + (self.high - self.low) * jax.nn.sigmoid(logit)


def inner_loss(
    networks: tuple[ActorCritic, PyTree],
    outer_critic: OuterCritic,
    memory: Any,
    rollout: RolloutWithValues,
    advantage: Float[Array, "time row"],
    outer_target: Float[Array, "time row"],
    coefs: tuple[Number, Number],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """A2C loss with gradients through ``advantage``, plus the loss of the outer critic if there is one; and metrics.

    ``networks`` are the network and the parameters of the outer critic. ``coefs`` are the weights of the value losses
    and of the entropy bonus. Nothing of ``advantage`` is detached.
    """
    network, _ = networks
    evaluation = evaluate_rollout(network, memory, rollout)
    actor_loss = masked_mean(-evaluation.log_prob * advantage, rollout.alive)
    critic_loss = masked_mean(jnp.square(evaluation.value - rollout.value - advantage), rollout.alive)
    total = actor_loss + coefs[0] * critic_loss - coefs[1] * evaluation.entropy
    if outer_critic.has_critic:
        outer_value = evaluate_rollout(outer_critic.outer_network(*networks), memory, rollout).value
        total += coefs[0] * masked_mean(jnp.square(outer_value - outer_target), rollout.alive)
    return total, {"actor_loss": actor_loss, "critic_loss": critic_loss, "entropy": evaluation.entropy}


def outer_gradient(network: ActorCritic, memory: Any, rollout: RolloutWithAdvantages, ent_coef: Number) -> ActorCritic:
    """Gradient of the outer loss, ``-log pi A`` minus the entropy bonus, on a rollout of the current policy."""

    def loss(network: ActorCritic) -> Float[Array, ""]:
        evaluation = evaluate_rollout(network, memory, rollout)
        return masked_mean(-evaluation.log_prob * rollout.advantage, rollout.alive) - ent_coef * evaluation.entropy

    return jax.grad(loss)(network)


def step_with_tangent(
    step_fn: Callable[[Float[Array, ""]], tuple[PyTree, Any]], meta_param: Float[Array, ""]
) -> tuple[PyTree, PyTree, Any]:
    """Differentiate ``step_fn`` at ``meta_param``: result, derivative with respect to this number, auxiliary output.

    The square root in Adam has no derivative at 0. A parameter that never had a gradient does not depend on the number
    either: its derivative is set to 0.
    """
    result, tangents, aux = jax.jvp(step_fn, (meta_param,), (jnp.ones_like(meta_param),), has_aux=True)
    return result, jax.tree.map(lambda slope: jnp.where(jnp.isnan(slope), 0.0, slope), tangents), aux


def tree_vdot(gradient: PyTree, tangent: PyTree) -> Float[Array, ""]:
    """Dot product of two trees, summed over all entries: the directional derivative of a loss along a tangent."""
    parts = jax.tree.leaves(jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, tangent))
    return jnp.sum(jnp.stack(parts))


def meta_step(
    meta_param: Float[Array, ""], opt_state: PyTree, gradient: Float[Array, ""], optimizer: Adam
) -> tuple[Float[Array, ""], PyTree]:
    """Take one optimizer step on the meta-parameter, given its gradient; returns it and the optimizer state."""
    meta_param, opt_state, _, _ = gradient_step(optimizer, lambda n: (n * gradient, ()), meta_param, opt_state)
    return meta_param, opt_state

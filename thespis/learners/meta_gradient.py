r"""A number that learning depends on, learnt itself by what the step that it led to is worth.

.. math:: \frac{d L'(\theta', \tau')}{d \eta} = \frac{\partial L'}{\partial \theta'} \cdot \frac{d \theta'}{d \eta},
          \qquad \theta' = \theta - f(\theta, \tau, \eta)

(After Xu, van Hasselt and Silver 2018; of one step.) As :math:`\eta` is one number, :math:`d\theta'/d\eta` is as
large as :math:`\theta`: it is carried along, exactly, until the next rollout :math:`\tau'` gives the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thespis.learners.actor_critic import ActorCritic, Evaluated, Seen
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.on_policy import replay
from thespis.objectives.normalise import mean


class OneHead(eqx.Module):
    """The critic of the learnt discount says what the outer objective is worth, too: biased (Xu et al. 2018)."""

    learns: ClassVar[bool] = False

    def init(self, fresh: ActorCritic) -> tuple[()]:
        """Nothing more."""
        return ()

    def judging(self, network: ActorCritic, outer: PyTree) -> ActorCritic:
        """The network itself."""
        return network


class TwoHeads(eqx.Module):
    """A critic of the outer discount, a net of its own, learns beside the other (Bonnet et al. 2022)."""

    learns: ClassVar[bool] = True

    def init(self, fresh: ActorCritic) -> PyTree:
        """The critic of another fresh network."""
        return fresh.critic

    def judging(self, network: ActorCritic, outer: PyTree) -> ActorCritic:
        """The network with the outer critic in place of its own."""
        return eqx.tree_at(lambda n: n.critic, network, outer)


Outer = OneHead | TwoHeads


class Bounded(eqx.Module):
    """A discount between two bounds, kept as a number without any: ``low + (high - low) sigmoid(number)``."""

    low: Number = 0.0
    """The discount stays above this."""
    high: Number = 1.0
    """The discount stays below this."""

    def number(self, discount: Number) -> Float[Array, ""]:
        """What stands for ``discount``."""
        share = (discount - self.low) / (self.high - self.low)
        return jnp.asarray(jnp.log(share) - jnp.log1p(-share), "float32")

    def discount(self, number: Float[Array, ""]) -> Float[Array, ""]:
        """What ``number`` stands for."""
        return self.low + (self.high - self.low) * jax.nn.sigmoid(number)


def inner_loss(
    networks: tuple[ActorCritic, PyTree],
    outer: Outer,
    memory: Any,
    seen: Seen,
    advantage: Float[Array, "time row"],
    outer_target: Float[Array, "time row"],
    weights: tuple[Number, Number],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """A2C's loss with ``advantage``, of which nothing is held back, and the outer critic's; and metrics.

    ``weights``: of the critics' losses and of the entropy.
    """
    network, _ = networks
    now = replay(network, memory, seen)
    actor_loss = mean(-now.log_prob * advantage, seen.alive)
    critic_loss = mean(jnp.square(now.value - seen.value - advantage), seen.alive)
    total = actor_loss + weights[0] * critic_loss - weights[1] * now.entropy
    if outer.learns:
        judged = replay(outer.judging(*networks), memory, seen).value
        total += weights[0] * mean(jnp.square(judged - outer_target), seen.alive)
    return total, {"actor_loss": actor_loss, "critic_loss": critic_loss, "entropy": now.entropy}


def outer_slope(network: ActorCritic, memory: Any, verdict: Evaluated, entropy_weight: Number) -> ActorCritic:
    """Gradient of the outer loss, ``-log pi A`` less the entropy's share, at a rollout of this very policy."""

    def loss(network: ActorCritic) -> Float[Array, ""]:
        now = replay(network, memory, verdict)
        return mean(-now.log_prob * verdict.advantage, verdict.alive) - entropy_weight * now.entropy

    return jax.grad(loss)(network)


def followed(
    step: Callable[[Float[Array, ""]], tuple[PyTree, Any]], number: Float[Array, ""]
) -> tuple[PyTree, PyTree, Any]:
    """Where a step leads, how that changes with the number, and what else ``step`` says: ``step(number)`` and slopes.

    The root in Adam has no slope at 0. What never had a gradient is moved by no number either: its slope is 0.
    """
    led, slopes, said = jax.jvp(step, (number,), (jnp.ones_like(number),), has_aux=True)
    return led, jax.tree.map(lambda slope: jnp.where(jnp.isnan(slope), 0.0, slope), slopes), said


def along(slope: PyTree, tangent: PyTree) -> Float[Array, ""]:
    """How steep a loss is along a tangent: the sum of all products."""
    parts = jax.tree.leaves(jax.tree.map(lambda g, t: jnp.sum(g * t), slope, tangent))
    return jnp.sum(jnp.stack(parts))


def meta_step(
    number: Float[Array, ""], opt: PyTree, gradient: Float[Array, ""], optimiser: Adam
) -> tuple[Float[Array, ""], PyTree]:
    """The number after a step down a gradient that is known already, and the optimiser's state."""
    number, opt, _, _ = gradient_step(optimiser, lambda n: (n * gradient, ()), number, opt)
    return number, opt

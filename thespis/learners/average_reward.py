r"""Learning by the average reward: nothing is discounted, every step counts by how far it pays above the average.

With the average :math:`\eta` of the reward per step, values are :math:`V(s) = E[\sum_t (r_t - \eta)]`. Where a world
ends it begins again, and what follows is worth 0: over whole episodes it is 0 on average if :math:`\eta` is right.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from thespis.core.records import Batch
from thespis.learners.actor_critic import ActorCritic, Assessor
from thespis.learners.adagrad import Descent, descent
from thespis.learners.gradient import Number
from thespis.learners.normalisers import AsTheyAre, RawReward
from thespis.learners.on_policy import replay
from thespis.objectives.normalise import mean
from thespis.objectives.policies import policy_gradient


class Learnt(eqx.Module):
    """What gradients change."""

    network: ActorCritic
    average: Float[Array, ""]
    """Reward per step."""


def one_step(learnt: Learnt, batch: Batch) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""A loss over the steps of a batch whose gradient is, in the mean over steps with the error

    .. math:: \delta = r - \eta + V(s') - V(s)

    :math:`-\delta \nabla V(s)` for the critic, :math:`-\delta \nabla \log \pi(a|s)` for the actor and
    :math:`\eta - r` for the average (Sutton and Barto 2018, section 13.6, with :math:`r - \eta` in place of
    :math:`\delta` for the average); and metrics.
    """
    fixed = jax.lax.stop_gradient(learnt)
    seen = Assessor(AsTheyAre(), RawReward(), 1.0, 0.0).see(fixed.network, ((), (), ()), batch)
    now = replay(learnt.network, batch.memory, seen)
    error = seen.reward - fixed.average + jnp.where(seen.terminated, 0.0, seen.next_value) - seen.value
    actor_loss = mean(policy_gradient(now.log_prob, error), seen.alive)
    critic_loss = mean(jnp.square(error + seen.value - now.value) / 2, seen.alive)
    average_loss = mean(jnp.square(seen.reward - learnt.average) / 2, seen.alive)
    metrics = {"average_reward": learnt.average, "entropy": now.entropy}
    return actor_loss + critic_loss + average_loss, metrics | {"actor_loss": actor_loss, "critic_loss": critic_loss}


def stepper(learnt: Learnt, kind: Descent, actor_rate: Number, critic_rate: Number) -> Any:
    """Gradients to steps, apart for the actor, the critic and the average, which shares the critic's step size."""
    network = jax.tree.map(lambda _: "actor", learnt.network)
    network = eqx.tree_at(lambda n: n.critic, network, jax.tree.map(lambda _: "critic", learnt.network.critic))
    rates = {"actor": actor_rate, "critic": critic_rate, "average": critic_rate}
    parts = jax.tree.unflatten(jax.tree.structure(learnt), [*jax.tree.leaves(network), "average"])
    return optax.multi_transform({part: descent(kind, rate) for part, rate in rates.items()}, parts)

"""What members that each learn a distribution of returns take as a target, and how they are fitted to it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.critics.categorical import CategoricalValue
from thespis.learners.backup import Backup
from thespis.learners.choices import masked
from thespis.learners.gradient import Optimiser, gradient_step
from thespis.objectives.categorical import cross_entropy, projected
from thespis.objectives.normalise import mean

Distributions = Float[Array, "n atoms"]
"""Of the return after every choice."""


class Own(eqx.Module):
    """Each member's own: members learn apart."""

    def believed(self, critics: CategoricalValue, member: Int[Array, ""], observation: PyTree) -> Distributions:
        """What ``member`` starts from."""
        return jax.tree.map(lambda x: x[member], critics).chances(observation)


class Mixture(eqx.Module):
    r"""The average of all members', alike for each (Lindenberg et al. 2020): :math:`\tfrac1k \sum_j p_j(s, a)`."""

    def believed(self, critics: CategoricalValue, member: Int[Array, ""], observation: PyTree) -> Distributions:
        """What everybody starts from."""
        return jnp.mean(jax.vmap(lambda critic: critic.chances(observation))(critics), axis=0)


Believed = Own | Mixture


def dealt(data: Backup, members: int) -> Backup:
    """The samples in as many shares as there are members, ``[member, row, ...]``. Raises ``UserError`` if they are not
    equal.
    """
    rows = data.earned.shape[0]
    if rows % members:
        raise UserError(f"a batch of {rows} samples cannot be dealt to {members} members: change feed.batch")
    return jax.tree.map(lambda x: x.reshape(members, rows // members, *x.shape[1:]), data)


def following(believed: Believed, critics: CategoricalValue, shares: Backup) -> Float[Array, "members row atoms"]:
    """Targets: the return after the choice that is best on average, moved by what was earned before it."""

    def one(member: Array, view: View, earned: Array, discount: Array) -> Float[Array, " atoms"]:
        chances = believed.believed(critics, member, view.observation)
        best = jnp.argmax(masked(chances @ critics.support, view.legal))
        return projected(earned + discount * critics.support, chances[best], critics.support)

    rows = jax.vmap(one, in_axes=(None, 0, 0, 0))
    return jax.vmap(rows)(jnp.arange(shares.earned.shape[0]), shares.next_view, shares.earned, shares.discount)


def fit_distributions(
    optimiser: Optimiser,
    critics: CategoricalValue,
    opt_state: PyTree,
    shares: Backup,
    target: Float[Array, "members row atoms"],
) -> tuple[CategoricalValue, PyTree, dict[str, Array]]:
    """One step of every member down the cross-entropy to its targets; members' mean losses are summed."""

    def of(critic: CategoricalValue, data: Backup, target: Array) -> tuple[Array, Array]:
        logits = jax.vmap(lambda view, action: critic.logits(view.observation)[action])(data.view, data.action)
        value = jax.nn.softmax(logits) @ critic.support
        return mean(jax.vmap(cross_entropy)(target, logits), data.alive), mean(value, data.alive)

    def objective(critics: CategoricalValue) -> tuple[Array, tuple[Array, Array]]:
        losses, values = jax.vmap(of)(critics, shares, target)
        return jnp.sum(losses), (losses, values)

    critics, opt_state, (losses, values), norm = gradient_step(optimiser, objective, critics, opt_state)
    return critics, opt_state, {"critic_loss": losses.mean(), "value": values.mean(), "critic_gradient": norm}

"""Categorical Q-learning (C51) with ensembles: target distributions and the update towards them."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Report, View
from thespis.critics.categorical import CategoricalQ
from thespis.learners.off_policy.critic_updates import NStepBatch
from thespis.learners.off_policy.discrete_q import mask_illegal
from thespis.learners.optim.optimizers import Optimizer, gradient_step
from thespis.objectives.distributional import categorical_cross_entropy, project_categorical
from thespis.objectives.statistics import masked_mean

ReturnDistributions = Float[Array, "n atoms"]
"""Probabilities of the atoms of the return, for each action."""


class TargetDistribution(eqx.Module):
    """Slot: the return distribution from which a member of an ensemble bootstraps."""

    @abc.abstractmethod
    def next_distributions(
        self, critics: CategoricalQ, member: Int[Array, ""], observation: PyTree
    ) -> ReturnDistributions:
        """Return distributions of all actions at the next observation, for the targets of ``member``."""


class MemberDistribution(TargetDistribution):
    """Per-member bootstrap: each member bootstraps from its own distribution, so members learn independently."""

    def next_distributions(
        self, critics: CategoricalQ, member: Int[Array, ""], observation: PyTree
    ) -> ReturnDistributions:
        """Return distributions of ``member`` for one observation."""
        return jax.tree.map(lambda x: x[member], critics).probs(observation)


class MixtureDistribution(TargetDistribution):
    r"""Mixture bootstrap: all members bootstrap from the mean of their distributions (Lindenberg et al. 2020).

    .. math:: \tfrac1k \sum_j p_j(s, a)
    """

    def next_distributions(
        self, critics: CategoricalQ, member: Int[Array, ""], observation: PyTree
    ) -> ReturnDistributions:
        """Mean return distributions of all members for one observation."""
        return jnp.mean(jax.vmap(lambda critic: critic.probs(observation))(critics), axis=0)


def split_batch(batch: NStepBatch, ensemble_size: int) -> NStepBatch:
    """Split a batch into equal shares, one per member, ``[member, row, ...]``.

    Raises ``UserError`` if the batch size is not a multiple of the ensemble size.
    """
    rows = batch.reward.shape[0]
    if rows % ensemble_size:
        raise UserError(
            f"a batch of {rows} samples cannot be split among {ensemble_size} members: change feed.batch_size"
        )
    return jax.tree.map(lambda x: x.reshape(ensemble_size, rows // ensemble_size, *x.shape[1:]), batch)


def categorical_targets(
    target_distribution: TargetDistribution,
    critics: CategoricalQ,
    batches: NStepBatch,
    selectors: CategoricalQ | None = None,
) -> Float[Array, "members row atoms"]:
    """Target distributions: those of the greedy next actions, discounted, shifted by the reward and projected.

    The greedy action is the legal one with the largest mean of the target distribution; with ``selectors`` (double
    Q-learning), of the same distribution by these networks.
    """

    def single(member: Array, view: View, earned: Array, discount: Array) -> Float[Array, " atoms"]:
        probs = choices = target_distribution.next_distributions(critics, member, view.observation)
        if selectors is not None:
            choices = target_distribution.next_distributions(selectors, member, view.observation)
        best = jnp.argmax(mask_illegal(choices @ critics.support, view.action_mask))
        return project_categorical(earned + discount * critics.support, probs[best], critics.support)

    per_row = jax.vmap(single, in_axes=(None, 0, 0, 0))
    return jax.vmap(per_row)(jnp.arange(batches.reward.shape[0]), batches.next_view, batches.reward, batches.discount)


def fit_distributions(
    optimizer: Optimizer,
    critics: CategoricalQ,
    opt_state: PyTree,
    batches: NStepBatch,
    target: Float[Array, "members row atoms"],
    prepare: Callable[[CategoricalQ], CategoricalQ] = lambda critics: critics,
) -> tuple[CategoricalQ, PyTree, Report]:
    """Fit every member by one gradient step on the cross-entropy to its targets; members' mean losses are summed.

    A batch with weights is reported with priorities: the cross-entropy of each row. ``prepare`` is applied to the
    critics before they are evaluated, inside the gradient: it draws the noise of noisy layers.
    """

    def member_loss(critic: CategoricalQ, data: NStepBatch, target: Array) -> tuple[Array, Array, Array]:
        logits = jax.vmap(lambda view, action: critic.logits(view.observation)[action])(data.view, data.action)
        value = jax.nn.softmax(logits) @ critic.support
        row_losses = jax.vmap(categorical_cross_entropy)(target, logits)
        weighted = row_losses if data.weights is None else row_losses * data.weights
        return masked_mean(weighted, data.alive), masked_mean(value, data.alive), row_losses

    def objective(critics: CategoricalQ) -> tuple[Array, tuple[Array, Array, Array]]:
        losses, values, row_losses = jax.vmap(member_loss)(prepare(critics), batches, target)
        return jnp.sum(losses), (losses, values, row_losses)

    critics, opt_state, (losses, values, row_losses), norm = gradient_step(optimizer, objective, critics, opt_state)
    metrics = {"critic_loss": losses.mean(), "value": values.mean(), "critic_gradient": norm}
    return critics, opt_state, Report(metrics, None if batches.weights is None else row_losses.reshape(-1))

"""N-step batches from replayed windows, and critic updates by regression on targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from thespis.core.records import Batch, Number, Report, View
from thespis.critics.value_functions import Critic, GaussianReturnQ, critic_observation, evaluate_ensemble
from thespis.learners.optim.optimizers import Optimizer, gradient_step
from thespis.objectives.returns import n_step_return
from thespis.objectives.statistics import masked_mean
from thespis.objectives.value_losses import gaussian_return_loss


class NStepBatch(eqx.Module):
    """N-step batch: for each sampled window its first step, n-step reward, and view and discount of the bootstrap.

    The target of a critic is ``reward + discount * value(next_view)``; ``discount`` is ``gamma**k`` of the window's own
    length ``k``, and 0 if the episode terminated in it. ``alive``: where the agent acted at the first step (``None``:
    everywhere); other windows take no part in learning. ``weights`` of rows in the critics' losses; ``None``: all 1.
    """

    view: View
    action: PyTree
    reward: Float[Array, " row"]
    discount: Float[Array, " row"]
    next_view: View
    privileged: PyTree = None
    next_privileged: PyTree = None
    alive: Bool[Array, " row"] | None = None
    weights: Float[Array, " row"] | None = None

    @property
    def critic_observation(self) -> PyTree:
        """Critic observations at the first steps of the windows."""
        return critic_observation(self.privileged, self.view.observation)

    @property
    def next_critic_observation(self) -> PyTree:
        """Critic observations to bootstrap from."""
        return critic_observation(self.next_privileged, self.next_view.observation)

    def masked_mean(self, values: Float[Array, "row members"]) -> Float[Array, " members"]:
        """Means over the rows where the agent acted."""
        return jax.vmap(masked_mean, in_axes=(1, None))(values, self.alive)

    def weighted_mean(self, losses: Float[Array, "row members"]) -> Float[Array, " members"]:
        """Means over the same rows of losses that are multiplied by the rows' weights."""
        return self.masked_mean(losses if self.weights is None else losses * self.weights[:, None])


def n_step_batch(batch: Batch, discount: Number, normalize: Callable[[View], View] = lambda view: view) -> NStepBatch:
    """Build the N-step batch of all windows ``[time, row]`` of a batch; ``normalize`` is applied to each view."""
    steps = batch.steps
    alive = None if steps.view.alive is None else batch.mask[0]
    mask = batch.mask if alive is None else jnp.cumsum(~batch.mask, axis=0) == 0  # up to the agent's last decision
    n_step_reward, n_step_discount, last = jax.vmap(n_step_return, in_axes=(1, 1, 1, None))(
        steps.reward, steps.terminated, mask, discount
    )
    rows = jnp.arange(last.shape[0])
    view, action, privileged = jax.tree.map(lambda x: x[0], (steps.view, steps.action, steps.privileged))
    next_view, next_privileged = jax.tree.map(lambda x: x[last, rows], (steps.next_view, steps.next_privileged))
    views = jax.vmap(normalize)(view), jax.vmap(normalize)(next_view)
    return NStepBatch(
        views[0],
        action,
        n_step_reward,
        n_step_discount,
        views[1],
        privileged,
        next_privileged,
        alive,
        batch.weights,
    )


def fit_critics(
    optimizer: Optimizer,
    critics: Critic,
    opt_state: PyTree,
    batch: NStepBatch,
    target: Float[Array, "row *members"],
    loss: Any = jnp.square,
    prepare: Callable[[Critic], Critic] = lambda critics: critics,
) -> tuple[Critic, PyTree, Report]:
    """Fit every member of an ensemble to the targets by one gradient step; members' mean losses are summed.

    ``target``: one per row for all members, or one per row and member. A batch with weights is reported with
    priorities: absolute errors, averaged over the members. ``prepare`` is applied to the critics before they are
    evaluated, inside the gradient: it draws the noise of noisy layers.
    """
    targets = target if target.ndim > 1 else target[:, None]

    def objective(critics):
        evaluated = prepare(critics)
        values = jax.vmap(lambda o, a: evaluate_ensemble(evaluated, o, _add_axis(a))[:, 0])(
            batch.critic_observation, batch.action
        )
        return jnp.sum(batch.weighted_mean(loss(values - targets))), values

    critics, opt_state, values, norm = gradient_step(optimizer, objective, critics, opt_state)
    metrics = {"critic_loss": loss(values - targets), "value": values}
    means = {name: jnp.mean(batch.masked_mean(x)) for name, x in metrics.items()}
    priorities = None if batch.weights is None else jnp.mean(jnp.abs(values - targets), axis=1)
    return critics, opt_state, Report(means | {"critic_gradient": norm}, priorities)


def fit_gaussian_returns(
    optimizer: Optimizer,
    critic: GaussianReturnQ,
    opt_state: PyTree,
    batch: NStepBatch,
    target: Float[Array, " row"],
    *,
    min_std: Number,
    td_bound: Number,
) -> tuple[GaussianReturnQ, PyTree, dict[str, Array]]:
    """Fit a distributional critic with Gaussian returns to sampled returns by one gradient step.

    ``min_std`` is added to the predicted standard deviation.
    """

    def objective(critic):
        value, excess = jax.vmap(lambda o, a: critic(o, _add_axis(a)))(batch.critic_observation, batch.action)
        value, deviation = value[:, 0], min_std + excess[:, 0]
        losses = gaussian_return_loss(value, deviation, target, td_bound)
        stats = {"critic_loss": losses, "value": value, "deviation": deviation}
        stats = {name: masked_mean(x, batch.alive) for name, x in stats.items()}
        return stats["critic_loss"], stats

    critic, opt_state, metrics, norm = gradient_step(optimizer, objective, critic, opt_state)
    return critic, opt_state, metrics | {"critic_gradient": norm}


def _add_axis(action: PyTree) -> PyTree:
    """Actions with a leading axis of 1."""
    return jax.tree.map(lambda x: x[None], action)

"""From replayed windows to one-row-a-sample regression data, for any number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from thespis.core.records import Batch, View
from thespis.critics.values import Critic, PairReturn, evaluate_ensemble, seen_by_critics
from thespis.learners.gradient import Number, Optimiser, gradient_step
from thespis.objectives.normalise import mean
from thespis.objectives.returns import n_step
from thespis.objectives.values import gaussian_return_loss


class Backup(eqx.Module):
    """Of each sampled window: where it starts, what it earned, and where and at which discount to bootstrap.

    The target of a critic is ``earned + discount * value(next_view)``; ``discount`` is ``gamma**k`` of the
    window's own length ``k``, and 0 if the world terminated in it. ``alive``: where the actor decided at the start
    (``None``: everywhere); other windows take no part in learning.
    """

    view: View
    action: PyTree
    earned: Float[Array, " row"]
    discount: Float[Array, " row"]
    next_view: View
    privileged: PyTree = None
    next_privileged: PyTree = None
    alive: Bool[Array, " row"] | None = None

    @property
    def seen(self) -> PyTree:
        """What critics look at where the windows start."""
        return seen_by_critics(self.privileged, self.view.observation)

    @property
    def next_seen(self) -> PyTree:
        """What critics look at where to bootstrap."""
        return seen_by_critics(self.next_privileged, self.next_view.observation)

    def means(self, values: Float[Array, "row members"]) -> Float[Array, " members"]:
        """Means over the rows where the actor decided."""
        return jax.vmap(mean, in_axes=(1, None))(values, self.alive)


def backup(batch: Batch, discount: Number, see: Callable[[View], View] = lambda view: view) -> Backup:
    """The backup of every window ``[time, row]`` of a batch; ``see`` is applied to each view (scaling)."""
    steps = batch.steps
    alive = None if steps.view.alive is None else batch.mask[0]
    mask = batch.mask if alive is None else jnp.cumsum(~batch.mask, axis=0) == 0  # up to where it decides no more
    earned, factor, last = jax.vmap(n_step, in_axes=(1, 1, 1, None))(steps.reward, steps.terminated, mask, discount)
    rows = jnp.arange(last.shape[0])
    view, action, privileged = jax.tree.map(lambda x: x[0], (steps.view, steps.action, steps.privileged))
    next_view, further = jax.tree.map(lambda x: x[last, rows], (steps.next_view, steps.next_privileged))
    views = jax.vmap(see)(view), jax.vmap(see)(next_view)
    return Backup(views[0], action, earned, factor, views[1], privileged, further, alive)


def fit_critics(
    optimiser: Optimiser,
    critics: Critic,
    opt_state: PyTree,
    data: Backup,
    target: Float[Array, "row *members"],
    loss: Any = jnp.square,
) -> tuple[Critic, PyTree, dict[str, Array]]:
    """One step of every member of an ensemble towards the targets, which may be its own; members' mean losses are
    summed.
    """
    wanted = target if target.ndim > 1 else target[:, None]

    def objective(critics):
        values = jax.vmap(lambda o, a: evaluate_ensemble(critics, o, _one(a))[:, 0])(data.seen, data.action)
        return jnp.sum(data.means(loss(values - wanted))), values

    critics, opt_state, values, norm = gradient_step(optimiser, objective, critics, opt_state)
    metrics = {"critic_loss": loss(values - wanted), "value": values}
    found = {name: jnp.mean(data.means(x)) for name, x in metrics.items()}
    return critics, opt_state, found | {"critic_gradient": norm}


def fit_returns(
    optimiser: Optimiser,
    critic: PairReturn,
    opt_state: PyTree,
    data: Backup,
    target: Float[Array, " row"],
    *,
    floor: Number,
    bound: Number,
) -> tuple[PairReturn, PyTree, dict[str, Array]]:
    """One step of a distributional critic towards sampled returns; ``floor`` is added to its deviation."""

    def objective(critic):
        value, excess = jax.vmap(lambda o, a: critic(o, _one(a)))(data.seen, data.action)
        value, deviation = value[:, 0], floor + excess[:, 0]
        losses = gaussian_return_loss(value, deviation, target, bound)
        found = {"critic_loss": losses, "value": value, "deviation": deviation}
        found = {name: mean(x, data.alive) for name, x in found.items()}
        return found["critic_loss"], found

    critic, opt_state, metrics, norm = gradient_step(optimiser, objective, critic, opt_state)
    return critic, opt_state, metrics | {"critic_gradient": norm}


def _one(action: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[None], action)

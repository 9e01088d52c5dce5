"""Learning utilities whose mean is a value: what the next state is worth, and what holds utilities where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from thespis.core.records import View
from thespis.critics.decoupled import DecoupledValue, utilities_of
from thespis.learners.backup import Backup
from thespis.learners.choices import legal_values
from thespis.learners.gradient import Number, Optimiser, gradient_step

Tables = Float[Array, "member part widest"]
"""Utilities by every member, those of illegal choices far below any other."""


class OwnUtilities(eqx.Module):
    """Each member by itself: its target net's value of the vector that its online net likes best."""

    double: bool = eqx.field(static=True, default=True)
    """Choose by the online net (van Hasselt et al., 2016); else by the target net itself."""

    def value(self, online: Callable[[], Tables], target: Tables) -> Float[Array, " member"]:
        """What each member expects."""
        chooser = online() if self.double else target
        return jnp.mean(utilities_of(target, jnp.argmax(chooser, axis=-1)), axis=-1)


class MeanUtilities(eqx.Module):
    """All members alike: the best of their mean utilities, whose targets vary less (Ireland and Montana, 2024)."""

    def value(self, online: Callable[[], Tables], target: Tables) -> Float[Array, " member"]:
        """What all of them together expect."""
        value = jnp.mean(jnp.max(jnp.mean(target, axis=0), axis=-1))
        return jnp.broadcast_to(value, target.shape[:1])


Expected = OwnUtilities | MeanUtilities


class Unheld(eqx.Module):
    """Nothing."""

    def cost(
        self, now: Float[Array, "member part"], before: Callable[[], Float[Array, "member part"]], target: Array
    ) -> Float[Array, " member"]:
        """Nothing."""
        return jnp.zeros(now.shape[0])


class Held(eqx.Module):
    r"""Utilities that explain a target badly are held to what they were (Ireland and Montana, 2024).

    .. math:: \beta \tfrac1N \sum_i w_i (\bar U_i - U_i)^2, \quad w_i = 1 - e^{-|\delta_i|}, \quad \delta_i = y - U_i

    A target far from one part's own utility likely owes that to choices of other parts, made to explore. The weight is
    held constant. Barred is the target net.
    """

    weight: Number = 0.5
    """Their ``beta``."""

    def cost(
        self,
        now: Float[Array, "member part"],
        before: Callable[[], Float[Array, "member part"]],
        target: Float[Array, " member"],
    ) -> Float[Array, " member"]:
        """The loss of one sample, for every member."""
        apart = jax.lax.stop_gradient(target[:, None] - now)
        doubt = 1.0 - jnp.exp(-jnp.abs(apart))
        return self.weight * jnp.mean(doubt * (before() - now) ** 2, axis=-1)


Holding = Unheld | Held


def tables(critics: DecoupledValue, view: View) -> Tables:
    """Utilities in one view."""
    return critics.parts.table(legal_values(critics, view))


def expected(
    believed: Expected, online: DecoupledValue, target: DecoupledValue, data: Backup
) -> Float[Array, "row member"]:
    """The targets of every sample."""

    def one(view: View) -> Array:
        return believed.value(lambda: tables(online, view), tables(target, view))

    return data.earned[:, None] + data.discount[:, None] * jax.vmap(one)(data.next_view)


def fit_utilities(
    optimiser: Optimiser,
    critics: DecoupledValue,
    before: DecoupledValue,
    opt_state: PyTree,
    data: Backup,
    target: Float[Array, "row member"],
    loss: Any,
    holding: Holding,
) -> tuple[DecoupledValue, PyTree, dict[str, Array]]:
    """One step of every member towards its targets, by ``loss`` of the error; members' mean losses are summed."""
    chosen = jax.vmap(critics.parts.entered)(data.action)

    def taken(critics: DecoupledValue, view: View, choices: Array) -> Float[Array, "member part"]:
        found = critics.parts.table(jax.vmap(lambda critic: critic.all(view.observation))(critics))
        return utilities_of(found, jnp.broadcast_to(choices, (found.shape[0], choices.shape[0])))

    def objective(critics: DecoupledValue) -> tuple[Array, tuple[Array, Array, Array]]:
        def one(view: View, choices: Array, target: Array) -> tuple[Array, Array, Array]:
            now = taken(critics, view, choices)
            cost = holding.cost(now, lambda: taken(before, view, choices), target)
            return jnp.mean(now, axis=-1), loss(jnp.mean(now, axis=-1) - target), cost

        values, losses, costs = (data.means(x) for x in jax.vmap(one)(data.view, chosen, target))
        return jnp.sum(losses + costs), (values, losses, costs)

    critics, opt_state, (values, losses, costs), norm = gradient_step(optimiser, objective, critics, opt_state)
    found = {"critic_loss": losses.mean(), "held_loss": costs.mean(), "value": values.mean(), "critic_gradient": norm}
    return critics, opt_state, found

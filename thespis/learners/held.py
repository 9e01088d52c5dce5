"""What holds the actor of a soft method to what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from thespis.actors.soft import Soft
from thespis.core.records import View
from thespis.learners.gradient import Number


class Loose(eqx.Module):
    """Nothing."""

    def init(self, actor: Soft) -> PyTree:
        """Nothing is kept."""
        return ()

    def cost(self, before: PyTree, now: Any, view: View, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """Nothing."""
        return jnp.zeros(())

    def renewed(self, before: PyTree, actor: PyTree, updates: Int[Array, ""]) -> PyTree:
        """Nothing is kept."""
        return ()


class Steps(eqx.Module):
    r"""Mirror descent: one trust-region problem for ``every`` updates (Tomar et al. 2022, equation 17).

    In their code entropy is linearised at the actor that began the problem, which leaves

    .. math:: (c - \alpha) \, KL(\pi \| \pi_k) + E_\pi[\alpha \log \pi - Q]
    """

    weight: Number = 1.0
    """Their ``c``: one over the step size of mirror descent, in units of reward."""
    every: int = eqx.field(static=True, default=1_000)
    """Updates on each problem."""

    def init(self, actor: Soft) -> PyTree:
        """The actor that begins."""
        return jax.tree.map(jnp.copy, actor)

    def cost(self, before: Callable[[View], Any], now: Any, view: View, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """The divergence at one view, beside the entropy's own weight."""
        return (self.weight - alpha) * now.kl(before(view))

    def renewed(self, before: PyTree, actor: PyTree, updates: Int[Array, ""]) -> PyTree:
        """The next problem's, once ``every`` updates are over."""
        return jax.lax.cond(updates % self.every == 0, lambda: actor, lambda: before)


Hold = Loose | Steps

"""How target nets follow the nets that learn from them."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from thespis.learners.gradient import polyak

Nets = TypeVar("Nets")


class Copied(eqx.Module):
    """One net, copied every so many updates (Mnih et al., 2015)."""

    members: ClassVar[int] = 1

    def renewed(self, online: Nets, target: Nets, updates: Int[Array, ""], every: int) -> tuple[Nets, Nets]:
        """Both after ``updates``."""
        return online, polyak(target, online, (updates % every == 0).astype("float32"))


class Chain(eqx.Module):
    r"""Nets of which each learns one Bellman update of the one before it (Vincent et al. 2024).

    Net :math:`\theta_k` is fitted to what target :math:`\bar\theta_{k-1}` says of the next state, for ``k`` from 1 to
    ``members``. The first target is fixed; every other is a copy of the net before, taken every ``copied`` updates.
    When the targets' time is over (``target_every`` of the method), the window moves on by one update: each target
    becomes the net that was fitted to it, and each net begins again from the one behind it, the last from itself.
    """

    members: int = eqx.field(static=True, default=5)
    """Bellman updates that are learnt at once (the paper's ``K``)."""
    copied: int = eqx.field(static=True, default=8)
    """Updates between copies of the nets to those targets that move with them (the paper's ``D``)."""

    def renewed(self, online: Nets, target: Nets, updates: Int[Array, ""], every: int) -> tuple[Nets, Nets]:
        """Both after ``updates``; row ``k`` of the targets belongs to row ``k`` of the nets."""
        moves, copies = updates % every == 0, updates % self.copied == 0

        def nets(o: Array) -> Array:
            return jnp.where(moves, jnp.concatenate([o[1:], o[-1:]]), o)

        def targets(o: Array, t: Array) -> Array:
            return jnp.where(moves, o, jnp.where(copies, jnp.concatenate([t[:1], o[:-1]]), t))

        return jax.tree.map(nets, online), jax.tree.map(targets, online, target)


Targets = Copied | Chain

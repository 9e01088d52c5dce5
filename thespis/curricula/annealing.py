r"""Annealing of named parameters: a world gets harder, or its reward stricter, as training goes on.

.. math:: \theta_f(t) = \text{bound}_f \text{ or } \theta_f \cdot factor_f^{\lfloor t / every \rfloor},
   \text{ whichever comes first}

with ``t`` the environment steps of a seed so far. Eschmann et al. 2023 grow the reward's penalties so: what is
forgiving lets a quadrotor learn to stay up, what is strict then makes it stay where it should, at little effort.

Differs: an episode keeps what it began with, and what lies in replay keeps its reward (the authors pay it anew).
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Curriculum
from thespis.core.errors import UserError
from thespis.core.records import Citation, EnvSpec, Outcomes, Report
from thespis.curricula.fixed import Fixed
from thespis.curricula.parameters import by_path, require_field, with_leaves

Growth = tuple[str, float, float]
"""(field, factor, bound): named by its path in ``spec.params``, such as ``reward.position``."""


class AnnealingState(eqx.Module):
    """Steps so far, and what ``base`` has learnt."""

    steps: Int[Array, ""]
    base: PyTree


class Annealing(eqx.Module):
    """Each field is multiplied by its factor every ``every`` steps, as far as its bound.

    ``base`` draws what is multiplied, so it goes with domain randomisation:
    ``Annealing(growths, base=DomainRandomisation(ranges))``.
    """

    growths: tuple[Growth, ...] = eqx.field(static=True)
    """(field, factor, bound) of each parameter that changes."""
    every: int = eqx.field(static=True, default=100_000)
    """Environment steps of a seed between two changes."""
    base: Curriculum = Fixed()
    """What draws parameters before they are changed: Fixed or DomainRandomisation."""

    name: ClassVar[str] = "annealing"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Learning to Fly in Seconds", "Eschmann et al.", 2023, "arXiv:2311.13081"),
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AnnealingState:
        """No step yet. Raises ``UserError`` for a field, factor or period that cannot be."""
        fields = by_path(spec.params)
        for name, factor, bound in self.growths:
            leaf = require_field(spec.name, fields, name)
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise UserError(f"the parameter {name!r} of {spec.name} is of type {leaf.dtype}: only floats can grow")
            if not (0 < factor < jnp.inf and abs(bound) < jnp.inf):
                raise UserError(f"{name!r} cannot be multiplied by {factor:g} up to {bound:g}: give a positive factor")
        if self.every < 1 or not self.growths:
            raise UserError("annealing needs at least one field, and at least one step between changes")
        return AnnealingState(jnp.zeros((), "int32"), self.base.init(spec, key))

    def draw(self, state: AnnealingState, key: Key[Array, ""], n: int) -> PyTree:
        """Parameters of ``n`` episodes, as far grown as the steps so far ask for."""
        drawn = self.base.draw(state.base, key, n)
        columns = by_path(drawn)
        times = (state.steps // self.every).astype("float32")
        for name, factor, bound in self.growths:
            columns[name] = _grown(columns[name], factor, bound, times)
        return with_leaves(drawn, columns)

    def update(self, state: AnnealingState, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[AnnealingState, Report]:
        """Counts the steps of a block, ``[time, row]``."""
        base, report = self.base.update(state.base, outcomes, key)
        return AnnealingState(state.steps + outcomes.ended.size, base), report


def _grown(leaf: Float[Array, "..."], factor: float, bound: float, times: Float[Array, ""]) -> Float[Array, "..."]:
    """``leaf * factor**times`` within ``bound``, which is above for a factor above one and below for one below."""
    grown = leaf * factor**times
    stopped = (
        jnp.minimum(grown, jnp.maximum(bound, leaf)) if factor > 1 else jnp.maximum(grown, jnp.minimum(bound, leaf))
    )
    return jnp.where(times > 0, stopped, leaf)


def for_hovering(base: Curriculum = Fixed(), *, every: int = 100_000) -> Annealing:  # noqa: B008
    """The schedule of Eschmann et al. 2023 for the reward of a quadrotor."""
    growths = ("reward.position", 1.2, 40.0), ("reward.velocity", 1.4, 1.0), ("reward.action", 1.4, 1.0)
    return Annealing(growths, every, base)

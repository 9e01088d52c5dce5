r"""Annealing of environment parameters: a task gets harder, or its reward stricter, as training goes on.

.. math:: \theta_f(t) = \text{bound}_f \text{ or } \theta_f \cdot factor_f^{\lfloor t / interval \rfloor},
   \text{ whichever comes first}

with ``t`` the environment steps of a seed so far. Eschmann et al. 2023 increase the reward's penalties in this way:
with small ones a quadrotor learns to stay up, with large ones it then learns to stay in place, at little effort.

Differs from them: an episode keeps the parameters that it started with, and transitions in replay keep their reward
(the authors recompute it).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Curriculum
from thespis.core.errors import UserError
from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition
from thespis.curricula.fixed import FixedCurriculum
from thespis.curricula.parameters import leaves_by_path, replace_leaves, require_parameter

GrowthSchedule = tuple[str, float, float]
"""``(field, factor, bound)``; a field is named by its path in ``spec.params``, such as ``reward.position``."""


class ParameterAnnealingState(eqx.Module):
    """Curriculum state: environment steps so far, and the state of ``base_curriculum``."""

    num_steps: Int[Array, ""]
    base_state: PyTree


class ParameterAnnealing(eqx.Module):
    """Curriculum that multiplies each field by its factor every ``change_interval`` steps, up to its bound.

    ``base_curriculum`` draws the parameters that are multiplied, so annealing can be combined with domain
    randomisation: ``ParameterAnnealing(schedules, base_curriculum=DomainRandomization(ranges))``.
    """

    schedules: tuple[GrowthSchedule, ...] = eqx.field(static=True)
    """``(field, factor, bound)`` of each parameter that changes."""
    change_interval: int = eqx.field(static=True, default=100_000)
    """Environment steps of a seed between two changes."""
    base_curriculum: Curriculum = FixedCurriculum()
    """Draws parameters before they are multiplied: FixedCurriculum or DomainRandomization."""

    name: ClassVar[str] = "annealing"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Learning to Fly in Seconds", "Eschmann et al.", 2023, "arXiv:2311.13081"),
    )
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ParameterAnnealingState:
        """No steps yet. Raises ``UserError`` for an invalid field, factor, bound or interval."""
        fields = leaves_by_path(spec.params)
        for name, factor, bound in self.schedules:
            leaf = require_parameter(spec.name, fields, name)
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise UserError(f"the parameter {name!r} of {spec.name} is of type {leaf.dtype}: only floats can grow")
            if not (0 < factor < jnp.inf and abs(bound) < jnp.inf):
                raise UserError(f"{name!r} cannot be multiplied by {factor:g} up to {bound:g}: give a positive factor")
        if self.change_interval < 1 or not self.schedules:
            raise UserError("annealing needs at least one field, and at least one step between changes")
        return ParameterAnnealingState(jnp.zeros((), "int32"), self.base_curriculum.init(spec, key))

    def draw(self, state: ParameterAnnealingState, key: Key[Array, ""], n: int) -> Draw:
        """Parameters of ``n`` episodes, multiplied as the number of steps so far requires."""
        drawn = self.base_curriculum.draw(state.base_state, key, n)
        columns = leaves_by_path(drawn.params)
        num_changes = (state.num_steps // self.change_interval).astype("float32")
        for name, factor, bound in self.schedules:
            columns[name] = _scaled_to_bound(columns[name], factor, bound, num_changes)
        return dataclasses.replace(drawn, params=replace_leaves(drawn.params, columns))

    def update(
        self,
        state: ParameterAnnealingState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[ParameterAnnealingState, Report]:
        """Count the steps of a block, ``[time, row]``."""
        base, report = self.base_curriculum.update(state.base_state, rollout, critique, stats, key)
        return ParameterAnnealingState(state.num_steps + stats.done.size, base), report


def _scaled_to_bound(
    leaf: Float[Array, "..."], factor: float, bound: float, num_changes: Float[Array, ""]
) -> Float[Array, "..."]:
    """``leaf * factor**num_changes``, at most ``bound`` for a factor above one, at least ``bound`` for one below."""
    scaled = leaf * factor**num_changes
    clipped = (
        jnp.minimum(scaled, jnp.maximum(bound, leaf)) if factor > 1 else jnp.maximum(scaled, jnp.minimum(bound, leaf))
    )
    return jnp.where(num_changes > 0, clipped, leaf)


FIXED = FixedCurriculum()


def hover_reward_annealing(
    base_curriculum: Curriculum = FIXED,
    *,
    change_interval: int = 100_000,
) -> ParameterAnnealing:
    """Annealing schedule of Eschmann et al. 2023 for the reward of a quadrotor."""
    schedules = ("reward.position", 1.2, 40.0), ("reward.velocity", 1.4, 1.0), ("reward.action", 1.4, 1.0)
    return ParameterAnnealing(schedules, change_interval, base_curriculum)

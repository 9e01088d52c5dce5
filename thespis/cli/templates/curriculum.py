"""TemplateCurriculum: one parameter of the environment grows to its default as episodes end, to start from."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Number, Report, Transition
from thespis.curricula.parameters import leaves_by_path, replace_leaves, require_parameter


class TemplateCurriculumState(eqx.Module):
    """Default parameters, and the number of episodes that have ended."""

    params: PyTree
    num_ended: Int[Array, ""]


class TemplateCurriculum(eqx.Module):
    """Curriculum that starts with a share of one parameter and ends with its default."""

    parameter: str = eqx.field(static=True, default="length")
    """The parameter, by its path in ``spec.params``."""
    start: Number = 0.5
    """Share of the default that the first episodes have."""
    num_episodes: Number = 100.0
    """Episodes until the parameter has its default."""

    name: ClassVar[str] = "template-curriculum"
    citations: ClassVar[tuple[Citation, ...]] = ()
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TemplateCurriculumState:
        """No episode has ended. Raises ``UserError`` if the environment has no such parameter."""
        require_parameter(spec.name, leaves_by_path(spec.params), self.parameter)
        return TemplateCurriculumState(jax.tree.map(jnp.asarray, spec.params), jnp.zeros((), "int32"))

    def draw(self, state: TemplateCurriculumState, key: Key[Array, ""], n: int) -> Draw:
        """Choose ``n`` episodes: their parameters are the tree of ``spec.params`` with a leading axis ``n``."""
        progress = jnp.minimum(state.num_ended / self.num_episodes, 1.0)
        leaves = leaves_by_path(state.params)
        leaf = leaves[self.parameter]
        leaves[self.parameter] = (leaf * (self.start + (1.0 - self.start) * progress)).astype(leaf.dtype)
        params = replace_leaves(state.params, leaves)
        return Draw(jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), params))

    def update(
        self,
        state: TemplateCurriculumState,
        rollout: Transition,
        critique: Critique | None,
        stats: EpisodeStats,
        key: Key[Array, ""],
    ) -> tuple[TemplateCurriculumState, Report]:
        """Count the episodes that ended."""
        num_ended = state.num_ended + jnp.sum(stats.done, dtype="int32")
        return TemplateCurriculumState(state.params, num_ended), Report({"episodes": num_ended.astype("float32")})


def test_laws() -> None:
    """The curriculum keeps the laws of its contract: ``pytest template_curriculum.py``."""
    from thespis.core.laws.components import check_curriculum
    from thespis.envs import registry

    check_curriculum(TemplateCurriculum(), registry.make_compiled("CartPole-v1").spec)

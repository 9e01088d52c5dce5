"""Fixed curriculum: every episode has the environment's default parameters."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.records import Citation, Critique, Draw, EnvSpec, EpisodeStats, Report, Transition


def repeat_params(params: PyTree, n: int) -> PyTree:
    """Repeat parameters ``n`` times: the tree of ``params`` with a leading axis ``n``."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *jnp.shape(leaf))), params)


class FixedCurriculum(eqx.Module):
    """Curriculum of default parameters for every episode.

    The state is ``spec.params``, which ``draw`` does not receive.
    """

    name: ClassVar[str] = "fixed"
    citations: ClassVar[tuple[Citation, ...]] = ()
    needs_critique: ClassVar[bool] = False
    draws_per_rollout: ClassVar[bool] = False

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """The environment's default parameters, as arrays."""
        return jax.tree.map(jnp.asarray, spec.params)

    def draw(self, state: PyTree, key: Key[Array, ""], n: int) -> Draw:
        """The defaults ``n`` times; ``()`` for an environment without parameters."""
        return Draw(repeat_params(state, n))

    def update(
        self, state: PyTree, rollout: Transition, critique: Critique | None, stats: EpisodeStats, key: Key[Array, ""]
    ) -> tuple[PyTree, Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})

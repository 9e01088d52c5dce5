"""Every episode has the world's own parameters."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.records import Citation, EnvSpec, Outcomes, Report


def repeat(params: PyTree, n: int) -> PyTree:
    """The same parameters ``n`` times: the tree of ``params`` with a leading axis ``n``."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *jnp.shape(leaf))), params)


class Fixed(eqx.Module):
    """Nothing varies and nothing is learnt. The state is ``spec.params``, which ``draw`` does not see."""

    name: ClassVar[str] = "fixed"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """The world's default parameters, as arrays."""
        return jax.tree.map(jnp.asarray, spec.params)

    def draw(self, state: PyTree, key: Key[Array, ""], n: int) -> PyTree:
        """The defaults ``n`` times; ``()`` for a world without parameters."""
        return repeat(state, n)

    def update(self, state: PyTree, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[PyTree, Report]:
        """Nothing to do."""
        return state, Report({})

"""A ring of transitions, time first: ``[rows, env, ...]``. State in, state out; nothing is ever copied.

How many ticks have been written is the loop's own counter, the same for all seeds, so that writing stays a
slice update and sampling stays a gather when the whole is vmapped.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.records import Transition
from thespis.core.spread import pick


class Ring(eqx.Module):
    """Transitions ``[rows, env, ...]``, kept whole."""

    steps: Transition

    @property
    def rows(self) -> int:
        """Ticks it holds."""
        return self.steps.reward.shape[0]

    def write(self, steps: Transition, written: Int[Array, ""]) -> Ring:
        """The ring with ``[chunk, env]`` transitions written after ``written`` ticks, over the oldest."""
        return Ring(overwritten(self.steps, steps, written % self.rows))

    def sample(
        self, written: Int[Array, ""], key: Key[Array, ""], batch: int, length: int
    ) -> tuple[Transition, Bool[Array, "length batch"]]:
        """``batch`` windows of ``length`` consecutive steps of one environment each, uniform over their starts.

        The mask is true up to and including the first end of an episode in a window. No window spans the write
        head: starts are counted from the oldest row held. At least ``length`` ticks must have been written.
        """
        held = jnp.minimum(written, self.rows)
        steps = pick(self.steps, *windows(self.steps, written, held, key, batch, length))
        return steps, until_end(steps.ended)

    def check(self) -> None:
        """Anything can be kept whole."""


def empty(example: Transition, capacity: int, envs: int, chunk: int) -> Ring:
    """Room for ``capacity`` transitions of ``envs`` environments, shaped as one ``example`` transition.

    ``chunk`` is how many ticks are written at a time; the number of rows is a multiple of it.
    """
    return Ring(room(example, rows_for(capacity, envs, chunk), envs))


def rows_for(capacity: int, envs: int, chunk: int) -> int:
    """Rows that hold ``capacity`` transitions: a multiple of ``chunk``, and no fewer than two."""
    return max(-(-capacity // (envs * chunk)), 2) * chunk


def room(example: PyTree, rows: int, envs: int) -> PyTree:
    """Zeros ``[rows, env, ...]`` for every leaf of an example."""
    return jax.tree.map(lambda x: jnp.zeros((rows, envs, *x.shape), x.dtype), example)


def overwritten(old: PyTree, new: PyTree, row: Int[Array, ""]) -> PyTree:
    """``old[rows, env, ...]`` with ``new[chunk, env, ...]`` in its place from ``row`` on."""
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, row, axis=0), old, new)


def windows(
    steps: Transition, written: Int[Array, ""], held: Int[Array, ""], key: Key[Array, ""], batch: int, length: int
) -> tuple[Int[Array, "length batch"], Int[Array, " batch"]]:
    """Rows and environments of ``batch`` windows drawn uniformly from the newest ``held`` of ``written`` ticks."""
    rows, envs = steps.reward.shape
    start_key, env_key = jax.random.split(key)
    starts = jax.random.randint(start_key, (batch,), 0, held - length + 1)
    where = (written - held + starts[None] + jnp.arange(length)[:, None]) % rows
    return where, jax.random.randint(env_key, (batch,), 0, envs)


def until_end(ended: Bool[Array, "length batch"]) -> Bool[Array, "length batch"]:
    """True up to and including the first end along the first axis."""
    before = jnp.cumsum(ended.astype("int32"), axis=0) - ended
    return before == 0

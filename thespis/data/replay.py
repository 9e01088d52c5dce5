"""A ring of transitions, time first: ``[rows, env, ...]``. State in, state out; nothing is ever copied.

How many ticks have been written is the loop's own counter, the same for all seeds, so that writing stays a
slice update and sampling stays a gather when the whole is vmapped.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.records import Transition
from thespis.core.spread import pick


class Ring(eqx.Module):
    """Transitions ``[rows, env, ...]``."""

    steps: Transition

    @property
    def rows(self) -> int:
        """Ticks it holds."""
        return self.steps.reward.shape[0]


def empty(example: Transition, capacity: int, envs: int, chunk: int) -> Ring:
    """Room for ``capacity`` transitions of ``envs`` environments, shaped as one ``example`` transition.

    ``chunk`` is how many ticks are written at a time; the number of rows is a multiple of it.
    """
    rows = max(-(-capacity // (envs * chunk)), 2) * chunk
    return Ring(jax.tree.map(lambda x: jnp.zeros((rows, envs, *x.shape), x.dtype), example))


def write(ring: Ring, steps: Transition, written: Int[Array, ""]) -> Ring:
    """Write ``[chunk, env]`` transitions after ``written`` ticks, over the oldest."""
    at = written % ring.rows

    def leaf(room, new):
        return jax.lax.dynamic_update_slice_in_dim(room, new, at, axis=0)

    return Ring(jax.tree.map(leaf, ring.steps, steps))


def sample(
    ring: Ring, written: Int[Array, ""], key: Key[Array, ""], batch: int, length: int
) -> tuple[Transition, Bool[Array, "length batch"]]:
    """``batch`` windows of ``length`` consecutive steps of one environment each, uniform over their starts.

    The mask is true up to and including the first end of an episode in a window. No window spans the write
    head: starts are counted from the oldest row held. At least ``length`` ticks must have been written.
    """
    held = jnp.minimum(written, ring.rows)
    oldest = written - held
    start_key, env_key = jax.random.split(key)
    starts = jax.random.randint(start_key, (batch,), 0, held - length + 1)
    envs = jax.random.randint(env_key, (batch,), 0, ring.steps.reward.shape[1])
    rows = (oldest + starts[None] + jnp.arange(length)[:, None]) % ring.rows
    steps = pick(ring.steps, rows, envs)
    return steps, until_end(steps.ended)


def until_end(ended: Bool[Array, "length batch"]) -> Bool[Array, "length batch"]:
    """True up to and including the first end along the first axis."""
    before = jnp.cumsum(ended.astype("int32"), axis=0) - ended
    return before == 0

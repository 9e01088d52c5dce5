"""Epochs of shuffled minibatches over one rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.core.shuffle import permutation
from thespis.core.spread import spread, whole

Carry = TypeVar("Carry")


class Columns(eqx.Module):
    """A rollout as independent columns: leaves ``[time, column, ...]``, and the memory each column starts with."""

    steps: PyTree
    memory: PyTree

    @property
    def shape(self) -> tuple[int, int]:
        """Time and number of columns."""
        return jax.tree.leaves(self.steps)[0].shape[:2]


def columns(data: tuple[PyTree, PyTree], *, joined: bool) -> Columns:
    """Columns of a rollout ``[time, row, ...]``: whole sequences if joined, else single steps ``[1, time * row]``.

    Single steps carry no memory.
    """
    steps, memory = data
    if joined:
        return Columns(steps, memory)
    return Columns(jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), steps), ((), ()))


def epochs(
    step: Callable[[Carry, tuple[Any, Any]], tuple[Carry, dict[str, Array]]],
    carry: Carry,
    data: Columns,
    passes: int,
    minibatch: int,
    key: Key[Array, ""],
) -> tuple[Carry, dict[str, Array]]:
    """Run ``step(carry, (steps, memory))`` over ``passes`` shuffles, cut into minibatches of ``minibatch`` steps.

    Returns the last carry and the metrics' means over all steps.
    """
    time, count = data.shape
    size = min(max(minibatch // time, 1), count)
    parts = count // size
    if parts == 1 and size == count:  # in a sum order means nothing but rounding
        shuffles = jnp.broadcast_to(jnp.arange(count), (passes, count))
    else:
        shuffles = jax.vmap(lambda k: permutation(k, count))(jax.random.split(key, passes))
    chosen = shuffles[:, : parts * size].reshape(passes * parts, size)

    data = whole(data)

    def body(carry, index):
        steps = spread(jax.tree.map(lambda x: x[:, index], data.steps), 1)
        memory = spread(jax.tree.map(lambda x: x[index], data.memory), 0)
        return step(carry, (steps, memory))

    carry, metrics = jax.lax.scan(body, carry, chosen)
    return carry, jax.tree.map(jnp.mean, metrics)

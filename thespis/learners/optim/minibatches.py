"""Epochs of shuffled minibatches over one rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from thespis.runtime.shuffle import permutation
from thespis.runtime.vmap_exact import replicate, shard_axis

Carry = TypeVar("Carry")


class SequenceBatch(eqx.Module):
    """Batch of sequences: a rollout as independent columns, and the memory that each column starts with.

    Leaves are ``[time, column, ...]``.
    """

    steps: PyTree
    memory: PyTree

    @property
    def shape(self) -> tuple[int, int]:
        """Time steps and number of columns."""
        return jax.tree.leaves(self.steps)[0].shape[:2]


def to_sequences(data: tuple[PyTree, PyTree], *, keep_sequences: bool) -> SequenceBatch:
    """Split a rollout ``[time, row, ...]`` into columns: whole sequences, or single steps ``[1, time * row]``.

    Sequences are kept if ``keep_sequences`` is true. Single steps carry no memory.
    """
    steps, memory = data
    if keep_sequences:
        return SequenceBatch(steps, memory)
    return SequenceBatch(jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), steps), ((), ()))


def run_epochs(
    step_fn: Callable[[Carry, tuple[Any, Any]], tuple[Carry, dict[str, Array]]],
    carry: Carry,
    data: SequenceBatch,
    num_epochs: int,
    minibatch_size: int,
    key: Key[Array, ""],
) -> tuple[Carry, dict[str, Array]]:
    """Run ``step_fn(carry, (steps, memory))`` over epochs of shuffled minibatches of ``minibatch_size`` steps.

    Returns the last carry and the metrics' means over all steps.
    """
    time, count = data.shape
    size = min(max(minibatch_size // time, 1), count)
    num_minibatches = count // size
    if num_minibatches == 1 and size == count:  # one full batch: the order of a sum only changes rounding
        shuffles = jnp.broadcast_to(jnp.arange(count), (num_epochs, count))
    else:
        shuffles = jax.vmap(lambda k: permutation(k, count))(jax.random.split(key, num_epochs))
    minibatches = shuffles[:, : num_minibatches * size].reshape(num_epochs * num_minibatches, size)

    data = replicate(data)

    def body(carry, index):
        steps = shard_axis(jax.tree.map(lambda x: x[:, index], data.steps), 1)
        memory = shard_axis(jax.tree.map(lambda x: x[index], data.memory), 0)
        return step_fn(carry, (steps, memory))

    carry, metrics = jax.lax.scan(body, carry, minibatches)
    return carry, jax.tree.map(jnp.mean, metrics)

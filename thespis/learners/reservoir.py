"""A sample of all that was ever seen, every item as likely as any other (Vitter, 1985, algorithm R)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree


class Reservoir(eqx.Module):
    """``items`` have leaves ``[capacity, ...]``; the first ``min(seen, capacity)`` of them are there."""

    items: PyTree
    seen: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Items it can hold."""
        return jax.tree.leaves(self.items)[0].shape[0]

    def add(self, items: PyTree, wanted: Bool[Array, " row"], key: Key[Array, ""]) -> Reservoir:
        """With those of ``items`` ``[row, ...]`` that are ``wanted``: the n-th takes a place with chance capacity/n."""
        number = self.seen + jnp.cumsum(wanted.astype("int32"))  # of each wanted one, from 1
        lot = jax.random.randint(key, wanted.shape, 0, jnp.maximum(number, 1))
        place = jnp.where(number <= self.capacity, number - 1, lot)
        place = jnp.where(wanted, place, self.capacity)  # beyond the end, where nothing is written
        order = jnp.argsort(~wanted, stable=True)  # of two with one place the later one must stay
        place = _last_of_each(place[order], self.capacity)
        items = jax.tree.map(lambda all_, new: all_.at[place].set(new[order], mode="drop"), self.items, items)
        return Reservoir(items, self.seen + jnp.sum(wanted, dtype="int32"))

    def sample(self, key: Key[Array, ""], n: int) -> PyTree:
        """``n`` items drawn with replacement, leaves ``[n, ...]``; before anything was added, empty ones."""
        index = jax.random.randint(key, (n,), 0, jnp.clip(self.seen, 1, self.capacity))
        return jax.tree.map(lambda x: x[index], self.items)


def _last_of_each(place: Int[Array, " row"], nowhere: int) -> Int[Array, " row"]:
    """The places, but ``nowhere`` for those that a later row writes as well."""
    row = jnp.arange(place.shape[0])
    last = jnp.full(nowhere + 1, -1).at[place].max(row)
    return jnp.where(last[place] == row, place, nowhere)

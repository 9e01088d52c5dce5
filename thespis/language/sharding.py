"""How a decoder lies on a mesh of devices: rows of a batch along one axis, heads and hidden units along the other.

Weights that make heads or hidden units are cut by what they make, those that take them by what they take, so that a
layer needs one sum over devices after attention and one after the feed-forward part (Shoeybi et al., 2019). The
compiler puts them in; nothing else of the model changes.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from thespis.nets.decoder import Decoder

_MAKE, _TAKE = ("q", "k", "v", "gate", "up"), ("o", "down")


def specs(model: Decoder, tensor: str, devices: int) -> PyTree:
    """A ``PartitionSpec`` for each leaf; ``tensor`` names the mesh's axis of ``devices`` devices.

    What does not divide evenly is whole everywhere: keys and values where there are fewer of them than devices, say.
    Norms always are.
    """
    shape = model.shape
    counts = {"q": shape.heads, "o": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}

    def one(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        names = [step.name for step in path if isinstance(step, jax.tree_util.GetAttrKey)]
        if names == ["embedding"]:
            return _cut(leaf, 0)
        if names == ["head"]:
            return _cut(leaf, 1)
        part, last = (names[1], names[-1]) if len(names) > 2 else ("", "")
        if counts.get(part, devices) % devices:
            return PartitionSpec()
        if part in _MAKE and last in ("weight", "bias", "up"):
            return _cut(leaf, leaf.ndim - 1)
        if part in _TAKE and last in ("weight", "down"):
            return _cut(leaf, leaf.ndim - 2)
        return PartitionSpec()

    def _cut(leaf: Any, axis: int) -> PartitionSpec:
        if leaf.shape[axis] % devices:
            return PartitionSpec()
        return PartitionSpec(*[tensor if i == axis else None for i in range(leaf.ndim)])

    return jax.tree_util.tree_map_with_path(one, model)


def spread(model: Decoder, mesh: Mesh, tensor: str = "tensor") -> Decoder:
    """The model, each leaf laid on the mesh as :func:`specs` says; all axes but ``tensor`` hold copies."""
    found = specs(model, tensor, mesh.shape[tensor])
    return jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), model, found)

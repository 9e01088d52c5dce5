"""Tensor-parallel sharding of a decoder on a device mesh: batch rows on one axis, heads and hidden units on the other.

Weights that produce heads or hidden units are split by outputs, weights that consume them by inputs, so that a layer
needs one sum over devices after attention and one after the feed-forward part (Shoeybi et al., 2019). The compiler
inserts these sums; nothing else of the model changes.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from thespis.nets.decoder import Decoder

_COLUMN_PARALLEL, _ROW_PARALLEL = ("q", "k", "v", "gate", "up"), ("o", "down")


def partition_specs(model: Decoder, tensor_axis: str, num_devices: int) -> PyTree:
    """A ``PartitionSpec`` for each leaf of ``model``; ``tensor_axis`` names the mesh axis of ``num_devices`` devices.

    Dimensions that do not divide evenly are replicated, e.g. keys and values where there are fewer heads than devices.
    Norms are always replicated.
    """
    shape = model.config
    counts = {"q": shape.num_heads, "o": shape.num_heads, "k": shape.num_kv_heads, "v": shape.num_kv_heads}

    def leaf_spec(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        names = [step.name for step in path if isinstance(step, jax.tree_util.GetAttrKey)]
        if names == ["embedding"]:
            return _cut(leaf, 0)
        if names == ["lm_head"]:
            return _cut(leaf, 1)
        part, last = (names[1], names[-1]) if len(names) > 2 else ("", "")
        if counts.get(part, num_devices) % num_devices:
            return PartitionSpec()
        if part in _COLUMN_PARALLEL and last in ("weight", "bias", "lora_b"):
            return _cut(leaf, leaf.ndim - 1)
        if part in _ROW_PARALLEL and last in ("weight", "lora_a"):
            return _cut(leaf, leaf.ndim - 2)
        return PartitionSpec()

    def _cut(leaf: Any, axis: int) -> PartitionSpec:
        if leaf.shape[axis] % num_devices:
            return PartitionSpec()
        return PartitionSpec(*[tensor_axis if i == axis else None for i in range(leaf.ndim)])

    return jax.tree_util.tree_map_with_path(leaf_spec, model)


def shard_model(model: Decoder, mesh: Mesh, tensor_axis: str = "tensor") -> Decoder:
    """Place a model on the mesh by :func:`partition_specs`; it is replicated along all axes but ``tensor_axis``."""
    specs = partition_specs(model, tensor_axis, mesh.shape[tensor_axis])
    return jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), model, specs)

"""Random keys with addresses: ``fold(root, "act", tick)``. Nobody threads a mutable key.

A stream is named by a string whose hash is fixed (CRC-32), never Python's own, so results do not
depend on ``PYTHONHASHSEED``; renaming or adding a consumer moves no other stream.
"""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, UInt32

from thespis.core.threefry import THREEFRY


def stream_id(stream: str) -> int:
    """The number a stream's name stands for (32 bits, the same in every process)."""
    return zlib.crc32(stream.encode())


def key_of(seed: int | Int[Array, ""]) -> Key[Array, ""]:
    """The key of a seed: the bits of ``jax.random.key``, computed faster."""
    return jax.random.key(seed, impl=THREEFRY)


def wrapped(data: UInt32[Array, "*shape words"], like: Any, named: str) -> Key[Array, "*shape"]:
    """Saved key data as keys of the kind that ``like`` has: ours, or else the implementation that was ``named``."""
    ours = like.dtype == jax.eval_shape(lambda: key_of(0)).dtype
    return jax.random.wrap_key_data(data, impl=THREEFRY if ours else named)


def roots(seeds: list[int], worker: int = 0) -> Key[Array, " seed"]:
    """One root key per training seed, and others for every further ``worker`` at the same seed."""
    keys = [key_of(seed) for seed in seeds]
    return jnp.stack([fold(root, "worker", worker) for root in keys] if worker else keys)


def fold(root: Key[Array, ""], stream: str, tick: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """The key at address ``(stream, tick)`` under ``root``."""
    return jax.random.fold_in(jax.random.fold_in(root, np.uint32(stream_id(stream))), tick)


def per_index(key: Key[Array, ""], n: int) -> Key[Array, " n"]:
    """``n`` keys of which the i-th does not depend on ``n``: a world keeps its stream in a larger batch."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(n))


def world_seed(root: Key[Array, ""], index: int) -> int:
    """A 31-bit seed for host world ``index``: what host simulators take in place of a key."""
    bits: UInt32[Array, ""] = jax.random.bits(fold(root, "world", index), dtype="uint32")
    return int(bits) >> 1

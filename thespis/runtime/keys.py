"""Random keys by address, ``fold(root, "act", tick)``, and the Threefry random numbers that they give.

No key is split or passed on. A stream is named by a string with a fixed hash (CRC-32), not Python's own, so results do
not depend on ``PYTHONHASHSEED``; renaming or adding a stream changes no other stream.

:data:`THREEFRY` gives JAX's own Threefry random numbers, bit for bit, with the rounds of the hash unrolled. On CPUs JAX
compiles Threefry's five groups of rounds as a loop, which XLA cannot fuse with anything; in programs as small as one
step of acting, these loops took half of the time.

Source: Salmon et al., 2011, Threefry-2x32 with 20 rounds.
"""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Int, Key, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@jax.jit
def _hash(key: UInt32[Array, "2"], high: UInt32[Array, "*shape"], low: UInt32[Array, "*shape"]) -> tuple[Array, Array]:
    """Both halves of the hash of 64-bit counters."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = high + schedule[0], low + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x, y = x + schedule[(group + 1) % 3], y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def _hash_counters(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Hashes of the counters 0, 1, ... laid out in ``shape``."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"at most 2**32 - 1 random numbers at a time, not {size}")
    low = jnp.arange(size, dtype="uint32").reshape(shape)
    return _hash(key, jnp.zeros_like(low), low)


def _seed(seed: Array) -> UInt32[Array, "2"]:
    """A key from an integer of up to 64 bits."""
    low = jnp.asarray(seed & 0xFFFFFFFF, "uint32") if seed.dtype.itemsize > 4 else seed.astype("uint32")
    high = (seed >> 32).astype("uint32") if seed.dtype.itemsize > 4 else jnp.zeros((), "uint32")
    return jnp.stack([high, low])


def _split(key: Array, shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
    return jnp.stack(_hash_counters(key, shape), axis=-1)


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    high, low = _hash_counters(key, shape)
    if width == 64:
        return (high.astype("uint64") << 32) | low.astype("uint64")
    return (high ^ low).astype(f"uint{width}")


def _fold_in(key: Array, data: Any) -> UInt32[Array, "2"]:
    data = jnp.asarray(data).astype("uint32")
    return jnp.stack(_hash(key, jnp.zeros((), "uint32"), data))


THREEFRY = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="threefry", tag="fry"
)
"""The implementation for ``jax.random.key(seed, impl=THREEFRY)``."""


def stream_id(stream: str) -> int:
    """The 32-bit hash of a stream's name, the same in every process."""
    return zlib.crc32(stream.encode())


def seed_key(seed: int | Int[Array, ""]) -> Key[Array, ""]:
    """The key of a seed: the same bits as ``jax.random.key``, computed faster."""
    return jax.random.key(seed, impl=THREEFRY)


def wrap_key_data(data: UInt32[Array, "*shape words"], like: Any, impl: str) -> Key[Array, "*shape"]:
    """Saved key data as keys of the kind that ``like`` has: our own implementation, or else the one named ``impl``."""
    ours = like.dtype == jax.eval_shape(lambda: seed_key(0)).dtype
    return jax.random.wrap_key_data(data, impl=THREEFRY if ours else impl)


def root_keys(seeds: list[int], worker: int = 0) -> Key[Array, " seed"]:
    """One root key per training seed; every further ``worker`` has other keys for the same seeds."""
    if not worker and seeds and all(0 <= seed < 2**31 for seed in seeds):
        # The same keys as below, without a program of as many operands as seeds.
        return _seed_keys(np.asarray(seeds, "int32"), THREEFRY)
    keys = [seed_key(seed) for seed in seeds]
    return jnp.stack([fold(root, "worker", worker) for root in keys] if worker else keys)


@functools.partial(jax.jit, static_argnums=1)
def _seed_keys(seeds: Int[Array, " seed"], impl: Any) -> Key[Array, " seed"]:
    return jax.vmap(lambda seed: jax.random.key(seed, impl=impl))(seeds)


def fold(root: Key[Array, ""], stream: str, tick: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """The key at the address ``(stream, tick)`` under ``root``."""
    return jax.random.fold_in(jax.random.fold_in(root, np.uint32(stream_id(stream))), tick)


def indexed_keys(key: Key[Array, ""], n: int) -> Key[Array, " n"]:
    """``n`` keys of which the i-th does not depend on ``n``: an environment keeps its key in a larger batch."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(n))


def computed_once(key: Key[Array, "*shape"]) -> Key[Array, "*shape"]:
    """The same key, computed before what uses it.

    XLA repeats a short computation in each of its users. Keys are chains of hashes, which use their inputs several
    times: where a key of a long chain gives several random numbers, compiling can take minutes and gigabytes.
    """
    return jax.lax.optimization_barrier(key)


def env_seed(root: Key[Array, ""], index: int) -> int:
    """A 31-bit seed for host environment ``index``: host simulators take it in place of a key."""
    return int(_env_bits(root, index))


def env_seeds(root: Key[Array, ""], num_envs: int) -> list[int]:
    """Seeds of the first ``num_envs`` host environments, those of :func:`env_seed`, computed together."""
    return _env_seeds(root, num_envs).tolist()


@functools.partial(jax.jit, static_argnums=1)
def _env_seeds(root: Key[Array, ""], num_envs: int) -> UInt32[Array, " env"]:
    return jax.vmap(lambda index: _env_bits(root, index))(jnp.arange(num_envs))


def _env_bits(root: Key[Array, ""], index: int | Int[Array, ""]) -> UInt32[Array, ""]:
    return jax.random.bits(fold(root, "world", index), dtype="uint32") >> 1

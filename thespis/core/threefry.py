"""JAX's own random numbers, bit for bit, from a hash whose rounds are written out.

On CPUs JAX compiles Threefry's five groups of rounds as a loop, which XLA can fuse with nothing; in programs as small
as one step of acting, these loops were half of the time. Source: Salmon et al., 2011, Threefry-2x32 with 20 rounds.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


@jax.jit
def _hash(key: UInt32[Array, "2"], high: UInt32[Array, "*shape"], low: UInt32[Array, "*shape"]) -> tuple[Array, Array]:
    """Both halves of the hash of 64-bit counters."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    x, y = high + schedule[0], low + schedule[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << turn) | (y >> (32 - turn))) ^ x
        x, y = x + schedule[(group + 1) % 3], y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
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
    return jnp.stack(_counted(key, shape), axis=-1)


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    high, low = _counted(key, shape)
    if width == 64:
        return (high.astype("uint64") << 32) | low.astype("uint64")
    return (high ^ low).astype(f"uint{width}")


def _fold_in(key: Array, data: Any) -> UInt32[Array, "2"]:
    data = jnp.asarray(data).astype("uint32")
    return jnp.stack(_hash(key, jnp.zeros((), "uint32"), data))


THREEFRY = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="threefry", tag="fry"
)
"""For ``jax.random.key(seed, impl=THREEFRY)``."""

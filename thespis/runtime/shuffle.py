"""Random permutations without sorting, by a Feistel network.

JAX shuffles by sorting random numbers, twice; on CPUs that took a fifth of PPO's whole training time. A Feistel network
is a bijection whatever its round function (Luby & Rackoff, 1988), so every position can be computed on its own: write
``i`` as two digits ``(a, b)``, then add to each digit in turn a hash of the other, modulo the digit's base. Shuffling
with a keyed bijection is due to Mitchell et al. (2021, "Bandwidth-optimal random shuffling for GPUs",
arXiv:2106.06161). Differs from theirs: mixed bases and the hash.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

NUM_ROUNDS = 8  # four for each digit: enough for a strong pseudorandom permutation
MIN_FEISTEL_SIZE = 512  # below this sorting is fast, and the digits would be too short to mix well


def permutation(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
    """A random permutation of ``0 .. n - 1``."""
    if n <= MIN_FEISTEL_SIZE:
        return jax.random.permutation(key, n)
    bases = _digit_bases(n)
    rounds = jax.random.bits(key, (NUM_ROUNDS,))
    order = _feistel(jnp.arange(n, dtype="uint32"), rounds, bases)
    if math.prod(bases) > n:  # cycle walking: repeat for values outside until they are inside; still a bijection
        order = jax.lax.while_loop(
            lambda x: jnp.any(x >= n), lambda x: jnp.where(x < n, x, _feistel(x, rounds, bases)), order
        )
    return order.astype("int32")


def _digit_bases(n: int) -> tuple[int, int]:
    """Bases of the two digits: factors of ``n`` of similar size if there are any, else a product just above ``n``."""
    root = math.isqrt(n)
    exact = next((a for a in range(root, root // 4, -1) if n % a == 0), None)
    return (exact, n // exact) if exact else (root, -(-n // root))


def _feistel(x: UInt32[Array, " n"], rounds: UInt32[Array, " round"], bases: tuple[Any, Any]) -> UInt32[Array, " n"]:
    high, low = x // bases[1], x % bases[1]
    for i in range(0, NUM_ROUNDS, 2):
        high = (high + _hash(low ^ rounds[i]) % bases[0]) % bases[0]
        low = (low + _hash(high ^ rounds[i + 1]) % bases[1]) % bases[1]
    return high * bases[1] + low


def _hash(x: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
    """A bijection of 32 bits in which every output bit depends on all input bits (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def permute(key: Key[Array, ""], indices: Int[Array, " k"], n: int | Int[Array, ""]) -> Int[Array, " k"]:
    """Places of ``indices`` in a random permutation of ``0 .. n - 1``; ``n`` may be traced.

    Only the places asked for are computed; an index from ``n`` on has the place of ``n - 1``. With ``n`` below
    :data:`MIN_FEISTEL_SIZE` the permutation is mixed less well than one by sorting.
    """
    size = jnp.maximum(jnp.asarray(n), 1).astype("uint32")
    root = jnp.ceil(jnp.sqrt(size.astype("float32"))).astype("uint32")
    root += root * root < size  # the root was rounded
    rounds = jax.random.bits(key, (NUM_ROUNDS,))

    def walk(x: UInt32[Array, " k"]) -> UInt32[Array, " k"]:
        return jnp.where(x < size, x, _feistel(x, rounds, (root, root)))

    inside = jnp.minimum(indices.astype("uint32"), size - 1)  # a cycle that begins inside comes back
    order = _feistel(inside, rounds, (root, root))
    return jax.lax.while_loop(lambda x: jnp.any(x >= size), walk, order).astype("int32")

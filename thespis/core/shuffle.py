"""Random orders of many things without sorting.

To shuffle, JAX sorts by random numbers, twice; on CPUs that took a fifth of PPO's whole training. A Feistel network is
a bijection whatever its rounds compute (Luby & Rackoff, 1988), so every place can be worked out on its own: write ``i``
as two digits ``(a, b)``, then add to each digit in turn a hash of the other, modulo the digit's base. That a keyed
bijection serves for shuffling is due to Mitchell et al. (2021, "Bandwidth-optimal random shuffling for GPUs",
arXiv:2106.06161); mixed bases and the hash differ from theirs.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

ROUNDS = 8  # four for each digit: as many as make a Feistel network strong pseudorandom
FEW = 512  # so few are sorted in no time, and their digits would be too short to mix well


def permutation(key: Key[Array, ""], n: int) -> Int[Array, " n"]:
    """The numbers from 0 to ``n - 1``, each once, in random order."""
    if n <= FEW:
        return jax.random.permutation(key, n)
    bases = _bases(n)
    rounds = jax.random.bits(key, (ROUNDS,))
    order = _mix(jnp.arange(n, dtype="uint32"), rounds, bases)
    if math.prod(bases) > n:  # what lands outside is sent on until it lands inside: still a bijection
        order = jax.lax.while_loop(
            lambda x: jnp.any(x >= n), lambda x: jnp.where(x < n, x, _mix(x, rounds, bases)), order
        )
    return order.astype("int32")


def _bases(n: int) -> tuple[int, int]:
    """Bases of the two digits: factors of ``n`` if there are any not too far apart, else a product just above it."""
    root = math.isqrt(n)
    exact = next((a for a in range(root, root // 4, -1) if n % a == 0), None)
    return (exact, n // exact) if exact else (root, -(-n // root))


def _mix(x: UInt32[Array, " n"], rounds: UInt32[Array, " round"], bases: tuple[int, int]) -> UInt32[Array, " n"]:
    high, low = x // bases[1], x % bases[1]
    for i in range(0, ROUNDS, 2):
        high = (high + _hash(low ^ rounds[i]) % bases[0]) % bases[0]
        low = (low + _hash(high ^ rounds[i + 1]) % bases[1]) % bases[1]
    return high * bases[1] + low


def _hash(x: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
    """A bijection of 32 bits in which every bit of the result depends on all (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

"""Keys that are cheap to compile with, and batches in which a method acts on views that are made up.

Most of what it costs to compile a small program that draws is JAX's hash of 20 rounds, once for every draw.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, PyTree

from thespis.core import conformance_life
from thespis.core.conformance_life import Functions
from thespis.core.contracts import Method
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition


@jax.jit
def _mixed(key: Array, counter: Array) -> Array:
    x = (counter + key[1]) * jnp.uint32(0x9E3779B9) + key[0]
    x = (x ^ (x >> 15)) * jnp.uint32(0x85EBCA77)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE3D)
    return x ^ (x >> 16)


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    return _mixed(key, jnp.arange(math.prod(shape), dtype="uint32").reshape(shape)).astype(f"uint{width}")


@jax.jit
def _pair(x: Array) -> Array:
    return jnp.stack([x, x * jnp.uint32(0x27D4EB2F) + jnp.uint32(0x165667B1)], axis=-1)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _pair(_bits(key, 32, shape))


def _fold_in(key: Array, data: Any) -> Array:
    return _pair(_mixed(key, jnp.asarray(data).astype("uint32") + jnp.uint32(1)))


QUICK = define_prng_impl(
    key_shape=(2,), seed=lambda seed: _pair(seed.astype("uint32")), split=_split, random_bits=_bits, fold_in=_fold_in,
    name="quick", tag="qck",
)  # fmt: skip
"""For tests that ask little of their random numbers, in float32: of 64 bits asked for, half would be zero."""


class ScriptedMethod(eqx.Module):
    """A method that learns nothing, without ``name`` and ``act``; its state is its policy."""

    citations, details, feed = (), (), Rollouts(length=1)

    def init(self, spec, key):
        return ()

    def policy(self, state, mode):
        return state

    def begin(self, policy, n):
        return ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


def quick_key(seed: int) -> Key[Array, ""]:
    """A key for beginnings and for what is drawn only to be different."""
    return jax.random.key(seed, impl=QUICK)


def experience(method: Method, state: PyTree, steps: Transition, key: Key[Array, ""]) -> Batch:
    """A batch in which the method's own actor acts on the views of ``steps``; to be called in a compiled function."""
    functions = Functions(method.init, method.act, method.judge, method.update)
    return conformance_life.experience(method, functions, state, steps, key)


def begun(method: Any, spec: EnvSpec, seed: int = 0) -> PyTree:
    """A fresh state; the same one when the same method begins again in the very same spec."""
    leaves, tree = jax.tree.flatten(method)
    if not all(isinstance(leaf, int | float) for leaf in leaves):
        return _begun(method, spec, seed)
    name = tree, tuple(leaves), id(spec), seed
    if name not in _KNOWN:
        _KNOWN[name] = spec, _begun(method, spec, seed)
    return _KNOWN[name][1]


_KNOWN: dict[Any, tuple[EnvSpec, PyTree]] = {}  # specs are kept, so that no other one gets their identity


def _begun(method: Any, spec: EnvSpec, seed: int) -> PyTree:
    return jax.jit(lambda key: method.init(spec, key))(quick_key(seed))


def experienced(method: Method, spec: EnvSpec, steps: Transition, seed: int = 0) -> tuple[PyTree, Batch]:
    """A fresh state, and a batch of what its actor does on the views of ``steps``."""

    @jax.jit
    def both(key: Key[Array, ""], steps: Transition) -> tuple[PyTree, Batch]:
        state = method.init(spec, key)
        return state, experience(method, state, steps, jax.random.fold_in(key, 1))

    return both(quick_key(seed), steps)

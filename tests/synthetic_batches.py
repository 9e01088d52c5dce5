"""Synthetic training data: batches in which a method acts on random views, and random keys that compile quickly.

Most of the compile time of a small program with random numbers is JAX's hash of 20 rounds, once for every draw.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Method
from thespis.core.laws import method_run
from thespis.core.laws.method_run import MethodFunctions
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition
from thespis.data.feeds import Rollouts


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
    key_shape=(2,),
    seed=lambda seed: _pair(seed.astype("uint32")),
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="quick",
    tag="qck",
)
"""A cheap generator for tests that need little randomness, in float32 only: of 64 random bits, half would be zero."""


class ScriptedMethod(eqx.Module):
    """A method that does not learn, without ``name`` and ``act``; its state is its policy."""

    citations, details, feed = (), (), Rollouts(num_steps=1)

    def init(self, spec, key):
        return ()

    def policy(self, state, mode):
        return state

    def init_memory(self, policy, n):
        return ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


def quick_key(seed: int) -> Key[Array, ""]:
    """A quick key, for initial states and for numbers that only have to differ."""
    return jax.random.key(seed, impl=QUICK)


def collect_batch(method: Method, state: PyTree, steps: Transition, key: Key[Array, ""]) -> Batch:
    """A batch in which the method's own actor acts on the views of ``steps``; to be called in a compiled function."""
    functions = MethodFunctions(method.init, method.act, method.judge, method.update)
    return method_run.collect_batch(method, functions, state, steps, key)


def init_state(method: Any, spec: EnvSpec, seed: int = 0) -> PyTree:
    """Initial state of a method; cached by method, spec object and seed."""
    leaves, tree = jax.tree.flatten(method)
    if not all(isinstance(leaf, int | float) for leaf in leaves):
        return _init_state(method, spec, seed)
    key = tree, tuple(leaves), id(spec), seed
    if key not in _CACHE:
        _CACHE[key] = spec, _init_state(method, spec, seed)
    return _CACHE[key][1]


_CACHE: dict[Any, tuple[EnvSpec, PyTree]] = {}  # specs are stored, so that their ids stay unique


def _init_state(method: Any, spec: EnvSpec, seed: int) -> PyTree:
    return jax.jit(lambda key: method.init(spec, key))(quick_key(seed))


def init_and_batch(method: Method, spec: EnvSpec, steps: Transition, seed: int = 0) -> tuple[PyTree, Batch]:
    """An initial state, and a batch in which its actor acts on the views of ``steps``."""

    @jax.jit
    def both(key: Key[Array, ""], steps: Transition) -> tuple[PyTree, Batch]:
        state = method.init(spec, key)
        return state, collect_batch(method, state, steps, jax.random.fold_in(key, 1))

    return both(quick_key(seed), steps)

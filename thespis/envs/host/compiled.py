"""A compiled environment behind the host contract: jitted, vmapped, its answers in numpy."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.agents import per_group
from thespis.core.contracts import Environment
from thespis.core.errors import UserError
from thespis.core.keys import fold, roots
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.spaces import Space
from thespis.envs.host import values


class AsHost:
    """``n`` copies of a compiled ``environment``, restarted where they end.

    World ``i`` draws all its randomness from its seed: tick ``t`` steps with the key at ``("step", t)`` and
    restarts with that at ``("reset", t)``, so a world's stream does not depend on its neighbours.
    """

    def __init__(self, environment: Environment, n: int):
        self._environment, self._n, self._spec = environment, n, environment.spec
        self._tick = 0
        self._roots: Any = None
        self._state: Any = None
        self._reset = eqx.filter_jit(_reset)
        self._step = eqx.filter_jit(_step)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters of one world."""
        return self._spec

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return self._n

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world, world ``i`` seeded with ``seeds[i]``."""
        if len(seeds) != self._n:
            raise UserError(f"{self._n} worlds need {self._n} seeds, not {len(seeds)}")
        self._roots, self._tick = roots(seeds), 0
        self._state, first = self._reset(self._environment, self._roots, jnp.int32(0))
        return jax.tree.map(np.asarray, first)

    def step(self, actions: PyTree) -> tuple[TimeStep, View]:
        """What the actions led to, and the view to act on next; actions in the world's units."""

        def check(space: Space, axes: tuple[int, ...], given: PyTree) -> PyTree:
            return values.check_actions(space, given, self._n, axes)

        actions = per_group(self._spec.groups, self._spec.action, check, actions)
        self._tick += 1
        self._state, step, view = self._step(
            self._environment, self._state, actions, self._roots, jnp.int32(self._tick)
        )
        return jax.tree.map(np.asarray, (step, view))

    def save(self) -> dict[str, Any] | None:
        """The state of all worlds as named arrays; ``None`` before :meth:`start`."""
        if self._state is None:
            return None
        leaves = jax.tree.leaves((self._roots, self._state))
        return {"tick": np.asarray(self._tick)} | {f"leaf.{i}": _data(leaf) for i, leaf in enumerate(leaves)}

    def load(self, saved: dict[str, Any]) -> None:
        """Put the worlds back to where :meth:`save` found them."""
        like = roots([0] * self._n)
        state, _ = self._reset(self._environment, like, jnp.int32(0))
        leaves, tree = jax.tree.flatten((like, state))
        found = [_like(leaf, saved[f"leaf.{i}"]) for i, leaf in enumerate(leaves)]
        self._roots, self._state = jax.tree.unflatten(tree, found)
        self._tick = int(saved["tick"])

    def close(self) -> None:
        """Nothing to release."""


def _reset(environment: Environment, keys: Key[Array, " n"], tick: Int[Array, ""]) -> tuple[PyTree, TimeStep]:
    params = environment.spec.params
    return jax.vmap(lambda root: environment.reset(params, fold(root, "reset", tick)))(keys)


def _step(
    environment: Environment, state: PyTree, actions: PyTree, keys: Key[Array, " n"], tick: Int[Array, ""]
) -> tuple[PyTree, TimeStep, View]:
    folded = jax.vmap(lambda root: fold(root, "step", tick))(keys)
    state, step = jax.vmap(environment.step)(state, actions, folded)
    ended = jnp.logical_or(step.terminated, step.truncated)

    def restart():
        fresh, first = _reset(environment, keys, tick)
        return jax.tree.map(lambda new, old: _where(ended, new, old), (fresh, first.view), (state, step.view))

    state, view = jax.lax.cond(ended.any(), restart, lambda: (state, step.view))
    return state, step, view


def _where(ended: Bool[Array, " n"], new: Array, old: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (new.ndim - 1)), new, old)


def _data(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def _like(leaf: Any, value: np.ndarray) -> Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(value), impl=jax.random.key_impl(leaf))
    return jnp.asarray(value, leaf.dtype)

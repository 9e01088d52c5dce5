"""A compiled environment behind the host interface: jitted, vmapped, with numpy outputs."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.contracts import Environment
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.core.spaces import Space, map_groups
from thespis.envs.host import conversion
from thespis.runtime.keys import fold, root_keys


class HostWrapper:
    """Host environment of ``num_envs`` copies of a compiled ``environment``, reset where episodes end.

    Environment ``i`` takes all its randomness from its seed: tick ``t`` steps with the key at ``("step", t)`` and
    resets with that at ``("reset", t)``, so an environment's stream does not depend on its neighbors.
    """

    def __init__(self, environment: Environment, num_envs: int):
        self._environment, self._num_envs, self._spec = environment, num_envs, environment.spec
        self._tick = 0
        self._roots: Any = None
        self._params: PyTree = None
        self._state: Any = None
        self._reset = eqx.filter_jit(_reset)
        self._step = eqx.filter_jit(_step)

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._num_envs

    def set_params(self, params: PyTree) -> None:
        """Parameters, leaves ``[n, ...]``, of the episodes that begin from now on."""
        self._params = params

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode in every environment, environment ``i`` seeded with ``seeds[i]``."""
        conversion.check_seeds(seeds, self._num_envs)
        self._roots, self._tick = root_keys(seeds), 0
        self._state, first = self._reset(self._environment, self._roots, jnp.int32(0), self._params)
        return jax.tree.map(np.asarray, first)

    def step(self, actions: PyTree) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on; actions in the environment's units."""

        def check(space: Space, axes: tuple[int, ...], given: PyTree) -> PyTree:
            return conversion.check_actions(space, given, self._num_envs, axes)

        actions = map_groups(self._spec.groups, self._spec.action_space, check, actions)
        self._tick += 1
        self._state, step, view = self._step(
            self._environment, self._state, actions, self._roots, jnp.int32(self._tick), self._params
        )
        return jax.tree.map(np.asarray, (step, view))

    def get_state(self) -> dict[str, Any] | None:
        """The state of all environments as named arrays; ``None`` before the first :meth:`reset`."""
        if self._state is None:
            return None
        leaves = jax.tree.leaves((self._roots, self._state))
        return {"tick": np.asarray(self._tick)} | {f"leaf.{i}": _key_data(leaf) for i, leaf in enumerate(leaves)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environments from the state that :meth:`get_state` returned."""
        keys = root_keys([0] * self._num_envs)
        fresh, _ = self._reset(self._environment, keys, jnp.int32(0), None)
        leaves, tree = jax.tree.flatten((keys, fresh))
        restored = [_restore_leaf(leaf, state[f"leaf.{i}"]) for i, leaf in enumerate(leaves)]
        self._roots, self._state = jax.tree.unflatten(tree, restored)
        self._tick = int(state["tick"])

    def close(self) -> None:
        """Do nothing: no resources are held."""


def _reset(
    environment: Environment, keys: Key[Array, " n"], tick: Int[Array, ""], params: PyTree
) -> tuple[PyTree, TimeStep]:
    """Start episodes with ``params``, leaves ``[n, ...]``; ``None``: the environment's defaults."""
    reset_keys = jax.vmap(lambda root: fold(root, "reset", tick))(keys)
    if params is None:
        return jax.vmap(environment.reset, in_axes=(None, 0))(environment.spec.params, reset_keys)
    return jax.vmap(environment.reset)(params, reset_keys)


def _step(
    environment: Environment,
    state: PyTree,
    actions: PyTree,
    keys: Key[Array, " n"],
    tick: Int[Array, ""],
    params: PyTree,
) -> tuple[PyTree, TimeStep, View]:
    folded = jax.vmap(lambda root: fold(root, "step", tick))(keys)
    state, step = jax.vmap(environment.step)(state, actions, folded)
    ended = jnp.logical_or(step.terminated, step.truncated)

    def restart():
        fresh, first = _reset(environment, keys, tick, params)
        return jax.tree.map(lambda new, old: _tree_where(ended, new, old), (fresh, first.view), (state, step.view))

    state, view = jax.lax.cond(ended.any(), restart, lambda: (state, step.view))
    return state, step, view


def _tree_where(ended: Bool[Array, " n"], new: Array, old: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (new.ndim - 1)), new, old)


def _key_data(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def _restore_leaf(leaf: Any, value: np.ndarray) -> Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(value), impl=jax.random.key_impl(leaf))
    return jnp.asarray(value, leaf.dtype)

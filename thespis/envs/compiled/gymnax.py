"""Adapter for gymnax environments (1.0 or later) behind the :class:`~thespis.core.contracts.Environment` contract.

gymnax's own ``step`` resets automatically and returns the final observation only in ``info``. This adapter calls
``step_env`` and ``reset_env`` instead, so the training loop controls where episodes end. ``step_env`` flags termination
only; the time limit is ``is_truncated``.
"""

from __future__ import annotations

import functools
import urllib.error
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Discrete, Space, dict_space, map_space, space_dtype, tuple_space
from thespis.envs.space_conversion import make_box, storage_dtype

ENV_NAMES = (
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "Seaquest-MinAtar",
    "SpaceInvaders-MinAtar",
    "Catch-bsuite",
    "DeepSea-bsuite",
    "MemoryChain-bsuite",
    "UmbrellaChain-bsuite",
    "DiscountingChain-bsuite",
    "MNISTBandit-bsuite",
    "SimpleBandit-bsuite",
    "FourRooms-misc",
    "MetaMaze-misc",
    "PointRobot-misc",
    "BernoulliBandit-misc",
    "GaussianBandit-misc",
    "Reacher-misc",
    "Swimmer-misc",
    "Pong-misc",
    "FrozenLake-misc",
)
"""The environments that gymnax provides, listed without importing it (which takes a second or more)."""


class GymnaxState(eqx.Module):
    """State of one episode: gymnax's state, and the parameters of the episode."""

    env_state: PyTree
    params: PyTree


class Gymnax(eqx.Module):
    """Adapter for the gymnax environment registered as ``name``, made with ``options`` (pairs of keyword and value).

    ``spec.params`` holds gymnax's parameters as arrays, so that a curriculum can vary any of them.

    Raises:
        UserError: if gymnax is missing, has no such environment, or cannot download the data the environment needs.
    """

    name: str = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True, default=())

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters."""
        return _load_env(self.name, self.options)[1]

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[GymnaxState, TimeStep]:
        """Starts an episode under ``params`` (the tree of ``spec.params``)."""
        env, spec = _load_env(self.name, self.options)
        observation, env_state = env.reset_env(key, params)
        no = jnp.zeros((), bool)
        step = TimeStep(_cast_observation(spec.observation_space, observation), jnp.zeros(()), no, no)
        return GymnaxState(_strip_weak_types(env_state), params), step

    def step(self, state: GymnaxState, action: PyTree, key: Key[Array, ""]) -> tuple[GymnaxState, TimeStep]:
        """One step. Both flags may be true at once; then the episode has terminated."""
        env, spec = _load_env(self.name, self.options)
        observation, env_state, reward, terminated, _ = env.step_env(key, state.env_state, action, state.params)
        truncated = env.is_truncated(env_state, state.params)
        step = TimeStep(
            _cast_observation(spec.observation_space, observation),
            jnp.asarray(reward, "float32").reshape(()),
            jnp.asarray(terminated, bool).reshape(()),
            jnp.asarray(truncated, bool).reshape(()),
        )
        return GymnaxState(_strip_weak_types(env_state), state.params), step


def _cast_observation(space: Space, observation: Any) -> Any:
    # Several environments declare one dtype and emit another (MinAtar booleans, FourRooms integers).
    return map_space(lambda part, value: jnp.asarray(value, space_dtype(part)), space, observation)


def _strip_weak_types(tree: Any) -> Any:
    # Python numbers in gymnax's states are weakly typed at reset and not after a step; scan needs one type.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


def _to_array(leaf: Any) -> Array:
    value = np.asarray(leaf)
    return jnp.asarray(value, bool if value.dtype == bool else storage_dtype(value.dtype))


@functools.cache
def _load_env(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, EnvSpec]:
    with jax.ensure_compile_time_eval():  # the cache must not hold tracers if first called under jit
        env, params = _make(name, dict(options))
        limit = int(params.max_steps_in_episode)
        spec = EnvSpec(
            name=f"gymnax:{name}",
            observation_space=_convert_space(env.observation_space(params)),
            action_space=_convert_space(env.action_space(params)),
            time_limit=limit,
            params=jax.tree.map(_to_array, params),
        )
    return env, spec


def _make(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    try:
        import gymnax
    except ImportError as error:
        raise missing_extra("gymnax", "control") from error
    if name not in gymnax.registered_envs:
        raise UserError(f"gymnax has no environment named {name!r}; see: thespis list envs")
    try:
        return gymnax.make(name, **options)
    except urllib.error.URLError as error:
        raise UserError(f"gymnax:{name} could not download its data: {error.reason}") from error
    except TypeError as error:
        raise UserError(f"gymnax:{name} cannot be made with {options}: {error}") from error


def _convert_space(space: Any) -> Space:
    from gymnax.environments import spaces as g

    match space:
        case g.Discrete():
            return Discrete(int(space.n))
        case g.Box():
            return make_box(space.low, space.high, space.shape, space.dtype)
        case g.Dict():
            return dict_space(**{name: _convert_space(part) for name, part in space.spaces.items()})
        case g.Tuple():
            return tuple_space(*(_convert_space(part) for part in space.spaces))
    raise UserError(f"the gymnax space {space} is not supported")

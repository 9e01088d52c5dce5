"""Any world of gymnax (1.0 or later) behind our :class:`~thespis.core.contracts.Environment`.

gymnax's own ``step`` resets by itself and shows the final observation only in ``info``; here its inner
``step_env`` and ``reset_env`` are used, so the loop owns the ends of episodes. ``step_env`` flags natural
ends alone; the time limit is ``is_truncated``.
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
from thespis.core.spaces import Discrete, Space, dict_space, dtype_of, map_space, tuple_space
from thespis.envs.spaces import box, kept_dtype

NAMES = (
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
"""The worlds gymnax brings, known without importing it (which takes a second or more)."""


class Playing(eqx.Module):
    """One episode under way: gymnax's state, and the parameters the episode was begun with."""

    inner: PyTree
    params: PyTree


class Gymnax(eqx.Module):
    """The gymnax world registered as ``name``, made with ``options`` (pairs of keyword and value).

    ``spec.params`` holds gymnax's parameters as arrays, so that a curriculum can vary any of them.

    Raises:
        UserError: if gymnax is missing, has no such world, or cannot get the data the world needs.
    """

    name: str = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True, default=())

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters."""
        return _made(self.name, self.options)[1]

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Playing, TimeStep]:
        """The start of one episode under ``params`` (the tree of ``spec.params``)."""
        world, spec = _made(self.name, self.options)
        observation, inner = world.reset_env(key, params)
        no = jnp.zeros((), bool)
        step = TimeStep(_kept(spec.observation, observation), jnp.zeros(()), no, no)
        return Playing(_strong(inner), params), step

    def step(self, state: Playing, action: PyTree, key: Key[Array, ""]) -> tuple[Playing, TimeStep]:
        """One step; both flags may be true at once, and then the end is a natural one."""
        world, spec = _made(self.name, self.options)
        observation, inner, reward, terminated, _ = world.step_env(key, state.inner, action, state.params)
        truncated = world.is_truncated(inner, state.params)
        step = TimeStep(
            _kept(spec.observation, observation),
            jnp.asarray(reward, "float32").reshape(()),
            jnp.asarray(terminated, bool).reshape(()),
            jnp.asarray(truncated, bool).reshape(()),
        )
        return Playing(_strong(inner), state.params), step


def _kept(space: Space, observation: Any) -> Any:
    # Several worlds declare one dtype and emit another (MinAtar booleans, FourRooms integers).
    return map_space(lambda part, value: jnp.asarray(value, dtype_of(part)), space, observation)


def _strong(tree: Any) -> Any:
    # Python numbers in gymnax's states are weakly typed at reset and not after a step; scan wants one type.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


def _array(leaf: Any) -> Array:
    value = np.asarray(leaf)
    return jnp.asarray(value, bool if value.dtype == bool else kept_dtype(value.dtype))


@functools.cache
def _made(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, EnvSpec]:
    with jax.ensure_compile_time_eval():  # the cache must not hold tracers if first asked under jit
        world, params = _make(name, dict(options))
        limit = int(params.max_steps_in_episode)
        spec = EnvSpec(
            name=f"gymnax:{name}",
            observation=_space(world.observation_space(params)),
            action=_space(world.action_space(params)),
            time_limit=limit,
            params=jax.tree.map(_array, params),
        )
    return world, spec


def _make(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    try:
        import gymnax
    except ImportError as error:
        raise missing_extra("gymnax", "control") from error
    if name not in gymnax.registered_envs:
        raise UserError(f"gymnax has no world named {name!r}; see: thespis list envs")
    try:
        return gymnax.make(name, **options)
    except urllib.error.URLError as error:
        raise UserError(f"gymnax:{name} must download its data and could not: {error.reason}") from error
    except TypeError as error:
        raise UserError(f"gymnax:{name} cannot be made with {options}: {error}") from error


def _space(space: Any) -> Space:
    from gymnax.environments import spaces as g

    match space:
        case g.Discrete():
            return Discrete(int(space.n))
        case g.Box():
            return box(space.low, space.high, space.shape, space.dtype)
        case g.Dict():
            return dict_space(**{name: _space(part) for name, part in space.spaces.items()})
        case g.Tuple():
            return tuple_space(*(_space(part) for part in space.spaces))
    raise UserError(f"the gymnax space {space} is not supported")

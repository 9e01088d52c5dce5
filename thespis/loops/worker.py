"""A worker: a process that owns its share of a run's worlds and acts in them. Keys travel as their bare data."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.keys import key_of, wrapped
from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.loops.acting import WorldsHere, acting_shapes
from thespis.loops.clock import Clock
from thespis.loops.host_state import HostWorld
from thespis.loops.parts import Parts, with_array_leaves


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that a worker needs to know of its run."""

    parts: Parts
    env: Any
    """A name, a class or a function: what makes environments."""
    threads: int
    seeds: int
    share: int
    """Environments of each worker, per seed."""
    length: int
    """Ticks of a block."""
    group: int = 0
    """Episodes that begin alike, where every block begins fresh ones; 0: none does."""


@dataclasses.dataclass(frozen=True)
class Collected:
    """One worker's share of a block, leaves ``[tick, seed * env, ...]``, and the seconds it took by purpose."""

    world: HostWorld
    rows: list[np.ndarray]
    ends: list[np.ndarray]
    seconds: dict[str, float]


class Worker:
    """Lives in a process of Ray's and is asked one thing after another."""

    def __init__(self) -> None:
        self._worlds: Any = None
        self._shapes: Any = None
        self._clock = Clock("acting", "environment", "learning")

    def open(self, recipe: Recipe, number: int) -> EnvSpec:
        """Make the worlds. What goes wrong there is an answer, not the end of the process."""
        parts = with_array_leaves(recipe.parts)
        environment = registry.host(recipe.env, recipe.seeds * recipe.share, threads=recipe.threads)
        self._worlds = WorldsHere(parts, environment, recipe.share, recipe.seeds, recipe.length, number, recipe.group)
        self._shapes = acting_shapes(parts, environment.spec)
        return environment.spec

    def begin(self, roots: np.ndarray, memory: Any, ticks: int) -> HostWorld:
        """Fresh episodes everywhere, begun after ``ticks`` ticks."""
        return _plain(self._worlds.begin(_keyed(roots, key_of(0)), memory, ticks))

    def collect(self, fixed: list[np.ndarray], world: HostWorld, ticks: np.int32) -> Collected:
        """One block from ``world`` on."""
        given, before = self._given(fixed), dict(self._clock.seconds)
        world, rows, ends = self._worlds.collect(given, world, ticks, self._clock)
        seconds = {purpose: spent - before[purpose] for purpose, spent in self._clock.seconds.items()}
        return Collected(_plain(world), rows.stacked(), ends.stacked(), seconds)

    def collect_anew(self, fixed: list[np.ndarray], memory: Any, ticks: np.int32) -> Collected:
        """One block from fresh episodes on."""
        roots = jax.tree.unflatten(jax.tree.structure(self._shapes), self._given(fixed))[2]
        return self.collect(fixed, self._worlds.begin(roots, memory, int(ticks)), ticks)

    def _given(self, fixed: list[np.ndarray]) -> list[Any]:
        likes = jax.tree.leaves(self._shapes)
        return [_keyed(leaf, like) if is_key(like) else leaf for leaf, like in zip(fixed, likes, strict=True)]

    def save(self) -> dict[str, Any] | None:
        """What the worlds will do next, as named arrays; ``None`` if they cannot tell."""
        return self._worlds.save()

    def load(self, saved: dict[str, Any], world: HostWorld) -> HostWorld:
        """``world``, put back to where :meth:`save` found it."""
        self._worlds.environment.load(saved)
        return world

    def close(self) -> None:
        """Close the environments."""
        if self._worlds is not None:
            self._worlds.close()


def bare(leaves: list[Any]) -> list[np.ndarray]:
    """Leaves as numpy arrays, keys as their data."""
    return jax.device_get([jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves])


def is_key(leaf: Any) -> bool:
    """Whether a leaf, or its shape, is one of random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(world: HostWorld) -> HostWorld:
    return jax.tree.map(np.asarray, world)


def _keyed(data: np.ndarray, like: Any) -> Any:
    return wrapped(jnp.asarray(data), like, "threefry2x32")

"""Experience made up from nothing but an :class:`~thespis.core.records.EnvSpec`: for checks of parts without a world.

All is numpy: nothing is compiled, and a generator that is seeded alike makes up the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.agents import per_group
from thespis.core.records import Each, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, Text, dtype_of, from_world, map_space, shape_of


def random_value(space: Space, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Any:
    """Values of a space, leading axes ``batch``: uniform within bounds, normal where there are none."""

    def leaf(part: Space) -> np.ndarray:
        shape = batch + shape_of(part)
        match part:
            case Box() if np.issubdtype(part.dtype, np.floating):
                low, high = part.bounds()
                bounded = np.isfinite(low) & np.isfinite(high)
                start, width = np.where(bounded, low, 0), np.where(bounded, high, 0) - np.where(bounded, low, 0)
                normal = np.clip(rng.normal(size=shape), low, high)
                return np.where(bounded, start + rng.uniform(size=shape) * width, normal).astype(part.dtype)
            case Box():
                low, high = (bound.astype("int64") for bound in part.bounds())
                return rng.integers(low, high, shape, endpoint=True).astype(part.dtype)
            case Discrete():
                return rng.integers(0, part.n, shape).astype(dtype_of(part))
            case MultiDiscrete():
                return rng.integers(0, np.asarray(part.nvec), shape).astype(dtype_of(part))
            case Text():
                spoken = np.arange(part.length) < rng.integers(1, part.length + 1, (*batch, 1))
                return np.where(spoken, rng.integers(0, part.vocabulary.size, shape), -1).astype(dtype_of(part))
        raise ValueError(f"{part} is no leaf")

    return map_space(leaf, space)


def random_view(spec: EnvSpec, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> View:
    """Views with leading axes ``batch``; of each choice about half is legal, and never nothing."""

    def value(space: Space, axes: tuple[int, ...]) -> Any:
        return random_value(space, rng, (*batch, *axes))

    def masks(space: Space, axes: tuple[int, ...]) -> Any:
        return random_masks(space, rng, (*batch, *axes))

    observation = per_group(spec.groups, spec.observation, value)
    legal = per_group(spec.groups, spec.action, masks) if spec.legal else None
    alive = {g.name: rng.uniform(size=(*batch, g.count)) < 0.75 for g in spec.groups} or None
    return View(observation, legal, alive, _positions(spec.game, rng, batch) if spec.searchable else None)


def random_masks(space: Space, rng: np.random.Generator, batch: tuple[int, ...]) -> Any:
    """Legal masks with leading axes ``batch``: of each choice about half, and never nothing."""

    def mask(n: int) -> np.ndarray:
        always = rng.integers(0, n, (*batch, 1))
        return (rng.uniform(size=(*batch, n)) < 0.5) | (np.arange(n) == always)

    def leaf(part: Space) -> Any:
        match part:
            case Discrete():
                return mask(part.n)
            case MultiDiscrete():
                return np.concatenate([mask(n) for n in part.nvec], axis=-1)
            case _:
                return None

    return map_space(leaf, space)


def _positions(game: Any, rng: np.random.Generator, batch: tuple[int, ...]) -> PyTree:
    """First positions of a game."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), batch)
    start = game.start
    for _ in batch:
        start = jax.vmap(start)
    return jax.tree.map(np.asarray, start(keys))


def legal_action(space: Space, legal: PyTree, rng: np.random.Generator, batch: tuple[int, ...]) -> Any:
    """Random canonical actions with leading axes ``batch``, legal where there is a mask."""

    def choose(n: int, mask: Any) -> np.ndarray:
        liking = rng.uniform(size=(*batch, n))
        return np.argmax(liking if mask is None else np.where(mask, liking, -1.0), axis=-1)

    def leaf(part: Space, mask: Any) -> np.ndarray:
        match part:
            case Discrete():
                return choose(part.n, mask).astype(dtype_of(part))
            case MultiDiscrete():
                cuts = np.cumsum(part.nvec)[:-1]
                masks = [None] * len(part.nvec) if mask is None else np.split(np.asarray(mask), cuts, axis=-1)
                chosen = [choose(n, m) for n, m in zip(part.nvec, masks, strict=True)]
                return np.stack(chosen, axis=-1).astype(dtype_of(part))
            case _:
                return np.asarray(from_world(part, random_value(part, rng, batch)))

    return map_space(leaf, space, legal)


def random_steps(spec: EnvSpec, rng: np.random.Generator, time: int, rows: int) -> Transition:
    """``[time, row]`` steps of random worlds and random legal actions; one in four ends its episode, either way.

    Within an episode each step's next view is the following step's view; ``extras`` is ``()``.
    """
    path, fresh = random_view(spec, rng, (time + 1, rows)), random_view(spec, rng, (time, rows))
    ends = rng.uniform(size=(time, rows))
    terminated, truncated = ends < 0.125, (ends >= 0.125) & (ends < 0.25)
    first = np.concatenate([np.ones((1, rows), bool), (terminated | truncated)[:-1]])
    now = jax.tree.map(lambda new, old: _where(first, new, old[:-1]), fresh, path)

    def choose(space: Space, axes: tuple[int, ...], legal: PyTree) -> Any:
        return legal_action(space, legal, rng, (time, rows, *axes))

    action = per_group(spec.groups, spec.action, choose, now.legal)
    following = jax.tree.map(lambda x: x[1:], path)
    reward = rng.normal(size=(time, rows)).astype("float32")
    told = None if spec.privileged is None else random_value(spec.privileged, rng, (2, time, rows))
    shown, next_shown = jax.tree.map(lambda x: x[0], told), jax.tree.map(lambda x: x[1], told)
    each = {g.name: _each(rng, (time, rows, g.count)) for g in spec.groups} or None
    steps = Transition(now, action, reward, terminated, truncated, following, first, (), shown, next_shown, each)
    return jax.device_put(steps)


def _each(rng: np.random.Generator, axes: tuple[int, ...]) -> Each:
    return Each(rng.normal(size=axes).astype("float32"), rng.uniform(size=axes) < 0.05)


def until_end(ended: Any) -> np.ndarray:
    """True up to and including the first end of each row of ``ended[time, row]``."""
    ended = np.asarray(ended)
    return np.cumsum(ended, axis=0) - ended == 0


def with_other_padding(spec: EnvSpec, steps: Transition, mask: Any, rng: np.random.Generator) -> Transition:
    """The same steps where ``mask`` is true, other ones where it is not."""
    mask = np.asarray(mask)
    other = dataclasses.replace(random_steps(spec, rng, *mask.shape), extras=steps.extras)
    return jax.device_put(jax.tree.map(lambda kept, new: _where(mask, np.asarray(kept), np.asarray(new)), steps, other))


def _where(flag: np.ndarray, yes: Any, no: Any) -> np.ndarray:
    return np.where(flag.reshape(flag.shape + (1,) * (yes.ndim - flag.ndim)), yes, no)

"""Random observations, actions and transitions for an :class:`~thespis.core.records.EnvSpec`, without an environment.

All of it is numpy: nothing is compiled, and equal generator seeds give equal samples.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.records import AgentOutcome, EnvSpec, Transition, View
from thespis.core.spaces import (
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    Text,
    map_groups,
    map_space,
    scale_action,
    space_dtype,
    space_shape,
)


def random_value(space: Space, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Any:
    """Values of a space, leading axes ``batch``: uniform within bounds, normal where unbounded."""

    def leaf(part: Space) -> np.ndarray:
        shape = batch + space_shape(part)
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
                return rng.integers(0, part.n, shape).astype(space_dtype(part))
            case MultiDiscrete():
                return rng.integers(0, np.asarray(part.nvec), shape).astype(space_dtype(part))
            case Text():
                within_text = np.arange(part.max_length) < rng.integers(1, part.max_length + 1, (*batch, 1))
                return np.where(within_text, rng.integers(0, part.vocabulary.size, shape), -1).astype(space_dtype(part))
        raise ValueError(f"{part} is no leaf")

    return map_space(leaf, space)


def random_view(spec: EnvSpec, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> View:
    """Views with leading axes ``batch``; about half of each choice's actions are legal, and at least one."""

    def value(space: Space, axes: tuple[int, ...]) -> Any:
        return random_value(space, rng, (*batch, *axes))

    def masks(space: Space, axes: tuple[int, ...]) -> Any:
        return random_action_masks(space, rng, (*batch, *axes))

    observation = map_groups(spec.groups, spec.observation_space, value)
    legal = map_groups(spec.groups, spec.action_space, masks) if spec.has_action_mask else None
    alive = {g.name: rng.uniform(size=(*batch, g.num_agents)) < 0.75 for g in spec.groups} or None
    return View(observation, legal, alive, _random_game_states(spec.game, rng, batch) if spec.has_game_state else None)


def random_action_masks(space: Space, rng: np.random.Generator, batch: tuple[int, ...]) -> Any:
    """Action masks with leading axes ``batch``: about half of each choice is legal, and at least one action."""

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


def _random_game_states(game: Any, rng: np.random.Generator, batch: tuple[int, ...]) -> PyTree:
    """Initial states of a game."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), batch)
    start = game.init
    for _ in batch:
        start = jax.vmap(start)
    return jax.tree.map(np.asarray, start(keys))


def random_legal_action(space: Space, action_mask: PyTree, rng: np.random.Generator, batch: tuple[int, ...]) -> Any:
    """Random canonical actions with leading axes ``batch``, legal where there is an action mask."""

    def choose(n: int, mask: Any) -> np.ndarray:
        scores = rng.uniform(size=(*batch, n))
        return np.argmax(scores if mask is None else np.where(mask, scores, -1.0), axis=-1)

    def leaf(part: Space, mask: Any) -> np.ndarray:
        match part:
            case Discrete():
                return choose(part.n, mask).astype(space_dtype(part))
            case MultiDiscrete():
                cuts = np.cumsum(part.nvec)[:-1]
                masks = [None] * len(part.nvec) if mask is None else np.split(np.asarray(mask), cuts, axis=-1)
                chosen = [choose(n, m) for n, m in zip(part.nvec, masks, strict=True)]
                return np.stack(chosen, axis=-1).astype(space_dtype(part))
            case _:
                return np.asarray(scale_action(part, random_value(part, rng, batch)))

    return map_space(leaf, space, action_mask)


def random_transitions(spec: EnvSpec, rng: np.random.Generator, num_steps: int, num_rows: int) -> Transition:
    """``[time, row]`` transitions with random observations and legal actions; one in four terminates or truncates.

    Within an episode each step's next view is the following step's view; ``extras`` is ``()``.
    """
    path, fresh = random_view(spec, rng, (num_steps + 1, num_rows)), random_view(spec, rng, (num_steps, num_rows))
    ends = rng.uniform(size=(num_steps, num_rows))
    terminated, truncated = ends < 0.125, (ends >= 0.125) & (ends < 0.25)
    first = np.concatenate([np.ones((1, num_rows), bool), (terminated | truncated)[:-1]])
    now = jax.tree.map(lambda new, old: _select(first, new, old[:-1]), fresh, path)

    def choose(space: Space, axes: tuple[int, ...], legal: PyTree) -> Any:
        return random_legal_action(space, legal, rng, (num_steps, num_rows, *axes))

    action = map_groups(spec.groups, spec.action_space, choose, now.action_mask)
    following = jax.tree.map(lambda x: x[1:], path)
    reward = rng.normal(size=(num_steps, num_rows)).astype("float32")
    privileged = (
        None if spec.privileged_space is None else random_value(spec.privileged_space, rng, (2, num_steps, num_rows))
    )
    privileged_now, privileged_next = jax.tree.map(lambda x: x[0], privileged), jax.tree.map(lambda x: x[1], privileged)
    agent_outcomes = {
        g.name: _random_agent_outcome(rng, (num_steps, num_rows, g.num_agents)) for g in spec.groups
    } or None
    steps = Transition(
        now,
        action,
        reward,
        terminated,
        truncated,
        following,
        first,
        (),
        privileged_now,
        privileged_next,
        agent_outcomes,
        {name: rng.normal(size=reward.shape).astype("float32") for name in spec.channels} or None,
    )
    return jax.device_put(steps)


def _random_agent_outcome(rng: np.random.Generator, axes: tuple[int, ...]) -> AgentOutcome:
    return AgentOutcome(rng.normal(size=axes).astype("float32"), rng.uniform(size=axes) < 0.05)


def first_episode_mask(done: Any) -> np.ndarray:
    """True up to and including the first episode end of each row of ``done[time, row]``."""
    done = np.asarray(done)
    return np.cumsum(done, axis=0) - done == 0


def randomize_padding(spec: EnvSpec, steps: Transition, mask: Any, rng: np.random.Generator) -> Transition:
    """The same steps where ``mask`` is true, new random ones elsewhere."""
    mask = np.asarray(mask)
    other = dataclasses.replace(random_transitions(spec, rng, *mask.shape), extras=steps.extras)
    return jax.device_put(jax.tree.map(lambda old, new: _select(mask, np.asarray(old), np.asarray(new)), steps, other))


def _select(flag: np.ndarray, yes: Any, no: Any) -> np.ndarray:
    return np.where(flag.reshape(flag.shape + (1,) * (yes.ndim - flag.ndim)), yes, no)

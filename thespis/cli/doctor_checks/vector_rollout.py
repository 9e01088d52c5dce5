"""Checks and timing of vector environments through the host contract (compiled ones, EnvPool, vector environments)."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from thespis.cli.doctor_checks.check import CheckFailure, CheckWarning, TimeBudget
from thespis.cli.doctor_checks.episode_checks import Episode, flatten_observation
from thespis.core.contracts import HostEnvironment
from thespis.core.records import View
from thespis.core.spaces import Space, map_groups, random_action, unscale_action
from thespis.runtime.keys import fold, indexed_keys, seed_key


class RandomPolicy:
    """Random legal actions for a vector environment, jitted once."""

    def __init__(self, envs: HostEnvironment):
        spec, self._n, self._tick = envs.spec, envs.num_envs, 0

        def sample_group(space: Space, axes: tuple[int, ...], legal: Any, key: Any) -> Any:
            if not axes:
                return random_action(space, key, legal)
            return jax.vmap(lambda legal, key: random_action(space, key, legal))(legal, indexed_keys(key, axes[0]))

        def sample_row(legal: Any, key: Any) -> Any:
            keys = {group.name: fold(key, group.name) for group in spec.groups} or key
            return unscale_action(
                spec.action_space, map_groups(spec.groups, spec.action_space, sample_group, legal, keys)
            )

        self._act = jax.jit(lambda legal, tick: jax.vmap(sample_row)(legal, indexed_keys(seed_key(tick), self._n)))

    def __call__(self, view: View) -> Any:
        """Actions for a batch of views."""
        self._tick += 1
        return jax.tree.map(np.asarray, self._act(view.action_mask, self._tick))


def _observation_rows(tree: Any, n: int) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [flatten_observation([leaf[i] for leaf in leaves]) for i in range(n)]


def check_seeds(envs: HostEnvironment) -> str:
    """Check that seeds determine initial observations, and that different seeds differ."""
    n = envs.num_envs
    first, again = (_observation_rows(envs.reset(list(range(n))).observation, n) for _ in range(2))
    if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
        raise CheckFailure("the same seeds start different episodes: take all randomness from the given seed or key")
    others = _observation_rows(envs.reset(list(range(n, 2 * n))).observation, n)
    distinct = {row.tobytes() for row in first + others}
    if len(distinct) == 1:
        raise CheckWarning(
            f"{2 * n} seeds all give the same first observation: fine if all episodes have the same initial state"
        )
    return f"{len(distinct)} first observations from {2 * n} seeds, reproducible by seed"


def random_vector_episodes(
    envs: HostEnvironment, max_episodes: int, max_steps: int, budget: TimeBudget
) -> list[Episode]:
    """Up to ``max_episodes`` episodes of random play within the time budget; if none ends, the unfinished ones."""
    policy, n = RandomPolicy(envs), envs.num_envs
    view = envs.reset(list(range(100, 100 + n))).view
    observations = [[row] for row in _observation_rows(view.observation, n)]
    rewards: list[list[float]] = [[] for _ in range(n)]
    episodes: list[Episode] = []
    ticks = 0
    while len(episodes) < max_episodes and budget.seconds_left and ticks <= max_steps:
        step, view = envs.step(policy(view))
        ticks += 1
        last_rows, first_rows = _observation_rows(step.observation, n), _observation_rows(view.observation, n)
        for i in range(n):
            observations[i].append(last_rows[i])
            rewards[i].append(float(step.reward[i]))
            if step.terminated[i] or step.truncated[i]:
                flags = bool(step.terminated[i]), bool(step.truncated[i])
                episodes.append(Episode(np.stack(observations[i]), np.array(rewards[i]), *flags))
                observations[i], rewards[i] = [first_rows[i]], []
    if not episodes:
        episodes = [
            Episode(np.stack(o), np.array(r), False, False) for o, r in zip(observations, rewards, strict=True) if r
        ]
    return episodes


def vector_steps_per_second(envs: HostEnvironment, seconds: float) -> float:
    """Steps per second of all environments together, under random actions."""
    policy = RandomPolicy(envs)
    view = envs.reset(list(range(envs.num_envs))).view
    _, view = envs.step(policy(view))
    count, elapsed, start = 0, 0.0, time.perf_counter()
    while not count or elapsed < seconds:
        _, view = envs.step(policy(view))
        count, elapsed = count + envs.num_envs, time.perf_counter() - start
    return count / elapsed

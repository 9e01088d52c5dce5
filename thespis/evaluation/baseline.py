"""Baselines beside a final result: uniformly random actions, the model before training, random opponents in games."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.records import View
from thespis.core.spaces import AgentGroup, Space, Text, leaf_spaces, map_groups, random_action
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.rollout import play_episodes
from thespis.evaluation.score import summarize_returns
from thespis.runtime.keys import computed_once

MAX_RANDOM_STEPS = 10_000
"""Steps after which an episode of random actions is cut: some never end, where a trained policy's do."""


class RandomPolicy(eqx.Module):
    """Policy of uniformly random legal actions, with the part of a method's interface that playing needs."""

    action_space: Space = eqx.field(static=True)
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)

    def policy(self, state: PyTree, mode: Mode) -> PyTree:
        """The state, which is not used."""
        return state

    def init_memory(self, policy: PyTree, n: int) -> PyTree:
        """An empty memory: the policy is memoryless."""
        return ()

    def act(
        self, policy: PyTree, memory: PyTree, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, PyTree, dict[str, Array]]:
        """Canonical actions ``[env, ...]``, drawn uniformly from the legal ones; normal where a box is unbounded."""
        num_envs = len(jax.tree.leaves(view.observation)[0])

        def sample(space: Space, axes: tuple[int, ...], legal: PyTree, index: int) -> PyTree:
            draw: Callable[..., Any] = lambda key, legal: random_action(space, key, legal)  # noqa: E731
            for _ in range(1 + len(axes)):
                draw = jax.vmap(draw)
            return draw(jax.random.split(jax.random.fold_in(computed_once(key), index), (num_envs, *axes)), legal)

        indices = {group.name: i for i, group in enumerate(self.groups)} or 0
        return map_groups(self.groups, self.action_space, sample, view.action_mask, indices), memory, {}


def can_play_randomly(space: Space) -> bool:
    """Whether random actions are a sensible baseline: not where they are texts."""
    return not any(isinstance(leaf, Text) for leaf in leaf_spaces(space))


def random_baseline(
    make_envs: Callable[[int], HostEnvironment], seeds: list[int], num_episodes: int
) -> dict[str, Any] | None:
    """Returns of uniformly random actions, summarized as those of a policy; ``None`` where actions are texts."""
    envs = make_envs(len(seeds) * num_episodes)
    try:
        spec = envs.spec
        if not can_play_randomly(spec.action_space):
            return None
        states = np.arange(len(seeds))
        policy = RandomPolicy(spec.action_space, spec.groups)
        result = play_episodes(policy, states, envs, seeds, Mode.SAMPLE, stream="random", max_steps=MAX_RANDOM_STEPS)
    finally:
        envs.close()
    return summarize_returns(result, return_bounds(spec.name, spec.return_bounds))


def untrained_baseline(
    method: Method, states: PyTree, make_envs: Callable[[int], HostEnvironment], seeds: list[int], num_episodes: int
) -> dict[str, Any] | None:
    """Returns of sampled play before training, where actions are texts; else ``None``."""
    envs = make_envs(len(seeds) * num_episodes)
    try:
        spec = envs.spec
        if can_play_randomly(spec.action_space):
            return None
        result = play_episodes(method, states, envs, seeds, Mode.SAMPLE)
    finally:
        envs.close()
    return summarize_returns(result, return_bounds(spec.name, spec.return_bounds))

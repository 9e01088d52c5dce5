"""Baselines beside a final result: uniformly random actions, the model before training, random opponents in games."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.records import Critique, Transition, View
from thespis.core.spaces import AgentGroup, Space, map_groups, random_action
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.rollout import Actor, play_episodes
from thespis.evaluation.score import summarize_returns
from thespis.runtime.keys import computed_once, fold

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
        num_envs, key = len(jax.tree.leaves(view.observation)[0]), computed_once(key)

        def sample(space: Space, axes: tuple[int, ...], legal: PyTree, key: Key[Array, ""]) -> PyTree:
            def draw(key: Key[Array, ""], legal: PyTree) -> PyTree:
                return random_action(space, key, legal)

            for _ in ("env", *axes):
                draw = jax.vmap(draw)
            return draw(jax.random.split(key, (num_envs, *axes)), legal)

        keys: Any = {group.name: fold(key, group.name) for group in self.groups} if self.groups else key
        return map_groups(self.groups, self.action_space, sample, view.action_mask, keys), memory, {}

    def judge(self, state: PyTree, episode: Transition) -> Critique:
        """No estimates: there is no critic."""
        return Critique()


def random_baseline(make_envs: Callable[[int], HostEnvironment], seeds: list[int], num_episodes: int) -> dict[str, Any]:
    """Returns of uniformly random actions, summarized as those of a policy."""
    envs = make_envs(len(seeds) * num_episodes)
    policy, states = RandomPolicy(envs.spec.action_space, envs.spec.groups), np.arange(len(seeds))
    return _summary(envs, policy, states, seeds, stream="random", max_steps=MAX_RANDOM_STEPS)


def untrained_baseline(
    method: Method, states: PyTree, make_envs: Callable[[int], HostEnvironment], seeds: list[int], num_episodes: int
) -> dict[str, Any]:
    """Returns of sampled play with ``states`` from before training, in the episodes of the final evaluation."""
    return _summary(make_envs(len(seeds) * num_episodes), method, states, seeds)


def _summary(envs: HostEnvironment, actor: Actor, states: PyTree, seeds: list[int], **options: Any) -> dict[str, Any]:
    """Results of sampled play. Closes ``envs``."""
    try:
        result = play_episodes(actor, states, envs, seeds, Mode.SAMPLE, **options)
    finally:
        envs.close()
    return summarize_returns(result, return_bounds(envs.spec.name, envs.spec.return_bounds))

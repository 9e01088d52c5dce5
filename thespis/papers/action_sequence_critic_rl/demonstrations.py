"""Demonstrations of a point's way to its goal, as people give them: with pauses and a trembling hand; and their feed.

A demonstrator goes straight to the goal and stays there. Before every step it may begin to hesitate, for a random
number of steps; normal noise is added to each of its actions. That people pause, and that it is hard to imitate:
Zhao et al., 2023 (arXiv:2304.13705); that their actions are noisy: Seo and Abbeel, 2025.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.records import Transition
from thespis.data.feeds import Replay
from thespis.data.ring_buffer import first_episode_mask
from thespis.envs.compiled.point_goal import MAX_DISPLACEMENT, PointGoal, PointGoalState
from thespis.runtime.keys import fold, indexed_keys, seed_key


@dataclasses.dataclass(frozen=True)
class Demonstrator:
    """Goes straight to the goal, but hesitates and trembles."""

    hesitation_rate: float = 0.0
    """Probability per step that it begins to hesitate."""
    mean_hesitation: float = 8.0
    """Mean number of steps for which it hesitates then."""
    tremor_std: float = 0.0
    """Standard deviation of the noise that is added to its actions."""

    def num_hesitation_steps(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """The length of a hesitation, geometrically distributed."""
        stop_rate = 1.0 / self.mean_hesitation
        uniform = jax.random.uniform(key, minval=1e-6, maxval=1.0)
        return 1 + jnp.floor(jnp.log(uniform) / jnp.log1p(-stop_rate)).astype("int32")

    def act(
        self, state: PointGoalState, remaining: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Array, Int[Array, ""]]:
        """The action in a state, and the number of steps for which it goes on to hesitate."""
        begin_key, length_key, tremor_key = jax.random.split(key, 3)
        begins = (remaining == 0) & (jax.random.uniform(begin_key) < self.hesitation_rate)
        remaining = jnp.where(begins, self.num_hesitation_steps(length_key), remaining)
        to_goal = (state.goal - state.position) / MAX_DISPLACEMENT
        way = to_goal / jnp.maximum(jnp.linalg.norm(to_goal), 1.0)
        action = jnp.where(remaining > 0, 0.0, way) + self.tremor_std * jax.random.normal(tremor_key, (2,))
        return jnp.clip(action, -1.0, 1.0), jnp.maximum(remaining - 1, 0)

    def episodes(self, env: PointGoal, num_episodes: int, seed: int) -> Transition:
        """Steps ``[time]`` of its episodes, one after another."""
        key = fold(seed_key(seed), "point demonstrations")

        def keys(stream: str, t: int | Array = 0) -> Array:
            return indexed_keys(fold(key, stream, t), num_episodes)

        def tick(carry: PyTree, t: Array) -> tuple[PyTree, PyTree]:
            state, first, remaining = carry
            action, remaining = jax.vmap(self.act)(state, remaining, keys("act", t))
            state, following = jax.vmap(env.step)(state, action, keys("step", t))
            steps = Transition(
                view=first.view,
                action=action,
                reward=following.reward,
                terminated=following.terminated,
                truncated=following.truncated,
                next_view=following.view,
                is_first=jnp.full(num_episodes, t == 0),
            )
            return (state, following, remaining), steps

        @jax.jit
        def play() -> Transition:
            state, first = jax.vmap(env.reset, in_axes=(None, 0))((), keys("reset"))
            none = jnp.zeros(num_episodes, "int32")
            return jax.lax.scan(tick, (state, first, none), jnp.arange(env.time_limit))[1]

        steps = jax.tree.map(lambda x: np.swapaxes(np.asarray(x), 0, 1), play())
        mask = np.swapaxes(
            np.asarray(first_episode_mask(jnp.asarray(np.swapaxes(steps.terminated | steps.truncated, 0, 1)))), 0, 1
        )
        return jax.tree.map(lambda x: x[mask], steps)


MADE_HERE = "demonstrator"
"""The name of demonstrations that are no dataset, but made when a run begins."""


@dataclasses.dataclass(frozen=True)
class DemonstratedReplay(Replay):
    """Replay buffer beside demonstrations in a point-goal environment, which are made when a run begins."""

    env: PointGoal = dataclasses.field(default_factory=PointGoal)
    """The environment of the demonstrations."""
    demonstrator: Demonstrator = dataclasses.field(default_factory=Demonstrator)
    """Who demonstrates."""
    num_demonstrations: int = 20
    """Number of episodes that are demonstrated."""
    demonstration_seed: int = 0
    """Seed of the demonstrations, which all training seeds have in common."""
    demos: str | None = MADE_HERE

    def load_data(self, read: Callable[[str], tuple[Transition, int]]) -> PyTree:
        """The sampler of the demonstrations, or of a dataset with another name."""
        if self.demos != MADE_HERE:
            return super().load_data(read)
        steps = self.demonstrator.episodes(self.env, self.num_demonstrations, self.demonstration_seed)
        return super().load_data(lambda name: (steps, 0))

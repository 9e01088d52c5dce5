"""Measures of environments with several goals: which of them a policy visits."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.compiled.foraging import ForagingEnv
from thespis.envs.compiled.multi_goal import GOAL_RADIUS, GOALS, MultiGoal, squared_goal_distances
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, play_in

MULTI_GOAL_ENV = "thespis.envs.compiled.multi_goal:MultiGoal"
MIN_HARVEST_SHARE = 0.05
"""Share of what grows in a patch below which it is neglected."""
MAX_EPISODE_STEPS = 30
"""Time limit of evaluation episodes, whatever that of training: a random walk rarely reaches a goal within it."""


def least_visited_goal_share(num_episodes: int = 100, env: str = MULTI_GOAL_ENV) -> Measure:
    """Share of sampled episodes that end at the least visited goal, in [0, 1/4]: see :func:`goal_visit_shares`."""
    name = (
        f"share of {num_episodes} sampled episodes that end at the goal least visited within {MAX_EPISODE_STEPS} steps"
    )
    return Measure(name, lambda run: goal_visit_shares(run, num_episodes).min(axis=1), env=env)


def num_goals_visited(min_share: float = 0.05, num_episodes: int = 100, env: str = MULTI_GOAL_ENV) -> Measure:
    """Number of goals where at least ``min_share`` of sampled episodes end, 0 to 4; see :func:`goal_visit_shares`."""
    name = (
        f"number of goals with at least {min_share:.0%} of {num_episodes} sampled episodes within "
        f"{MAX_EPISODE_STEPS} steps"
    )

    def count_goals(run: Run) -> Float[np.ndarray, " seed"]:
        return (goal_visit_shares(run, num_episodes) >= min_share).sum(axis=1).astype(np.float64)

    return Measure(name, count_goals, env=env)


def goal_visit_shares(run: Run, num_episodes: int) -> Float[np.ndarray, "seed goal"]:
    """Share of sampled episodes that end at each goal of the multi-goal environment.

    All episodes start exactly in the middle, whatever ``initial_std`` the run was trained with, so that no goal is
    nearer than another and only the policy's own randomness decides. Shares sum to less than 1 where episodes end at
    no goal.
    """
    env = make_compiled(run.config["env"])
    assert isinstance(env, MultiGoal)
    from_middle = dataclasses.replace(env, initial_std=0.0, time_limit=MAX_EPISODE_STEPS)
    episodes = play_in(run, from_middle, num_episodes, Mode.SAMPLE, "goals", num_kept=num_episodes).episodes
    final_positions = np.array(
        [[episode.next_view.observation[-1] for episode in seed_episodes] for seed_episodes in episodes]
    )
    is_at_goal = np.asarray(squared_goal_distances(jnp.asarray(final_positions))) < GOAL_RADIUS**2
    return is_at_goal.reshape(len(run.config["seeds"]), num_episodes, len(GOALS)).mean(axis=1)


def num_neglected_patches(num_episodes: int = 20) -> Measure:
    """Number of patches of :class:`ForagingEnv`, 0 to 4, from which greedy play takes less than 5% of the growth."""

    def count_patches(run: Run) -> Float[np.ndarray, " seed"]:
        return (harvest_shares(run, num_episodes) < MIN_HARVEST_SHARE).sum(axis=1).astype(np.float64)

    name = f"number of patches from which less than {MIN_HARVEST_SHARE:.0%} of the growth is taken"
    return Measure(name, count_patches, larger_is_better=False)


def harvest_shares(run: Run, num_episodes: int) -> Float[np.ndarray, "seed patch"]:
    """Mean harvest per step of greedy play from each patch of :class:`ForagingEnv`, as a share of its growth."""
    env = make_compiled(run.config["env"])
    assert isinstance(env, ForagingEnv)
    episodes = play_in(run, env, num_episodes, Mode.EXPLOIT, "patches", num_kept=num_episodes).episodes
    harvest = jax.jit(jax.vmap(env.harvest))
    return np.array(
        [
            np.mean([harvest(e.view.observation, e.action).mean(axis=0) for e in seed_episodes], axis=0) / env.growth
            for seed_episodes in episodes
        ]
    )

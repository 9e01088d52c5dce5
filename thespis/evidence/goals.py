"""Which goals a policy goes to, in a world that has several."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.compiled.multi_goal import GOALS, REACH, MultiGoal, squared_distances
from thespis.envs.host.compiled import AsHost
from thespis.envs.registry import compiled
from thespis.evaluation.play import play
from thespis.evidence.measures import Measure
from thespis.trained import Run

WORLD = "thespis.envs.compiled.multi_goal:MultiGoal"
WITHIN = 30
"""Steps that an episode has to get to a goal, whatever it had in training: who walks at random rarely does."""


def least_visited(episodes: int = 100, world: str = WORLD) -> Measure:
    """Share of sampled episodes that end at the goal where fewest do, in [0, 1/4]: see :func:`goal_shares`."""
    name = f"share of {episodes} sampled episodes that end at the goal least visited within {WITHIN} steps"
    return Measure(name, lambda run: goal_shares(run, episodes).min(axis=1), world=world)


def goals_visited(share: float = 0.05, episodes: int = 100, world: str = WORLD) -> Measure:
    """Goals at which at least ``share`` of the sampled episodes end, 0 to 4: see :func:`goal_shares`."""
    name = f"number of goals with at least {share:.0%} of {episodes} sampled episodes within {WITHIN} steps"

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        return (goal_shares(run, episodes) >= share).sum(axis=1).astype(np.float64)

    return Measure(name, of, world=world)


def goal_shares(run: Run, episodes: int) -> Float[np.ndarray, "seed goal"]:
    """Share of sampled episodes that end at each goal of a multi-goal world.

    All begin in the very middle, whatever ``spread`` the run was trained with, so that no goal is nearer than another
    and the policy's own randomness alone decides. Shares sum to less than 1 where episodes end at no goal.
    """
    world = compiled(run.config["env"])
    assert isinstance(world, MultiGoal)
    seeds = run.config["seeds"]
    worlds = AsHost(dataclasses.replace(world, spread=0.0, limit=WITHIN), episodes * len(seeds))
    kept = play(run.method, run.states, worlds, seeds, Mode.SAMPLE, keep=episodes, stream="goals").kept
    last = np.array([[episode.next_view.observation[-1] for episode in of_seed] for of_seed in kept])
    there = np.asarray(squared_distances(jnp.asarray(last))) < REACH**2
    return there.reshape(len(seeds), episodes, len(GOALS)).mean(axis=1)

"""Bench of users with conflicting goals: mazes in which a policy serves a user who is known by a few comparisons.

Users of two or four types compare cells by the distance from their own goal
(:mod:`thespis.papers.vpl.envs`). A reward model that pools their labels can please only some. Users of the measures are
new, and the same for all arms; the return of a policy to a user is computed without play.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evidence.bench import Bench, Symptom
from thespis.evidence.benches.segment_preferences import ExactHeadroom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.papers.regret_preference_model.planning import (
    greedy_probs,
    optimal_values,
    policy_values,
    reach_probabilities,
)
from thespis.papers.vpl.envs import FOUR_GOALS, MazeTables, UserMaze
from thespis.papers.vpl.method import PooledReward, UserData
from thespis.runtime.keys import fold, seed_key

TWO_GOALS_MAZE, FOUR_GOALS_MAZE = UserMaze(), UserMaze(layout=FOUR_GOALS)
"""Rooms with two goals, and with four."""
NAMED_TWO_GOALS_MAZE, NAMED_FOUR_GOALS_MAZE = (
    dataclasses.replace(maze, names_user=True) for maze in (TWO_GOALS_MAZE, FOUR_GOALS_MAZE)
)
"""The same with observations that say which type the user is of."""
ENVS = tuple(f"{__name__}:{name}" for name in ("TWO_GOALS_MAZE", "FOUR_GOALS_MAZE"))
NAMED_ENVS = {env: env.replace(":", ":NAMED_") for env in ENVS}
NUM_UPDATES = 20
NUM_ROUNDS = 24
NUM_CANDIDATES = 32
NUM_PAIRS = 200


def users_of(run: Any, model: PyTree, maze: UserMaze) -> tuple[UserData, Int[Array, " user"]]:
    """New users, one of each type for each of 24 sets of queries, and their types."""
    keys = jax.random.split(seed_key(0), NUM_ROUNDS)
    types = jnp.arange(maze.num_users)

    def ask(key: Any) -> Float[Array, "type comparison 5"]:
        sets = jax.vmap(maze.random_queries)(jax.random.split(fold(key, "queries"), NUM_CANDIDATES))
        chosen = sets[run.method.choose_queries(model, maze.tables.coordinates[sets], fold(key, "choice"))]
        return jax.vmap(lambda user: maze.compare(user, chosen, fold(key, "answers", user)))(types)

    comparisons = jax.lax.map(ask, keys).reshape(-1, maze.num_comparisons, 5)
    user = jnp.tile(types, NUM_ROUNDS)
    return UserData(comparisons, jax.nn.one_hot(user, maze.num_users) * maze.names_user), user


def mean_over_users(
    run: Any, score: Callable[[PyTree, UserData, Int[Array, ""], MazeTables], Array]
) -> Float[np.ndarray, " seed"]:
    """Mean score of the models of a run over new users."""
    maze: Any = make_compiled(run.config["env"])

    def mean_score(model: PyTree) -> Float[Array, ""]:
        scores = jax.vmap(lambda data, user: score(model, data, user, maze.tables))
        return scores(*users_of(run, model, maze)).mean()

    return np.asarray(jax.jit(lambda models: jax.lax.map(mean_score, models))(run.states.model))


def normalized_return(mode: Mode = Mode.EXPLOIT) -> Measure:
    """A user's own expected return, 0 for random actions and 1 for the policy that is best for them: exact."""

    def returns(run: Any) -> Float[np.ndarray, " seed"]:
        limit: Any = make_compiled(run.config["env"]).spec.time_limit

        def score(model: PyTree, data: UserData, user: Int[Array, ""], tables: MazeTables) -> Float[Array, ""]:
            rewards = tables.utilities[user][tables.next_cell]
            dynamics = tables.next_cell, jnp.zeros(len(rewards), bool)
            logits = run.method.action_logits(model, tables, data)
            probs = greedy_probs(logits) if mode is Mode.EXPLOIT else jax.nn.softmax(logits, axis=-1)
            value, low = (
                policy_values(p, rewards, *dynamics, limit).mean(where=tables.is_start)
                for p in (probs, jnp.full_like(rewards, 1.0 / rewards.shape[1]))
            )
            high = optimal_values(rewards, *dynamics, 1.0, limit).mean(where=tables.is_start)
            return (value - low) / (high - low)

        return mean_over_users(run, score)

    name = "users' return" if mode is Mode.EXPLOIT else "users' sampled return"
    return Measure(f"{name} between random actions (0) and the best policy for each (1)", returns)


def missed_goals() -> Measure:
    """Share of users and cells from which greedy play does not come to the user's goal: exact."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        limit: Any = make_compiled(run.config["env"]).spec.time_limit

        def score(model: PyTree, data: UserData, user: Int[Array, ""], tables: MazeTables) -> Float[Array, ""]:
            is_goal = tables.distances[user] == 0
            probs = greedy_probs(run.method.action_logits(model, tables, data))
            reached = reach_probabilities(probs, tables.next_cell, is_goal, is_goal, limit)
            return 1.0 - reached.mean(where=tables.is_start)

        return mean_over_users(run, score)

    return Measure("share of users and cells from which the goal is missed", shares, False, bounds=(0.0, 1.0))


def preference_accuracy() -> Measure:
    """Share of right predictions of which of two cells a new user prefers, where they do not like both equally."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        maze: Any = make_compiled(run.config["env"])
        cells = jax.random.randint(seed_key(1), (NUM_PAIRS, 2), 0, len(maze.tables.coordinates))

        def score(model: PyTree, data: UserData, user: Int[Array, ""], tables: MazeTables) -> Float[Array, ""]:
            distances = tables.distances[user][cells]
            logits = run.method.preference_logits(model, data, tables.coordinates[cells])
            differs = distances[:, 0] != distances[:, 1]
            right = (logits > 0) == (distances[:, 0] < distances[:, 1])
            return jnp.sum(right & differs) / jnp.sum(differs)

        return mean_over_users(run, score)

    return Measure("share of users' preferences predicted", shares, bounds=(0.0, 1.0))


def scale_variation() -> Measure:
    """Coefficient of variation, over new users, of the range of the learned rewards: lower is better."""

    def variations(run: Any) -> Float[np.ndarray, " seed"]:
        maze: Any = make_compiled(run.config["env"])

        def variation(model: PyTree) -> Float[Array, ""]:
            users = users_of(run, model, maze)[0]
            rewards = jax.vmap(lambda data: run.method.rewards(model, data, maze.tables.coordinates))(users)
            ranges = jnp.ptp(rewards, axis=1)
            return jnp.std(ranges) / jnp.mean(ranges)

        return np.asarray(jax.jit(lambda models: jax.lax.map(variation, models))(run.states.model))

    return Measure("variation of the rewards' range between users", variations, False)


RETURN, SAMPLED_RETURN = normalized_return(), normalized_return(Mode.SAMPLE)
"""Of the best actions, and of actions that are drawn: a finer measure, as equal policies have equal returns."""
BASELINE = PooledReward()
"""One reward for all users."""
_COPY = dataclasses.replace(BASELINE, stream=1)
POOLED_ARM, NAMED_ARM = Arm("pooled users", BASELINE), Arm("named users", BASELINE, env=NAMED_ENVS)

BENCH = Bench(
    name="conflicting-users",
    version=1,
    summary="Mazes in which users of two or four types want to be at different places, each known by four comparisons "
    "of cells, with the exact return of a policy to users who are new.",
    envs=ENVS,
    steps=NUM_UPDATES * BASELINE.feed.num_envs,
    num_episodes=10,
    arms=(POOLED_ARM, Arm("pooled users again", _COPY), NAMED_ARM),
    positive=Comparison("named users", "pooled users", RETURN),
    negative=Comparison("pooled users", "pooled users again", SAMPLED_RETURN),
    headroom=ExactHeadroom("pooled users", "pooled users", RETURN),
    symptoms=(Symptom("pooled users", missed_goals(), 0.3),),
    tuning="By the users' return on seeds 1,100 and 1,101, means of two, in the mazes with two and four goals. Pooled "
    "users with learning rates of 3e-4, 1e-3, 3e-3 and 1e-2: 0.45 and 0.50, 0.49 and 0.50, 0.49 and 0.50, 0.47 and "
    "0.47; named users with 3e-3: 0.98 and 0.97. VPL with 1e-3 and 3e-3 and weights of the divergence of 1 and 0.3: "
    "0.90 and 0.66, 0.87 and 0.65 (1e-3), 0.92 and 0.70, 0.90 and 0.67 (3e-3); without reward scaling, with 1e-3 and "
    "3e-3, 0.90 and 0.70, 0.90 and 0.71. All arms have 3e-3 and a weight of 1. What is possible is known: with the "
    "same place for all users 0.49 and 0.50, by Bayes' rule from four comparisons 0.96 and 0.73. Before, goals in "
    "opposite corners, episodes that begin anywhere, and eight comparisons with fewer mistakes were looked at: pooled "
    "users were at 0.09 there, as what serves some hurts others as much, and VPL at 1.",
    looks=plan_looks((10, 20)),
)

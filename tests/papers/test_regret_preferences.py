"""Regret preferences: planning against play, scores against the labellers of preference learning, and gradients."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.core.records import Batch, Transition, View
from thespis.feedback.labellers import RegretTeacher, StateValue
from thespis.feedback.preference_queries import Queries, Segments, SyntheticTeacher
from thespis.papers.regret_preference_model.envs import GOAL, REWARDS, DeliveryGrid
from thespis.papers.regret_preference_model.planning import (
    action_values,
    greedy_probs,
    optimal_values,
    policy_values,
    reach_probabilities,
)
from thespis.papers.regret_preference_model.segments import pair_rows

GRID = DeliveryGrid(size=3, num_cells=(1, 1, 1, 1, 1), seed=2)
TABLES = GRID.tables
DYNAMICS = TABLES.next_state, TABLES.is_terminal


class CellValue(StateValue):
    """The value of a one-hot cell."""

    values: jax.Array

    def __call__(self, observation):
        return observation @ self.values


def best_return(state, horizon):
    """By trying all sequences of actions, in NumPy."""
    next_state, rewards, terminal = (np.asarray(x) for x in (TABLES.next_state, TABLES.rewards, TABLES.is_terminal))
    totals = []
    for actions in itertools.product(range(4), repeat=horizon):
        cell, total = state, 0.0
        for action in actions:
            if terminal[cell]:
                break
            total, cell = total + rewards[cell, action], next_state[cell, action]
        totals.append(total)
    return max(totals)


def test_optimal_values_match_enumeration_of_action_sequences():
    values = optimal_values(TABLES.rewards, *DYNAMICS, 1.0, 4)
    for state in range(9):
        expected = 0.0 if TABLES.is_terminal[state] else best_return(state, 4)
        np.testing.assert_allclose(values[state], expected, rtol=1e-5)


def test_values_of_policies_match_play():
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (9, 4)))
    horizon, rewards, next_state = 6, np.asarray(TABLES.rewards), np.asarray(TABLES.next_state)
    start, is_terminal = int(np.flatnonzero(TABLES.is_start)[0]), np.asarray(TABLES.is_terminal)
    distribution, total = np.eye(9)[start], 0.0
    for _ in range(horizon):
        joint = (distribution * ~is_terminal)[:, None] * np.asarray(probs)
        total += (joint * rewards).sum()
        distribution = distribution * is_terminal + np.bincount(next_state.ravel(), joint.ravel(), 9)
    np.testing.assert_allclose(policy_values(probs, TABLES.rewards, *DYNAMICS, horizon)[start], total, rtol=1e-4)
    is_goal = np.zeros(9, bool)
    is_goal[next_state[np.asarray(TABLES.features)[..., GOAL] > 0]] = True
    reached = reach_probabilities(probs, *DYNAMICS, jnp.asarray(is_goal), horizon)
    np.testing.assert_allclose(reached[start], distribution[is_goal].sum(), rtol=1e-4)


def test_gradient_of_a_value_is_what_the_best_policy_earns():
    start = int(np.flatnonzero(TABLES.is_start)[0])

    def value(weights):
        return optimal_values(TABLES.features @ weights, *DYNAMICS, 0.9, 12)[start]

    weights = jnp.asarray(REWARDS)
    gradient = jax.grad(value)(weights)
    steps = 1e-2 * jnp.eye(len(REWARDS))
    differences = jnp.stack([(value(weights + step) - value(weights - step)) / 2e-2 for step in steps])
    np.testing.assert_allclose(gradient, differences, atol=2e-2)
    rewards = TABLES.features @ weights
    q_values = action_values(rewards, optimal_values(rewards, *DYNAMICS, 0.9, 12), *DYNAMICS, 0.9)
    assert (greedy_probs(q_values).sum(axis=1) == 1).all()


def sample_batch(num_steps, num_rows, key):
    """Rows of the grid with random actions; an ended episode is followed by another."""
    start = jax.random.choice(key, jnp.flatnonzero(TABLES.is_start), (num_rows,))
    rows = []
    for t in range(num_steps):
        action = jax.random.randint(jax.random.fold_in(key, t), (num_rows,), 0, 4)
        after = TABLES.next_state[start, action]
        ends = TABLES.is_terminal[after]
        views = [View(jax.nn.one_hot(x, 9)) for x in (start, after)]
        false = jnp.zeros(num_rows, bool)
        rows.append(Transition(views[0], action, TABLES.rewards[start, action], ends, false, views[1], false))
        start = jnp.where(ends, int(np.flatnonzero(TABLES.is_start)[0]), after)
    steps = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    return Batch(steps, jnp.ones((num_steps, num_rows), bool), (), jnp.zeros((), "int32"))


def test_scores_are_those_of_the_labellers():
    batch = sample_batch(3, 64, jax.random.key(1))
    pairs = pair_rows(batch)
    assert 0 < int(pairs.ends.sum()) < 64
    values = optimal_values(TABLES.rewards, *DYNAMICS, 1.0, 20)
    # a labeller sees one more step, without a reward, whose observation is the state that the segment leads to
    observations = jax.nn.one_hot(pairs.states, 9)
    exists = jnp.concatenate([pairs.mask, ~pairs.ends[..., None]], axis=-1)
    rewards = jnp.swapaxes(batch.steps.reward, 0, 1).reshape(32, 2, 3)
    padded = jnp.pad(jnp.where(pairs.mask, rewards, 0.0), ((0, 0), (0, 0), (0, 1)))
    queries = Queries(Segments(observations, jnp.pad(pairs.actions, ((0, 0), (0, 0), (0, 1))), exists), padded)
    regrets = RegretTeacher(CellValue(values), 1.0).regrets(queries)
    np.testing.assert_allclose(pairs.scores(TABLES.rewards, values, 1.0), -regrets, atol=1e-4)
    returns = pairs.scores(TABLES.rewards, values, 0.0)
    np.testing.assert_allclose(returns, queries.returns, atol=1e-4)
    key = jax.random.key(2)
    labels = pairs.with_labels(returns, jnp.inf, key).label
    np.testing.assert_array_equal(labels, SyntheticTeacher().answer(queries, key).label)


@pytest.mark.slow
def test_the_grid_is_an_environment():
    check_environment(DeliveryGrid(), seed=0)

"""Contrastive preference learning with tables: the loss by its formula, its optimum, and the fixed point of P-IQL."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.papers.cpl.method import PIQLTables, SegmentCPL, SegmentPIQL, contrastive_loss
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.segments import SegmentPairs

ADVANTAGES = np.array([0.3, -0.2, -1.1])
"""Of the three actions of a single state, up to a constant."""


def grid_tables(next_state, ends):
    """Without features, and with true rewards of 0: no learner reads them."""
    zeros = np.zeros(next_state.shape, "float32")
    return GridTables(*map(jnp.asarray, (next_state.astype("int32"), zeros[..., None], zeros, ends, ~ends)))


def all_pairs(num_actions):
    """Segments of one step: every action against every other, with the labels' probabilities as soft labels."""
    first, second = (np.array(x) for x in zip(*itertools.permutations(range(num_actions), 2), strict=True))
    label = 1 / (1 + np.exp(-(ADVANTAGES[first] - ADVANTAGES[second])))
    shape = (len(first), 2)
    return SegmentPairs(
        jnp.zeros((*shape, 2), "int32"),
        jnp.stack([first, second], axis=1)[..., None],
        jnp.ones((*shape, 1), bool),
        jnp.ones(shape, bool),
        jnp.asarray(label, "float32"),
    )


def test_contrastive_loss_by_its_formula():
    scores, label, bias = np.array([[-3.0, -1.0], [-0.5, -2.0], [-1.0, -1.5]]), np.array([1.0, 0.0, 0.25]), 0.4
    expected = []
    for (first, second), p in zip(scores, label, strict=True):
        first_wins = np.exp(first) / (np.exp(first) + np.exp(bias * second))
        second_wins = np.exp(second) / (np.exp(second) + np.exp(bias * first))
        expected.append(-p * np.log(first_wins) - (1 - p) * np.log(second_wins))
    np.testing.assert_allclose(contrastive_loss(*map(jnp.asarray, (scores, label)), bias), expected, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_optimum_without_bias_is_the_soft_policy_of_the_advantages(alpha):
    method, pairs = SegmentCPL(alpha=alpha, bias=1.0), all_pairs(3)
    tables = grid_tables(np.zeros((1, 3), "int32"), np.zeros(1, bool))

    @jax.jit
    def fitted():
        def step(logits, _):
            return logits - 2.0 * jax.grad(method.loss)(logits, pairs, tables, 1_000), None

        return jax.nn.softmax(jax.lax.scan(step, jnp.zeros((1, 3)), None, 3_000)[0])

    expected = np.exp(ADVANTAGES / alpha)
    np.testing.assert_allclose(fitted()[0], expected / expected.sum(), atol=2e-3)


def test_tables_of_piql_rest_where_their_equations_hold():
    """A state with three actions, two of which end the episode, and a second one from which all actions do."""
    next_state, ends = np.array([[1, 2, 2], [2, 2, 2], [2, 2, 2]]), np.array([False, False, True])
    tables = grid_tables(next_state, ends)
    states = np.repeat([0, 1], 3).reshape(3, 2)
    actions = np.tile(np.arange(3), 2).reshape(3, 2)
    after = next_state[states, actions]
    pairs = SegmentPairs(
        jnp.asarray(np.stack([states, after], axis=-1)),
        jnp.asarray(actions)[..., None],
        jnp.ones((3, 2, 1), bool),
        jnp.asarray(ends[after]),
        jnp.full(3, 0.5),
    )
    method, rewards = (
        SegmentPIQL(value_discount=0.9, expectile=0.8, temperature=0.5),
        jnp.asarray([[1.0, 2, 0], [3, 1, 1]]),
    )
    rewards = jnp.concatenate([rewards, jnp.zeros((1, 3))])

    def expectile(values):
        """By trying all numbers of a grid."""
        grid = np.linspace(values.min(), values.max(), 200_001)
        error = values[:, None] - grid
        return grid[np.argmin((np.where(error > 0, 0.8, 0.2) * error**2).sum(axis=0))]

    second = expectile(np.array([3.0, 1, 1]))
    q_values = np.array([[1 + 0.9 * second, 2, 0], [3, 1, 1], [0, 0, 0]])
    values = np.array([expectile(q_values[0]), second, 0])
    weight = np.exp((q_values - values[:, None]) / 0.5)
    logits = np.log(np.minimum(weight, 100.0))
    params = PIQLTables(rewards + 7, jnp.asarray(7.0), *(jnp.asarray(x, "float32") for x in (q_values, values, logits)))
    gradient = jax.jit(jax.grad(lambda p: method.loss(p, pairs, tables, 0)))(params)
    np.testing.assert_allclose(gradient.q_values, 0, atol=1e-4)
    np.testing.assert_allclose(gradient.values, 0, atol=1e-4)
    np.testing.assert_allclose(gradient.logits, 0, atol=1e-4)

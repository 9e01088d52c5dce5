"""VPL: the bound against integration over the latent, what queries tell by enumeration, and the maze by its graph."""

import dataclasses
import itertools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.evidence.benches import conflicting_users as bench
from thespis.papers.regret_preference_model.planning import action_values, optimal_values
from thespis.papers.vpl.envs import FOUR_GOALS, MOVES, UserMaze
from thespis.papers.vpl.losses import cyclical_weight, gaussian_kl, information_gain, probit_loss
from thespis.papers.vpl.method import PooledReward, UserData, VariationalPreferences

MAZE = UserMaze(layout=FOUR_GOALS)
TABLES = MAZE.tables
SMALL = VariationalPreferences(latent_size=1, hidden_sizes=(8,), num_cycles=0)
GRID = np.linspace(-12, 12, 6_001)


def normal_density(x, mean, log_var):
    return np.exp(-0.5 * (x - mean) ** 2 / np.exp(log_var) - 0.5 * log_var) / np.sqrt(2 * np.pi)


def integral(values):
    return np.sum(values) * (GRID[1] - GRID[0])


def user_data(maze=MAZE, user=1, seed=0):
    cells = maze.random_queries(jax.random.key(seed))
    return UserData(maze.compare(jnp.asarray(user), cells, jax.random.key(seed + 1)), jnp.zeros(maze.num_users))


def with_prior(model, mean, log_var):
    return dataclasses.replace(model, prior_mean=jnp.full(1, mean), prior_log_var=jnp.full(1, log_var))


def test_divergence_of_normal_distributions_by_integration():
    p, q = normal_density(GRID, 0.7, -0.5), normal_density(GRID, -0.4, 0.8)
    parameters = [jnp.array([x]) for x in (0.7, -0.5, -0.4, 0.8)]
    np.testing.assert_allclose(gaussian_kl(*parameters), integral(p * np.log(p / q)), rtol=1e-4)


@pytest.mark.parametrize("reward_scale", ["none", "pairwise"])
def test_the_loss_is_minus_the_likelihood_plus_the_divergence_from_the_posterior(reward_scale):
    """What the bound of a model with one latent dimension falls short of the likelihood, by integration over it."""
    method = dataclasses.replace(SMALL, reward_scale=reward_scale)
    model, data = with_prior(method.init_model(4, jax.random.key(3)), 0.3, 0.4), user_data()
    logits = jax.vmap(lambda z: method.latent_logits(model, z[None], data.pairs))(jnp.asarray(GRID, "float32"))
    signs = 2 * np.asarray(data.labels) - 1
    likelihood = np.prod(1 / (1 + np.exp(-signs * np.asarray(logits))), axis=1)
    joint = likelihood * normal_density(GRID, 0.3, 0.4)
    evidence = integral(joint)
    mean, log_var = (float(x[0]) for x in model.encode(data.comparisons))
    q = normal_density(GRID, mean, log_var)
    gap = integral(np.where(q > 1e-30, q * np.log(np.maximum(q, 1e-30) / np.maximum(joint / evidence, 1e-30)), 0.0))
    assert gap > 0.01
    users = jax.tree.map(lambda x: jnp.broadcast_to(x, (40_000, *x.shape)), data)
    value = method.loss(model, users, jnp.zeros((), "int32"), jax.random.key(4))
    np.testing.assert_allclose(value, gap - np.log(evidence), atol=0.02)


def test_the_order_of_comparisons_does_not_matter():
    model, data = SMALL.init_model(4, jax.random.key(0)), user_data()
    for x, y in zip(model.encode(data.comparisons), model.encode(data.comparisons[::-1]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_pairwise_rewards_are_mean_probabilities_to_be_preferred():
    model, cells = SMALL.init_model(4, jax.random.key(1)), TABLES.coordinates[:5]
    data = user_data()
    rewards = SMALL.rewards(model, data, cells)
    latent = model.encode(data.comparisons)[0]
    for first, reward in zip(cells, rewards, strict=True):
        logits = [float(model.decoder(jnp.concatenate([first, second]), latent)[0]) for second in cells]
        np.testing.assert_allclose(reward, np.mean(1 / (1 + np.exp(-np.array(logits)))), rtol=1e-4)


def test_weight_rises_in_each_cycle():
    weights = [float(cyclical_weight(jnp.asarray(step), 80, 4)) for step in range(80)]
    np.testing.assert_allclose([weights[i] for i in (0, 10, 20, 30)], [0, 0.5, 0, 0.5], atol=1e-6)
    assert max(weights) > 0.99 and all(a < b for a, b in itertools.pairwise(weights[40:60]))
    assert float(cyclical_weight(jnp.asarray(7), 80, 0)) == 1


def test_information_of_queries_by_enumeration_of_answers():
    method = dataclasses.replace(SMALL, latent_size=3)
    model, pairs, key = method.init_model(4, jax.random.key(5)), user_data().pairs, jax.random.key(6)
    latents = np.asarray(jax.random.normal(key, (64, 3)))  # the prior is the standard normal distribution
    logits = np.stack([np.asarray(method.latent_logits(model, jnp.asarray(z), pairs)) for z in latents])
    prob, means, variances = [], [], []
    for signs in itertools.product((-1.0, 1.0), repeat=4):
        prob.append(np.mean(np.prod(1 / (1 + np.exp(-np.array(signs) * logits)), axis=1)))
        rows = np.concatenate([np.asarray(pairs).reshape(4, 4), np.array(signs)[:, None]], axis=1)
        mean, log_var = model.encode(jnp.asarray(rows, "float32"))
        means.append(np.asarray(mean))
        variances.append(np.exp(np.asarray(log_var)))
    prob, means, variances = map(np.array, (prob, means, variances))
    np.testing.assert_allclose(prob.sum(), 1, rtol=1e-5)
    center = prob @ means
    total = prob @ (variances + (means - center) ** 2)
    expected = 0.5 * np.sum(np.log(total)) - 0.5 * prob @ np.log(variances).sum(axis=1)
    np.testing.assert_allclose(method.query_information(model, pairs, key), expected, rtol=1e-3)


def test_answers_that_change_nothing_tell_nothing():
    same = jnp.zeros((2, 3))
    prob = jnp.array([0.3, 0.7])
    np.testing.assert_allclose(information_gain(same, same, prob), 0, atol=1e-6)
    assert information_gain(same.at[0].set(1.0), same, prob) > 0.05


def test_the_most_telling_of_the_candidates_is_asked():
    method = dataclasses.replace(SMALL, num_candidates=6)
    model, key = method.init_model(4, jax.random.key(7)), jax.random.key(8)
    candidates = jnp.stack([user_data(seed=seed).pairs for seed in range(9)])
    information = [float(method.query_information(model, pairs, key)) for pairs in candidates[:6]]
    assert int(method.choose_queries(model, candidates, key)) == int(np.argmax(information))
    assert int(SMALL.choose_queries(model, candidates, key)) == 0


def test_probit_loss_is_the_frequency_with_which_one_normal_reward_exceeds_another():
    mean, log_std = np.array([0.4, -0.3]), np.array([0.2, -0.7])
    draws = mean + np.exp(log_std) * np.random.default_rng(0).normal(size=(400_000, 2))
    frequency = np.mean(draws[:, 0] > draws[:, 1])
    loss = [float(probit_loss(jnp.asarray(mean), jnp.asarray(log_std), jnp.asarray(label))) for label in (1.0, 0.0)]
    np.testing.assert_allclose(loss, [-np.log(frequency), -np.log(1 - frequency)], atol=5e-3)


def test_pooled_rewards_of_named_users_differ_and_others_do_not():
    method = PooledReward(hidden_sizes=(8,))
    model = method.init_model(4, jax.random.key(0))
    names = [dataclasses.replace(user_data(), user=jnp.eye(4)[k]) for k in range(2)]
    rewards = [method.rewards(model, data, TABLES.coordinates) for data in (*names, user_data(user=0), user_data())]
    assert np.abs(rewards[0] - rewards[1]).max() > 0.01
    np.testing.assert_array_equal(rewards[2], rewards[3])


def test_distances_are_those_of_the_graph_of_the_maze():
    rows = np.array([list(row) for row in FOUR_GOALS])
    cells = [tuple(x) for x in np.argwhere(rows != "#").tolist()]
    graph = np.full((len(cells), len(cells)), 1_000)
    for i, j in itertools.product(range(len(cells)), repeat=2):
        graph[i, j] = min(graph[i, j], sum(abs(a - b) for a, b in zip(cells[i], cells[j], strict=True)))
    graph = np.where(graph <= 1, graph, 1_000)
    for k in range(len(cells)):  # Floyd and Warshall
        graph = np.minimum(graph, graph[:, k, None] + graph[k])
    for user in range(4):
        goal = cells.index(tuple(np.argwhere(rows == str(user))[0].tolist()))
        np.testing.assert_array_equal(TABLES.distances[user], graph[goal])
        assert TABLES.utilities[user][goal] == 1 and TABLES.utilities[user].min() == 0
    assert [rows[cell] for cell, start in zip(cells, TABLES.is_start.tolist(), strict=True) if start] == ["s"] * 8
    assert (np.asarray(TABLES.next_cell)[:, MOVES.index((0, 0))] == np.arange(len(cells))).all()


def test_users_choose_as_bradley_and_terry_say():
    maze, count = dataclasses.replace(MAZE, beta=3.0), 20_000
    cells, user = jnp.array([[0, 40], [12, 3]]), jnp.asarray(2)
    answers = jax.vmap(lambda key: maze.compare(user, cells, key))(jax.random.split(jax.random.key(0), count))
    utility = np.asarray(TABLES.utilities[2])[np.asarray(cells)]
    expected = 1 / (1 + np.exp(-3 * (utility[:, 0] - utility[:, 1])))
    np.testing.assert_allclose((answers[..., 4] > 0).mean(axis=0), expected, atol=0.012)
    np.testing.assert_array_equal(answers[0, 1, :4], np.concatenate(np.asarray(TABLES.coordinates)[[12, 3]]))


def test_what_a_user_expects_by_bayes_rule():
    maze = dataclasses.replace(MAZE, beta=3.0)
    cells, signs = np.array([[0, 40], [12, 3]]), (1.0, -1.0)
    coordinates = np.asarray(TABLES.coordinates)[cells].reshape(2, 4)
    utility, weights = np.asarray(TABLES.utilities), np.ones(4)
    for user, (pair, sign) in itertools.product(range(4), zip(cells, signs, strict=True)):
        weights[user] /= 1 + np.exp(-3 * sign * (utility[user, pair[0]] - utility[user, pair[1]]))
    expected = weights @ utility / weights.sum()
    answers = jnp.asarray(np.concatenate([coordinates, np.array(signs)[:, None]], axis=1), "float32")
    np.testing.assert_allclose(maze.expected_utilities(answers), expected, rtol=1e-4)


class Oracle:
    """A method that is told the user's type: the policy that is best for them, or the worst one."""

    def __init__(self, sign):
        self.sign = sign

    def choose_queries(self, model, candidates, key):
        return jnp.zeros((), "int32")

    def action_logits(self, model, tables, data):
        rewards = self.sign * (data.user @ tables.utilities)[tables.next_cell]
        dynamics = tables.next_cell, jnp.zeros(len(rewards), bool)
        return action_values(rewards, optimal_values(rewards, *dynamics, 1.0, 30), *dynamics, 1.0)

    def preference_logits(self, model, data, pairs):
        cells = jnp.argmin(jnp.abs(pairs[..., None, :] - TABLES.coordinates).sum(axis=-1), axis=-1)
        utility = (data.user @ TABLES.utilities)[cells]
        return self.sign * (utility[:, 0] - utility[:, 1])

    def rewards(self, model, data, coordinates):
        return (1.0 + data.user[0]) * coordinates[:, 0]


def test_measures_of_the_best_and_the_worst_policy():
    name = bench.NAMED_ENVS[bench.ENVS[1]]
    best: Any
    worst: Any
    best, worst = (
        types.SimpleNamespace(
            method=Oracle(sign), states=types.SimpleNamespace(model=jnp.zeros(2)), config={"env": name}
        )
        for sign in (1.0, -1.0)
    )
    np.testing.assert_allclose(bench.RETURN.compute(best), [1, 1], atol=1e-4)
    assert (bench.RETURN.compute(worst) < -0.2).all()
    np.testing.assert_allclose(bench.missed_goals().compute(best), 0, atol=1e-6)
    np.testing.assert_allclose(bench.missed_goals().compute(worst), 1, atol=1e-6)
    np.testing.assert_allclose(bench.preference_accuracy().compute(best), 1)
    np.testing.assert_allclose(bench.preference_accuracy().compute(worst), 0)
    ranges = np.array([2, 1, 1, 1])
    np.testing.assert_allclose(bench.scale_variation().compute(best), ranges.std() / ranges.mean(), rtol=1e-4)


@pytest.mark.slow
def test_the_maze_is_an_environment():
    check_environment(UserMaze(), seed=0)

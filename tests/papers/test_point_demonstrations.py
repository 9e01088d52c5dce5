"""Demonstrations of the way to a point: who hesitates and trembles how much, and that steps are the environment's."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.compiled.point_goal import PointGoal
from thespis.papers.action_sequence_critic_rl.demonstrations import DemonstratedReplay, Demonstrator

ENV = PointGoal(goal_radius=0.1, terminates=True, time_limit=60)


def test_without_faults_the_way_is_straight_and_as_short_as_can_be():
    steps = Demonstrator().episodes(ENV, 30, 0)
    starts = np.flatnonzero(steps.is_first)
    assert len(starts) == 30
    ends = np.append(starts[1:], len(steps.reward)) - 1
    np.testing.assert_array_equal(np.flatnonzero(steps.terminated), ends)
    np.testing.assert_array_equal(np.flatnonzero(steps.reward), ends)
    for first, last in zip(starts, ends, strict=True):
        goal = steps.view.observation["desired_goal"][first]
        distance = float(np.linalg.norm(goal))
        assert last + 1 - first == max(1, int(np.ceil(round((distance - 0.1) / 0.1, 4))))
        if distance > 0.1:
            np.testing.assert_allclose(steps.action[first], goal / distance, atol=1e-5)


def test_steps_are_those_of_the_environment():
    steps = Demonstrator(0.1, 3.0, 0.3).episodes(ENV, 10, 1)
    position, following = (view.observation["observation"] for view in (steps.view, steps.next_view))
    np.testing.assert_allclose(following, np.clip(position + 0.1 * steps.action, -1, 1), atol=1e-6)
    inside = ~np.asarray(steps.is_first)[1:]
    np.testing.assert_array_equal(position[1:][inside], following[:-1][inside])
    assert np.abs(steps.action).max() <= 1.0


def test_hesitations_are_as_frequent_and_as_long_as_declared():
    env = PointGoal(goal_radius=1e-6, time_limit=200)
    hesitant = Demonstrator(hesitation_rate=0.05, mean_hesitation=5.0)
    steps = hesitant.episodes(env, 200, 2)
    goal, position = steps.view.observation["desired_goal"], steps.view.observation["observation"]
    stands = (np.abs(steps.action).max(axis=1) < 1e-6).reshape(200, 200)
    away = (np.linalg.norm(goal - position, axis=1) > 0.05).reshape(200, 200)
    moves, stops = ~stands[:, :-1] & away[:, 1:], stands[:, :-1] & away[:, 1:]
    assert (stands[:, 1:] & moves).sum() / moves.sum() == pytest.approx(0.05, abs=0.015)
    assert (~stands[:, 1:] & stops).sum() / stops.sum() == pytest.approx(0.95 / 5.0, abs=0.03)


def test_tremor_is_added_to_actions():
    far = Demonstrator(hesitation_rate=1.0, mean_hesitation=1e6, tremor_std=0.2).episodes(ENV, 40, 3)
    assert np.std(far.action) == pytest.approx(0.2, abs=0.01) and abs(np.mean(far.action)) < 0.01


def test_demonstrations_do_not_depend_on_their_number():
    few, many = (Demonstrator(0.1, 3.0, 0.3).episodes(ENV, count, 4) for count in (3, 6))
    np.testing.assert_array_equal(few.action, many.action[: len(few.reward)])


def test_the_feed_mixes_them_with_own_steps():
    feed = DemonstratedReplay(env=ENV, num_demonstrations=5, batch_size=8, demo_share=0.25, num_envs=2)
    data = feed.load_data(lambda name: pytest.fail("a dataset was read"))
    expected = Demonstrator().episodes(ENV, 5, 0)
    store = feed.make_store(100)
    steps = jax.tree.map(lambda x: jnp.zeros((4, 2, *x.shape[1:]), x.dtype), expected)
    state = store.init(jax.tree.map(lambda x: x[0, 0], steps), 2)
    state = store.add(state, steps, jnp.int32(0))
    batch = store.sample(state, steps, (), jnp.int32(4), jnp.int32(0), jax.random.key(0), data)
    assert batch.is_from("demos").tolist() == [True] * 2 + [False] * 6
    sampled = np.asarray(batch.source("demos").steps.action[0])
    assert all((expected.action == action).all(axis=1).any() for action in sampled)
    names = []
    other = dataclasses.replace(feed, demos="data/other")
    other.load_data(lambda name: (names.append(name), (expected, 0))[1])
    assert names == ["data/other"]

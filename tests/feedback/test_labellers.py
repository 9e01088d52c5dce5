"""Labellers of regret, of cyclic taste and of several users, and answers that arrive late."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_preference_reward import SMALL, run_updates

from thespis.core.errors import UserError
from thespis.feedback.labellers import CyclicTeacher, RegretTeacher, StateValue, UserTypes
from thespis.feedback.preference_queries import Queries, Segments, SyntheticTeacher
from thespis.training.run_config import make_feedback

KEY = jax.random.key(3)
LENGTH = 4


class DistanceValue(StateValue):
    """Minus the distance to 10 of the only number that is observed: one step brings it nearer by 1."""

    def __call__(self, observation):
        return -jnp.abs(10.0 - observation[0])


def queries(places, rewards, lengths=None):
    """Pairs of segments of a walker: places and rewards ``[pair, 2, time]``, and how many steps each has."""
    places = jnp.asarray(places, "float32")
    lengths = jnp.full(places.shape[:2], LENGTH) if lengths is None else jnp.asarray(lengths)
    mask = jnp.arange(LENGTH) < lengths[..., None]
    return Queries(Segments(places[..., None], jnp.zeros((*places.shape, 1)), mask), jnp.asarray(rewards, "float32"))


def returns_as_queries(returns):
    rewards = np.zeros((len(returns), 2, LENGTH), "float32")
    rewards[..., 0] = returns
    return queries(np.zeros(rewards.shape), rewards)


def test_regret_by_hand():
    """A step costs 1; walking straight to 10 loses nothing, standing loses all of it, and an end is worth 0."""
    straight, standing, ended = [0, 1, 2, 3], [5, 5, 5, 5], [8, 9, 0, 0]
    asked = queries(
        [[straight, standing], [ended, straight]],
        np.where(True, -1.0, np.zeros((2, 2, LENGTH))),
        [[4, 4], [2, 4]],
    )
    teacher = RegretTeacher(DistanceValue())
    np.testing.assert_allclose(teacher.regrets(asked), [[0.0, 3.0], [0.0, 0.0]], atol=1e-6)
    np.testing.assert_array_equal(teacher.answer(asked, KEY).label, [1.0, 0.5])


def test_discounted_regret_by_hand():
    asked = queries([[[0, 2, 1, 4], [3, 3, 3, 3]]], [[[1.0, 2.0, 3.0, 50.0], [0.0] * 4]])
    teacher = RegretTeacher(DistanceValue(), discount=0.5, beta=0.1)
    expected = [-10 - (1 + 0.5 * 2 + 0.25 * 3) - 0.125 * -6, -7 - 0.125 * -7]
    np.testing.assert_allclose(teacher.regrets(asked)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(RegretTeacher().regrets(asked)[0], [-6.0, 0.0])


def test_a_segment_that_leads_to_a_good_state_is_preferred_to_one_of_more_reward():
    asked = queries([[[0, 3, 6, 9], [0, 0, 0, 0]]], [[[-2.0] * 4, [-1.0] * 4]])
    assert float(RegretTeacher(DistanceValue()).answer(asked, KEY).label[0]) == 1.0
    assert float(SyntheticTeacher().answer(asked, KEY).label[0]) == 0.0


def test_a_cyclic_taste_goes_round():
    thirds = [0.0, 1 / 3, 2 / 3]
    pairs = [(thirds[(i + 1) % 3], thirds[i]) for i in range(3)]
    np.testing.assert_array_equal(CyclicTeacher().answer(returns_as_queries(pairs), KEY).label, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(
        CyclicTeacher(period=2.0).answer(returns_as_queries([(0.4, 0.0), (1.4, 0.0), (0.3, 0.3)]), KEY).label,
        [1.0, 0.0, 0.5],
    )


def test_a_noisy_cyclic_taste_answers_with_its_probability():
    asked = returns_as_queries([(0.1, 0.0)] * 4_000)
    share = float(CyclicTeacher(beta=2.0).answer(asked, KEY).label.mean())
    assert share == pytest.approx(1 / (1 + np.exp(-2 * np.sin(0.2 * np.pi))), abs=0.03)


def test_users_answer_in_turn_and_say_who_they_are():
    asked = returns_as_queries([(1.0, 0.0)] * 3_000)
    answers = UserTypes(weights=(3.0, 1.0)).answer(asked, KEY)
    assert float((answers.user == 0).mean()) == pytest.approx(0.75, abs=0.03)
    np.testing.assert_array_equal(answers.label, np.where(np.asarray(answers.user) == 0, 1.0, 0.0))
    with pytest.raises(ValueError, match="1 weights for 2 users"):
        UserTypes(weights=(1.0,))


@pytest.mark.long
def test_comparisons_remember_user_and_round():
    feedback = dataclasses.replace(SMALL, labeller=UserTypes())
    comparisons = run_updates(feedback, 6)[-1][0].comparisons
    np.testing.assert_array_equal(comparisons.round[:7], [0, 0, 0, 1, 1, 1, 2])
    assert set(np.asarray(comparisons.user)) <= {0, 1} and int(comparisons.num_stored) == 7


@pytest.mark.long
def test_answers_arrive_late():
    """With a delay of one round nothing is learned in the first; the last answers are learned from a round after it."""
    late = run_updates(dataclasses.replace(SMALL, answer_delay=1), 10)
    untouched = jax.tree.leaves(run_updates(SMALL, 1)[0][0].model.networks)
    models = [state.model.networks for state, _ in late]

    def is_equal(first, second):
        pairs = zip(jax.tree.leaves(models[first]), jax.tree.leaves(models[second]), strict=True)
        return all(np.array_equal(x, y) for x, y in pairs)

    assert is_equal(0, 1)  # round 0: no answer has arrived
    changes = [not is_equal(i, i + 1) for i in range(9)]
    assert changes == [False, True, False, True, False, True, False, False, False]
    assert any(not np.array_equal(x, y) for x, y in zip(untouched, jax.tree.leaves(models[0]), strict=True))
    assert int(late[0][0].comparisons.num_stored) == 3


def test_known_answers_are_those_of_earlier_rounds():
    comparisons = run_updates(SMALL, 6)[-1][0].comparisons
    assert [int(comparisons.until(jnp.int32(i)).num_stored) for i in range(-1, 3)] == [0, 3, 6, 7]


def test_labellers_by_name():
    feedback = make_feedback("preferences", ["labeller=CyclicTeacher", "labeller.period=3", "answer_delay=2"])
    assert feedback.labeller == CyclicTeacher(period=3) and feedback.answer_delay == 2
    for settings in (["labeller=CyclicTeacher", "labeller.period=0"], ["answer_delay=-1"]):
        with pytest.raises(UserError):
            make_feedback("preferences", settings)

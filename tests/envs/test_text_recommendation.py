"""Recommendation task: utilities, choices of Bradley and Terry, user types, and what is best after some choices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from thespis.envs.text.recommendation import Recommendation, RecommendationState
from thespis.envs.text.task import TextEnv
from thespis.training.demonstrations import demonstration_returns


def init_many(task, num_users):
    """States and openings of so many episodes, as NumPy arrays."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(task.init))(jax.random.split(jax.random.key(0), num_users)))


def test_the_reward_is_the_cosine_of_the_angle_between_item_and_user():
    task = Recommendation(num_items=4)
    responses = [*(f"{item} <end>" for item in "abcd"), "> <end>", "+a <end>", "a b"]
    state = RecommendationState(jnp.asarray(0.3), jnp.zeros((task.num_choices, 2), "int32"))
    step = jax.jit(jax.vmap(lambda response: task.step(state, response, jax.random.key(0))[1].reward))
    rewards = step(np.stack([task.task_spec.encode(response) for response in responses]))
    expected = [np.cos(0.3), np.sin(0.3), -np.cos(0.3), -np.sin(0.3), -2.0, -2.0, -2.0]
    np.testing.assert_allclose(rewards, expected, atol=1e-6)


def test_the_prompt_shows_the_preferred_item_of_each_choice_first():
    task = Recommendation(num_items=5, num_choices=3, rationality=1e6)
    words = task.task_spec.vocabulary.words
    states, openings = init_many(task, 20)
    for angle, opening in zip(states.angle, openings, strict=True):
        shown = [words[token] for token in opening]
        utilities = dict(zip(task.items, np.cos(angle - task.item_angles), strict=True))
        assert shown[-1] == ">" and [word[0] for word in shown[:-1]] == ["+", "-"] * 3
        for better, worse in zip(shown[:-1:2], shown[1:-1:2], strict=True):
            assert utilities[better[1]] >= utilities[worse[1]] - 1e-6 and better[1] != worse[1]


@pytest.mark.parametrize("shows", ["user", "nothing"])
def test_the_prompt_says_who_the_user_is_or_nothing(shows):
    task = Recommendation(num_items=4, shows=shows)
    words = task.task_spec.vocabulary.words
    states, openings = init_many(task, 20)
    for angle, opening in zip(states.angle, openings, strict=True):
        best = "abcd"[np.cos(angle - task.item_angles).argmax()]
        assert [words[token] for token in opening] == ([f"+{best}", ">"] if shows == "user" else [">"])


def test_choices_are_made_by_the_model_of_bradley_and_terry():
    task = Recommendation(num_items=2, user_spread=0.7, num_choices=1, rationality=1.5)
    state, _ = init_many(task, 20_000)
    is_first = state.choices[:, 0, 0] == 0
    expected = expit(3.0 * np.cos(state.angle))
    low = expected < np.median(expected)
    for users in (low, ~low):
        assert is_first[users].mean() == pytest.approx(expected[users].mean(), abs=0.015)


@pytest.mark.long
def test_user_types_are_quantiles_of_all_users():
    angles = init_many(Recommendation(num_user_types=4), 400)[0].angle
    np.testing.assert_allclose(np.unique(angles.round(4)), 1.3 * norm.ppf([0.125, 0.375, 0.625, 0.875]), atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("choices", [[[0, 3]], [[1, 2], [4, 0], [3, 0]]])
def test_expected_utilities_are_integrals_over_the_posterior(choices):
    task = Recommendation(num_items=5, user_spread=1.1, rationality=2.0, num_choices=len(choices))
    angles = 2 * np.pi * np.arange(5) / 5

    def likelihood(angle):
        margins = [np.cos(angle - angles[better]) - np.cos(angle - angles[worse]) for better, worse in choices]
        return norm.pdf(angle, scale=1.1) * np.prod(expit(2.0 * np.array(margins)))

    total = quad(likelihood, -9, 9)[0]
    expected = [quad(lambda a, item=item: likelihood(a) * np.cos(a - item), -9, 9)[0] / total for item in angles]
    np.testing.assert_allclose(jax.jit(task.expected_utilities)(np.array(choices)), expected, atol=1e-4)


@pytest.mark.long
def test_the_demonstrator_without_noise_names_the_best_item():
    returns = demonstration_returns(TextEnv(Recommendation(demonstrator_noise=0.0)), 60)[3]
    assert float(returns.min()) >= np.cos(np.pi / 12) - 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_items": 27}, "2 to 26"),
        ({"user_spread": 0.0}, "above 0"),
        ({"num_choices": 0}, "1 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Recommendation(**settings)

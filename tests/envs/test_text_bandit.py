"""Contextual bandit of words: utilities as rewards, comparisons of Bradley and Terry by noise, and the demonstrator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.bandit import Bandit
from thespis.envs.text.task import TextEnv
from thespis.training.demonstrations import demonstration_returns

TASK = Bandit(num_words=5, num_prompts=3)


def rewards(task, response, num_draws=1):
    """Rewards ``[prompt, draw]`` of a response in the words of the vocabulary."""
    tokens = jnp.asarray(task.task_spec.encode(response))
    keys = jax.random.split(jax.random.key(0), (task.num_prompts, num_draws))
    step = jax.vmap(jax.vmap(lambda state, key: task.step(state, tokens, key)[1].reward, (None, 0)))
    return np.asarray(step(jnp.arange(task.num_prompts), keys))


@pytest.mark.long
def test_the_reward_is_the_utility_of_the_word():
    for i, word in enumerate("abcde"):
        np.testing.assert_allclose(rewards(TASK, f"{word} <end>")[:, 0], TASK.utilities[:, i], rtol=1e-6)


@pytest.mark.parametrize("response", ["> <end>", "rate <end>", "a b"])
def test_what_is_no_word_earns_less_than_any_word(response):
    np.testing.assert_allclose(rewards(TASK, response)[:, 0], TASK.utilities.min(axis=1) - 1, rtol=1e-6)


def test_offsets_shift_all_rewards_of_a_prompt_alike():
    task = Bandit(num_words=5, num_prompts=3, offset_scale=2.0)
    shifts = np.stack([rewards(task, f"{word} <end>")[:, 0] - TASK.utilities[:, i] for i, word in enumerate("abcde")])
    np.testing.assert_allclose(shifts, np.tile(2 * task.tables[2], (5, 1)), rtol=1e-4, atol=1e-5)
    assert np.ptp(shifts[0]) > 0.5


@pytest.mark.long
def test_two_noisy_rewards_make_a_choice_of_bradley_and_terry():
    task = Bandit(num_words=5, num_prompts=3, reward_noise=0.7)
    first, second = rewards(task, "a <end>", 20_000), rewards(task, "b <end>", 40_000)[:, 20_000:]
    expected = 1 / (1 + np.exp((task.utilities[:, 1] - task.utilities[:, 0]) / 0.7))
    np.testing.assert_allclose((first > second).mean(axis=1), expected, atol=0.015)
    np.testing.assert_allclose(first.mean(axis=1), task.utilities[:, 0], atol=0.03)


@pytest.mark.long
def test_words_of_the_demonstrator_have_its_probabilities():
    task = Bandit(num_words=5, num_prompts=3, demonstrator_spread=2.0)
    say = jax.vmap(lambda state, key: task.demonstrator_response(state, key)[0])
    for prompt in range(3):
        tokens = np.asarray(say(jnp.full(20_000, prompt), jax.random.split(jax.random.key(prompt), 20_000)))
        shares = [(tokens == task.task_spec.encode_word(word)).mean() for word in "abcde"]
        np.testing.assert_allclose(shares, jax.nn.softmax(2 * jnp.asarray(task.tables[1][prompt])), atol=0.015)


@pytest.mark.long
def test_the_demonstrator_without_noise_says_the_best_word():
    returns = demonstration_returns(TextEnv(Bandit(num_words=5, num_prompts=3, demonstrator_noise=0.0)), 60)[3]
    np.testing.assert_allclose(np.unique(returns), np.unique(TASK.utilities.max(axis=1)), rtol=1e-6)


@pytest.mark.parametrize("alignment", [-1.0, -0.5, 0.8, 1.0])
def test_alignment_is_the_correlation_of_utilities_and_preferences(alignment):
    utilities, preferences, _ = Bandit(num_words=26, num_prompts=10, alignment=alignment).tables
    assert np.corrcoef(utilities.ravel(), preferences.ravel())[0, 1] == pytest.approx(alignment, abs=0.12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"num_words": 27}, "2 to 26"), ({"num_prompts": 11}, "1 to 10"), ({"alignment": 1.5}, "from -1 to 1")],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Bandit(**settings)

"""Win rates within groups, and the judges who compare: tables, returns, readers of texts, and qualities."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.envs.text.choice import Choice
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import READERS, Writing
from thespis.feedback.win_rate import ChoiceJudge, RewardJudge, WinRate
from thespis.feedback.writing_judges import QualitiesJudge, WritingJudge
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.methods.language.grpo import GRPO
from thespis.objectives.preference_games import equilibrium
from thespis.training.run_config import make_feedback

CHOICE = Choice(num_words=4, table_seeds=(3,))


def tokens(task, texts, width):
    """Texts as padded rows of tokens; each ends with the end token."""
    spec = task.task_spec
    rows = np.full((len(texts), width), -1, "int32")
    for row, text in zip(rows, texts, strict=True):
        ids = [*spec.encode(text), spec.vocabulary.eos_tokens[0]]
        row[: len(ids)] = ids
    return jnp.asarray(rows)


def dialogues_of(task, prompts, texts):
    prompt_rows = [task.task_spec.encode(prompt) for prompt in prompts]
    padded = np.full((len(prompts), task.task_spec.max_opening_tokens), -1, "int32")
    for row, ids in zip(padded, prompt_rows, strict=True):
        row[: len(ids)] = ids
    responses = tokens(task, texts, task.task_spec.max_response_tokens)
    return single_turn_dialogues(jnp.asarray(padded), responses, jnp.ones(len(texts), bool))


def choices(words):
    return dialogues_of(CHOICE, ["choose >"] * len(words), words)


def test_judge_of_choices_reads_the_table():
    words = ["a", "b", "c", "d"]
    for first, second in itertools.product(range(4), repeat=2):
        (probability,) = ChoiceJudge(CHOICE)(choices([words[first]]), choices([words[second]]))
        assert float(probability) == pytest.approx(CHOICE.preferences[0, first, second])


def test_judge_of_choices_reads_which_table_a_prompt_names():
    task = Choice(num_words=6, table_seeds=(3, 8), num_dominated=2)
    for table, prompt in enumerate(("choose 0 >", "choose 1 >")):
        pairs = list(itertools.product("abcdef", repeat=2))
        first, second = (dialogues_of(task, [prompt] * len(pairs), [pair[i] for pair in pairs]) for i in range(2))
        np.testing.assert_allclose(ChoiceJudge(task)(first, second), task.preferences[table].ravel())
    assert not np.array_equal(*task.preferences)
    np.testing.assert_array_equal(task.preferences[:, :4, 4:], np.float32(0.95))


def test_the_demonstrator_of_choices_draws_from_the_equilibrium_of_the_prompt():
    task = Choice(num_words=5, table_seeds=(0, 6), demonstrates_equilibrium=True, demonstrator_noise=0.0)
    keys = jax.random.split(jax.random.key(0), 4000)
    for table, preferences in enumerate(task.preferences):
        responses = jax.vmap(lambda key, table=table: task.demonstrator_response(jnp.int32(table), key))(keys)
        shares = np.bincount(np.asarray(task.word_index(responses)), minlength=5) / len(keys)
        np.testing.assert_allclose(shares, equilibrium(preferences), atol=0.03)


def test_a_word_is_preferred_to_what_is_no_word():
    judge = ChoiceJudge(CHOICE)
    assert float(judge(choices(["a"]), choices([">"]))[0]) == 1.0
    assert float(judge(choices([">"]), choices(["a"]))[0]) == 0.0
    assert float(judge(choices([">"]), choices(["choose"]))[0]) == 0.5


@pytest.mark.parametrize("size", [2, 3, 6])
def test_win_rates_within_groups_by_hand(size):
    words = ["a", "b", "d", "c", "c", "a"]
    rates = WinRate(ChoiceJudge(CHOICE), size).score_turns((), choices(words), jax.random.key(0))
    index = [ord(word) - ord("a") for word in words]
    for row in range(6):
        group = range(row // size * size, row // size * size + size)
        expected = np.mean([CHOICE.preferences[0, index[row], index[other]] for other in group if other != row])
        assert float(rates[0, row]) == pytest.approx(expected, abs=1e-6)


def test_drawn_labels_are_consistent_and_have_the_probabilities_of_the_judge():
    feedback = WinRate(ChoiceJudge(CHOICE), 2, samples_labels=True)
    pair = choices(["a", "b"] * 500)
    rates = np.asarray(feedback.score_turns((), pair, jax.random.key(0)))[0].reshape(-1, 2)
    assert set(rates.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(rates.sum(axis=1), 1.0)
    assert rates[:, 0].mean() == pytest.approx(CHOICE.preferences[0, 0, 1], abs=0.06)


def test_labels_of_several_annotators_are_shares():
    pair = choices(["a", "b"] * 500)
    feedback = WinRate(ChoiceJudge(CHOICE), 2, samples_labels=True, num_annotators=4)
    rates = np.asarray(feedback.score_turns((), pair, jax.random.key(0)))[0].reshape(-1, 2)
    assert set(rates.ravel()) == {0.0, 0.25, 0.5, 0.75, 1.0}
    np.testing.assert_array_equal(rates.sum(axis=1), 1.0)
    probability = CHOICE.preferences[0, 0, 1]
    assert rates[:, 0].mean() == pytest.approx(probability, abs=0.03)
    assert rates[:, 0].var() == pytest.approx(probability * (1 - probability) / 4, rel=0.2)


def test_incomplete_groups_are_refused():
    with pytest.raises(UserError, match=r"groups of feedback\.group_size=4"):
        WinRate(ChoiceJudge(CHOICE), 4).score_turns((), choices(["a"] * 6), jax.random.key(0))


def test_groups_of_the_method_must_consist_of_groups_to_compare():
    settings = {"model": "blank", "num_layers": 1, "hidden_size": 32}
    feedback = WinRate(ChoiceJudge(CHOICE), 4)
    assert feedback.for_method(GRPO(feed=Episodes(1, group_size=8, num_envs=8), **settings)) == feedback
    for feed in (Episodes(1, group_size=2, num_envs=8), Episodes(1, group_size=6, num_envs=12)):
        with pytest.raises(UserError, match="must be a multiple of it"):
            feedback.for_method(GRPO(feed=feed, **settings))


def test_it_is_made_by_name_and_reads_the_environments_returns():
    feedback = make_feedback("win-rate", ["judge=RewardJudge"])
    assert isinstance(feedback.judge, RewardJudge)
    pair = dataclasses.replace(choices(["a", "b"]), reward=jnp.array([[0.3, 0.1]]))
    rates = feedback.score_turns((), pair, jax.random.key(0))
    assert float(rates[0, 0]) == pytest.approx(1 / (1 + np.exp(-10 * 0.2)), rel=1e-5)
    assert float(rates.sum()) == pytest.approx(1.0)


def test_rewards_of_choices_are_win_rates_against_random_words():
    env = TextEnv(CHOICE)
    for word in range(4):
        response = tokens(CHOICE, ["abcd"[word]], 2)[0]
        _, step = env.task.step(jnp.zeros((), "int32"), response, jax.random.key(0))
        assert float(step.reward) == pytest.approx(CHOICE.preferences[0, word].mean())
        assert bool(step.terminated)
    _, step = env.task.step(jnp.zeros((), "int32"), tokens(CHOICE, [">"], 2)[0], jax.random.key(0))
    assert float(step.reward) == 0.0


WRITING = Writing(max_sentences=2)
TEXTS = (
    "the kind boat waits . the gentle wave turns .",
    "the grim boat waits .",
    "the boat waits slowly .",
    "boat the waits",
)


@pytest.mark.parametrize("reader", READERS)
def test_readers_compare_by_their_true_reward(reader):
    prompts = [f"write about sea for {reader} >"] * len(TEXTS)
    texts = dialogues_of(WRITING, prompts, TEXTS)
    judge = WritingJudge(WRITING, beta=3.0)
    rewards = judge.rewards(texts)
    topic, index = jnp.zeros((), "int32"), jnp.asarray(list(READERS).index(reader))
    for row in range(len(TEXTS)):
        grades = WRITING.grade(topic, texts.responses[0, row])
        assert float(rewards[row]) == pytest.approx(float(WRITING.reward(index, grades)), abs=1e-6)
    first, second = texts.take_rows(jnp.array([0])), texts.take_rows(jnp.array([1]))
    expected = 1 / (1 + np.exp(-3.0 * float(rewards[0] - rewards[1])))
    assert float(judge(first, second)[0]) == pytest.approx(expected, rel=1e-5)


def test_a_judge_with_a_taste_of_its_own():
    texts = dialogues_of(WRITING, ["write about sea for children >"] * 2, TEXTS[:2])
    own = WritingJudge(WRITING, reader="critics")
    named = WritingJudge(WRITING)
    assert float(own.rewards(texts)[0]) != float(named.rewards(texts)[0])
    with pytest.raises(ValueError, match="name no reader"):
        WritingJudge(Writing(shows_reader=False))
    with pytest.raises(ValueError, match="reader=uncle"):
        WritingJudge(WRITING, reader="uncle")


def test_preferences_by_qualities_are_cyclic():
    """Three texts, each preferred to the next by two of three qualities."""
    task = Writing(max_sentences=3)
    judge = QualitiesJudge(task, ("topic", "warmth", "length"), beta=1.5)
    texts = (
        "the grim boat waits . the house turns . the tree sings .",  # topic 1/3, warmth 0, length 1
        "the kind house waits . the bird turns .",  # topic 0, warmth 1, length 1/2
        "the boat waits .",  # topic 1, warmth 1/2, length 0
    )
    rows = dialogues_of(task, ["write about sea for children >"] * 3, texts)
    order = jnp.array([1, 2, 0])
    expected = 1 / (1 + np.exp(-1.5))
    np.testing.assert_allclose(judge(rows, rows.take_rows(order)), expected, rtol=1e-5)
    np.testing.assert_allclose(judge(rows.take_rows(order), rows), 1 - expected, rtol=1e-5)
    np.testing.assert_allclose(judge(rows, rows), 0.5)
    with pytest.raises(ValueError, match="qualities=beauty"):
        QualitiesJudge(task, ("beauty",))

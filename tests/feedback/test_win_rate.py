"""Win rates within groups, and the judges who compare: tables, returns, readers of texts, and qualities."""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.envs.text.choice import Choice
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import READERS, Writing
from thespis.feedback.win_rate import ChoiceJudge, PlaceBiasedJudge, RewardJudge, WinRate
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


@eqx.filter_jit
def win_rates(feedback, dialogues):
    return feedback.score_turns((), dialogues, jax.random.key(0))


@eqx.filter_jit
def compare(judge, first, second):
    return judge(first, second)


def choices(words):
    return dialogues_of(CHOICE, ["choose >"] * len(words), words)


def test_judge_of_choices_reads_the_table():
    words = ["a", "b", "c", "d"]
    pairs = list(itertools.product(range(4), repeat=2))
    first, second = (choices([words[pair[i]] for pair in pairs]) for i in range(2))
    probabilities = np.asarray(compare(ChoiceJudge(CHOICE), first, second)).reshape(4, 4)
    np.testing.assert_allclose(probabilities, CHOICE.preferences[0], rtol=1e-6)


def test_judge_of_choices_reads_which_table_a_prompt_names():
    task = Choice(num_words=6, table_seeds=(3, 8), num_dominated=2)
    for table, prompt in enumerate(("choose 0 >", "choose 1 >")):
        pairs = list(itertools.product("abcdef", repeat=2))
        first, second = (dialogues_of(task, [prompt] * len(pairs), [pair[i] for pair in pairs]) for i in range(2))
        np.testing.assert_allclose(compare(ChoiceJudge(task), first, second), task.preferences[table].ravel())
    assert not np.array_equal(*task.preferences)
    np.testing.assert_array_equal(task.preferences[:, :4, 4:], np.float32(0.95))


def test_the_demonstrator_of_choices_draws_from_the_equilibrium_of_the_prompt():
    task = Choice(num_words=5, table_seeds=(0, 6), demonstrates_equilibrium=True, demonstrator_noise=0.0)

    @jax.jit
    def draw(table):
        keys = jax.random.split(jax.random.key(0), 4000)
        return task.word_index(jax.vmap(lambda key: task.demonstrator_response(table, key))(keys))

    for table, preferences in enumerate(task.preferences):
        shares = np.bincount(np.asarray(draw(jnp.int32(table))), minlength=5) / 4000
        np.testing.assert_allclose(shares, equilibrium(preferences), atol=0.03)


def test_a_word_is_preferred_to_what_is_no_word():
    probabilities = compare(ChoiceJudge(CHOICE), choices(["a", ">", ">"]), choices([">", "a", "choose"]))
    np.testing.assert_array_equal(probabilities, [1.0, 0.0, 0.5])


@pytest.mark.parametrize("size", [2, 3, 6])
def test_win_rates_within_groups_by_hand(size):
    words = ["a", "b", "d", "c", "c", "a"]
    rates = np.asarray(win_rates(WinRate(ChoiceJudge(CHOICE), size), choices(words)))
    index = [ord(word) - ord("a") for word in words]
    for row in range(6):
        group = range(row // size * size, row // size * size + size)
        expected = np.mean([CHOICE.preferences[0, index[row], index[other]] for other in group if other != row])
        assert float(rates[0, row]) == pytest.approx(expected, abs=1e-6)


def test_drawn_labels_are_consistent_and_have_the_probabilities_of_the_judge():
    feedback = WinRate(ChoiceJudge(CHOICE), 2, samples_labels=True)
    pair = choices(["a", "b"] * 500)
    rates = np.asarray(win_rates(feedback, pair))[0].reshape(-1, 2)
    assert set(rates.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(rates.sum(axis=1), 1.0)
    assert rates[:, 0].mean() == pytest.approx(CHOICE.preferences[0, 0, 1], abs=0.06)


def test_labels_of_several_annotators_are_shares():
    pair = choices(["a", "b"] * 500)
    feedback = WinRate(ChoiceJudge(CHOICE), 2, samples_labels=True, num_annotators=4)
    rates = np.asarray(win_rates(feedback, pair))[0].reshape(-1, 2)
    assert set(rates.ravel()) == {0.0, 0.25, 0.5, 0.75, 1.0}
    np.testing.assert_array_equal(rates.sum(axis=1), 1.0)
    probability = CHOICE.preferences[0, 0, 1]
    assert rates[:, 0].mean() == pytest.approx(probability, abs=0.03)
    assert rates[:, 0].var() == pytest.approx(probability * (1 - probability) / 4, rel=0.2)


def biased(words, **settings):
    """Labels of pairs of words by a judge who favours the first place, and the chances of one label in each order."""
    judge = PlaceBiasedJudge(ChoiceJudge(CHOICE), 1.5)
    rates = np.asarray(win_rates(WinRate(judge, 2, **settings), choices(words * 2_000)))[0].reshape(-1, 2)
    np.testing.assert_allclose(rates.sum(axis=1), 1.0, atol=1e-6)
    chances = []
    for first, second in (words, words[::-1]):
        p = CHOICE.preferences[0, ord(first) - ord("a"), ord(second) - ord("a")]
        chances.append(1 / (1 + (1 - p) / p * np.exp(-1.5)))
    return rates[:, 0], chances[0], 1 - chances[1]


def test_a_bias_for_a_place_cancels_in_both_orders():
    rates, chance, other = biased(["a", "b"])
    np.testing.assert_allclose(rates, chance, atol=1e-6)
    swapped, _, _ = biased(["b", "a"], both_orders=True)
    both, _, _ = biased(["a", "b"], both_orders=True)
    np.testing.assert_allclose(both, (chance + other) / 2, atol=1e-6)
    np.testing.assert_allclose(both + swapped, 1.0, atol=1e-6)
    assert chance - other > 0.2  # the bias is there


@pytest.mark.parametrize(("num_annotators", "both_orders"), [(1, True), (3, False), (2, True)])
def test_comparisons_without_agreement_are_ties(num_annotators, both_orders):
    settings = {"samples_labels": True, "num_annotators": num_annotators, "both_orders": both_orders}
    rates, chance, other = biased(["a", "b"], unanimous=True, **settings)
    assert set(rates) <= {0.0, 0.5, 1.0}
    chances = [chance] * num_annotators + [other] * num_annotators * both_orders
    expected = np.prod(chances), np.prod([1 - p for p in chances])
    assert [(rates == 1).mean(), (rates == 0).mean()] == pytest.approx(expected, abs=0.045)


@pytest.mark.parametrize("settings", [{}, {"both_orders": True}, {"samples_labels": True}])
def test_one_label_cannot_be_unanimous(settings):
    with pytest.raises(ValueError, match="can agree"):
        WinRate(RewardJudge(), unanimous=True, **settings)


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
    rates = np.asarray(win_rates(feedback, pair))
    assert float(rates[0, 0]) == pytest.approx(1 / (1 + np.exp(-10 * 0.2)), rel=1e-5)
    assert float(rates.sum()) == pytest.approx(1.0)


def test_rewards_of_choices_are_win_rates_against_random_words():
    task = TextEnv(CHOICE).task
    play = jax.jit(jax.vmap(lambda response: task.step(jnp.zeros((), "int32"), response, jax.random.key(0))[1]))
    steps = play(tokens(CHOICE, "abcd>", 2))
    np.testing.assert_allclose(steps.reward, [*CHOICE.preferences[0].mean(axis=1), 0.0], rtol=1e-6)
    assert steps.terminated.all()


WRITING = Writing(max_sentences=2)
TEXTS = (
    "the kind boat waits . the gentle wave turns .",
    "the grim boat waits .",
    "the boat waits slowly .",
    "boat the waits",
)


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_readers_compare_by_their_true_reward(reader):
    prompts = [f"write about sea for {reader} >"] * len(TEXTS)
    texts = dialogues_of(WRITING, prompts, TEXTS)
    judge = WritingJudge(WRITING, beta=3.0)
    index = list(READERS).index(reader)

    def measure(texts):
        def reward(response):
            return WRITING.reward(jnp.int32(index), WRITING.grade(jnp.zeros((), "int32"), response))

        order = jnp.array([1, 0, 2, 3])
        return judge.rewards(texts), jax.vmap(reward)(texts.responses[0]), judge(texts, texts.take_rows(order))

    rewards, expected, probabilities = map(np.asarray, jax.jit(measure)(texts))
    np.testing.assert_allclose(rewards, expected, atol=1e-6)
    assert probabilities[0] == pytest.approx(1 / (1 + np.exp(-3.0 * (rewards[0] - rewards[1]))), rel=1e-5)


def test_a_judge_with_a_taste_of_its_own():
    texts = dialogues_of(WRITING, ["write about sea for children >"] * 2, TEXTS[:2])
    own = WritingJudge(WRITING, reader="critics")
    named = WritingJudge(WRITING)
    rewards = jax.jit(lambda texts: (own.rewards(texts), named.rewards(texts)))(texts)
    assert float(rewards[0][0]) != float(rewards[1][0])
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
    following = dialogues_of(task, ["write about sea for children >"] * 3, [texts[i] for i in (1, 2, 0)])
    expected = 1 / (1 + np.exp(-1.5))
    np.testing.assert_allclose(compare(judge, rows, following), expected, rtol=1e-5)
    np.testing.assert_allclose(compare(judge, following, rows), 1 - expected, rtol=1e-5)
    np.testing.assert_allclose(compare(judge, rows, rows), 0.5)
    with pytest.raises(ValueError, match="qualities=beauty"):
        QualitiesJudge(task, ("beauty",))

"""Daily menu task: against rules in plain Python, where choices can be undone, and what is drawn at random."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.agent_r.envs import DAILY_MENU, DailyMenu
from thespis.papers.agent_r.measures import count_errors
from thespis.runtime.keys import fold, seed_key

WORDS = DAILY_MENU.spec.action_space.vocabulary.words
"""Words by token."""
USUAL = DailyMenu().usual_dishes


def words(tokens):
    return [WORDS[token] for token in np.asarray(tokens) if token >= 0]


def respond(text):
    return np.array(([WORDS.index(word) for word in f"{text} <end>".split()] + [-1])[:2], "int32")


@pytest.mark.parametrize("undo", [False, True])
def test_errors_are_told_and_can_be_undone(undo):
    reset, step = jax.jit(DAILY_MENU.reset), jax.jit(DAILY_MENU.step)
    scores, errors = [], []
    for episode in range(12):
        dialogue, timestep = reset((), seed_key(episode))
        todays = np.asarray(dialogue.task_state.current.task_state.todays_dishes)
        asked, reward = ["a", ">"], 0.0
        for turn, course in enumerate("abc"):
            before = words(timestep.observation)
            assert before[-len(asked) :] == asked
            dialogue, timestep = step(dialogue, respond(f"{course}{USUAL[turn] + 1}"), seed_key(turn))
            reward += float(timestep.reward)
            is_right = bool(todays[turn] == USUAL[turn])
            following = ["b", "c", "serve"][turn]
            assert words(timestep.observation)[-3:] == ["yes" if is_right else "no", following, ">"]
            if undo and not is_right:
                dialogue, timestep = step(dialogue, respond(""), seed_key(turn))
                assert words(timestep.observation)[-len(asked) :] == asked
                dialogue, timestep = step(dialogue, respond(f"{course}{todays[turn] + 1}"), seed_key(turn))
                is_right = True
            asked = ["yes" if is_right else "no", following, ">"]
            assert words(timestep.observation)[-3:] == asked and not timestep.terminated
        dialogue, timestep = step(dialogue, respond("serve"), seed_key(3))
        assert timestep.terminated and reward == 0.0
        scores.append(float(timestep.reward))
        errors.append((todays != USUAL).any())
    assert scores == [float(undo or not wrong) for wrong in errors]
    assert 0 < sum(errors) < 12


def test_there_are_turns_for_an_error_in_every_course_and_no_more():
    dialogue, timestep = DAILY_MENU.reset((), seed_key(0))
    step, ends = jax.jit(DAILY_MENU.step), []
    for turn in range(10):
        dialogue, timestep = step(dialogue, respond(["a1", ""][turn % 2]), seed_key(turn))
        ends.append(bool(timestep.terminated))
    assert ends == 9 * [False] + [True] and not float(timestep.reward)


def test_a_fifth_of_the_dishes_is_not_the_usual_one():
    menu = DailyMenu()
    states = jax.vmap(lambda key: menu.init(key)[0])(jax.random.split(jax.random.key(0), 2000))
    dishes = np.asarray(states.todays_dishes)
    assert dishes.min() == 0 and dishes.max() == 1
    assert (dishes != USUAL).mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_demonstrators_choose_the_usual_dish_or_any(noise, expected):
    menu = DailyMenu(demonstrator_noise=noise)
    env = TextEnv(menu)

    def play(key):
        dialogue, _ = env.reset((), key)
        return env.demonstrator_action(dialogue, fold(key, "choice"))[0] - menu.task_spec.encode_word("a1")

    dishes = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 2000)))
    assert (dishes == USUAL[0]).mean() == pytest.approx(expected, abs=0.03)


def test_daily_menu_follows_the_laws_of_environments():
    check_environment(DAILY_MENU)


def test_undone_errors_are_counted():
    dialogue = "a > a1 <end> no b > <end> a > a2 <end> yes b > b1 <end> no c > c1 <end> yes serve > <end> no c > <end>"
    tokens = [WORDS.index(word) for word in dialogue.split()]
    cue = WORDS.index(">")
    ends = [i + 1 for i, token in enumerate(tokens) if token == cue]
    observations = np.full((len(ends), len(tokens)), -1)
    for row, end in enumerate(ends):
        observations[row, :end] = tokens[:end]
    is_undo = np.array([tokens[end] == WORDS.index("<end>") for end in ends])
    assert is_undo.tolist() == [False, True, False, False, False, True, True]
    # the error in course b is told before c is chosen; the repeated verdict after an undo is not counted again
    np.testing.assert_array_equal(count_errors(observations, is_undo, WORDS.index("no")), [2, 1])

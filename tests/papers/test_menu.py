"""Menu task: against rules in plain Python, and what its demonstrator and its delayed form earn."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.papers.spa_rl.envs import DELAYED_MENU, MENU, Menu
from thespis.runtime.keys import fold, seed_key

WORDS = MENU.spec.action_space.vocabulary.words
"""Words by token."""


def test_choices_are_judged_course_by_course():
    liked = {"abcdefghijkl"[course]: dish + 1 for course, dish in enumerate(Menu().liked_dishes)}
    assert set(liked.values()) <= {1, 2, 3, 4} and len(set(liked.values())) > 1
    reset, step = jax.jit(MENU.reset), jax.jit(MENU.step)
    rng, orders = np.random.default_rng(0), set()
    for episode in range(5):
        dialogue, timestep = reset((), seed_key(episode))
        asked, refused = [], False
        for turn in range(8):
            text = [WORDS[token] for token in np.asarray(timestep.observation) if token >= 0]
            assert text[-1] == ">"
            course = text[-2]
            assert turn == 0 or (text[-3] == "no") == refused
            asked.append(course)
            kind = rng.integers(3)
            other = "a" if course != "a" else "b"
            dish = [f"{course}{liked[course]}", f"{course}{liked[course] % 4 + 1}", f"{other}{liked[other]}"][kind]
            response = np.array([WORDS.index(dish), WORDS.index("<end>")], "int32")
            dialogue, timestep = step(dialogue, response, seed_key(turn))
            refused = kind == 2
            assert float(timestep.reward) == pytest.approx(0.125 if kind == 0 else 0.0)
            assert bool(timestep.terminated) == (turn == 7)
        assert len(set(asked)) == 8
        orders.add("".join(asked))
    assert len(orders) == 5


def test_demonstrator_likes_a_quarter_and_the_score_comes_at_the_end():
    def play(key):
        dialogue, _ = DELAYED_MENU.reset((), key)
        rewards = []
        for turn in range(8):
            key = fold(key, "turn", turn)
            dialogue, timestep = DELAYED_MENU.step(dialogue, DELAYED_MENU.demonstrator_action(dialogue, key), key)
            rewards.append(timestep.reward)
        return jax.numpy.stack(rewards)

    rewards = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 500)))
    assert not rewards[:, :-1].any()
    assert rewards[:, -1].mean() == pytest.approx(0.25, abs=0.02)


def test_menus_follow_the_laws_of_environments():
    check_environment(MENU)
    check_environment(DELAYED_MENU)

"""Conversations told again with another goal, against the world played anew with that goal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.keys import key_of
from thespis.core.vocabulary import END
from thespis.envs import registry
from thespis.envs.text.maze import WAYS, Maze, Place
from thespis.envs.text.take_back import TakeBack
from thespis.envs.text.task import Spoken

WORLD = Spoken(Maze(size=3, turns=8))
SAID = np.array(WORLD.spec.action.choices, "int32")
STEP = jax.jit(WORLD.step)


@jax.jit
def begun(at, goal):
    """A conversation at its beginning, from this cell to that."""
    talk, _ = WORLD.reset((), key_of(0))
    place = Place(at, goal)
    opening = WORLD.task._where(place)
    heard = jnp.full(WORLD.spec.observation.length, -1, "int32").at[: opening.shape[0]].set(opening)
    return type(talk)(place, heard, talk.turn)


def ids(*said: str) -> tuple[tuple[int, ...], ...]:
    words = WORLD.spec.action.vocabulary.words
    return tuple(tuple(words.index(word) for word in one.split()) for one in said)


def played(at: int, goal: int, ways: list[int]) -> tuple[list[np.ndarray], bool]:
    """What is seen before and behind every step from a cell, until it is over; and whether the goal was reached."""
    talk = begun(np.int32(at), np.int32(goal))
    told = [np.asarray(talk.transcript)]
    for way in ways:
        talk, seen = STEP(talk, SAID[way], key_of(0))
        told.append(np.asarray(seen.observation))
        if seen.reward > 0:
            return told, True
    return told, False


def test_what_is_retold_is_what_the_world_says_with_that_goal():
    goals, rng, found = WORLD.spec.goals, np.random.default_rng(0), set()
    retold, achieved, first = jax.jit(goals.retold), jax.jit(goals.achieved), WORLD.task.manners.id("a1")
    for _ in range(25):
        at, goal = (int(x) for x in rng.choice(9, 2, replace=False))
        ways = [int(way) for way in rng.integers(0, 4, 7)]
        told, arrived = played(at, goal, ways)
        if arrived:
            assert int(achieved(told[-1])) == first + goal
            told = told[:-1]  # what would have been said there, nobody knows
        for other in range(9):
            if other == at:
                continue
            anew, reached = played(at, other, ways[: len(told) - 1])
            for turn, transcript in enumerate(told):
                text, there = retold(transcript, first + other)
                np.testing.assert_array_equal(text, anew[min(turn, len(anew) - 1)])
                assert bool(there) == (reached and turn >= len(anew) - 1)
                found.add(bool(there))
    assert found == {False, True}


def test_what_was_achieved_is_where_one_stands():
    achieved, first = jax.jit(WORLD.spec.goals.achieved), WORLD.task.manners.id("a1")
    talk, seen = jax.jit(WORLD.reset)((), key_of(3))
    for turn in range(8):
        assert int(achieved(seen.observation)) == first + int(talk.task.at)
        talk, seen = STEP(talk, SAID[turn % 4], key_of(turn))
        if seen.terminated:
            break
    assert int(achieved(seen.observation)) == first + int(talk.task.at)


def test_worlds_list_what_may_be_said():
    assert WORLD.spec.action.choices == ids(*(f"{way} {END}" for way in WAYS))
    assert Spoken(TakeBack(Maze(size=3, turns=8))).spec.action.choices == ids(*(f"{w} {END}" for w in WAYS), END)
    assert [len(registry.compiled(f"text:{name}").spec.action.choices) for name in ("kuhn", "tictactoe")] == [2, 9]
    assert Spoken(TakeBack(Maze())).spec.goals is None

"""Taking back: the world is where it was, says what it said, and pays nothing for it."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from thespis import tiny
from thespis.core.keys import key_of
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.take_back import TakeBack
from thespis.envs.text.task import Spoken

MAZE = Maze(size=3, turns=6)
WORLD = Spoken(TakeBack(MAZE, more=2))
WORDS = WORLD.spec.action.vocabulary.words
KEY = key_of(1)


def talk(world, *utterances):
    """The messages of the world, in words, and the rewards."""
    words = world.spec.action.vocabulary.words
    state, step = world.reset((), KEY)
    seen, messages, earned = step.observation, [], []
    messages.append([words[i] for i in seen if i >= 0])
    for utterance in utterances:
        ids = [words.index(word) for word in utterance.split()]
        said = jnp.array(ids + [-1] * (world.spec.action.length - len(ids)))
        before = int((seen >= 0).sum()) + len(ids)
        state, step = world.step(state, said, KEY)
        seen = step.observation
        messages.append([words[i] for i in seen[before:] if i >= 0])
        earned.append(float(step.reward))
    return messages, earned, bool(step.terminated)


def open_ways(message):
    """Directions that are open, as utterances; none behind the goal."""
    return [f"{way} <end>" for way in message[message.index("open") + 1 : -1]] if message else []


def walk():
    """Two steps from the beginning that do not reach the goal."""
    for first in open_ways(talk(WORLD)[0][0]):
        for second in open_ways(talk(WORLD, first)[0][1]):
            if talk(WORLD, first, second)[0][2]:
                return first, second
    raise AssertionError("the goal is at hand: begin with another key")


def test_it_is_where_it_was_and_says_what_it_said():
    first, second = walk()
    messages, earned, over = talk(WORLD, first, "<end>", "<end>", first, second)
    once = talk(WORLD, first, second)[0]
    assert messages[0] == messages[2] == messages[3] and messages[1] == messages[4] == once[1]
    assert messages[0] != messages[1] and messages[5] == once[2] and not over and sum(earned) == 0


def test_only_the_last_utterance_is_taken_back():
    first, second = walk()
    messages, _, _ = talk(WORLD, first, second, "<end>", "<end>")
    assert messages[2] != messages[1] == messages[3] == messages[4]


def test_what_was_earned_stays_and_turns_are_counted():
    echo = Spoken(TakeBack(Echo(turns=2), more=2))
    word = talk(echo)[0][0][0]
    messages, earned, over = talk(echo, f"{word} <end>", "<end>", f"{word} <end>", "<end>")
    assert earned == [1.0, 0.0, 1.0, 0.0] and over
    assert messages[2] == messages[0]


def test_the_demonstrator_is_that_of_the_task():
    told = WORLD.spec
    silence = (told.action.vocabulary.stop,)
    action = Spoken(MAZE).spec.action
    assert told.time_limit == 8 and told.action == dataclasses.replace(action, choices=action.choices + silence)
    transcript, _, said, _ = tiny.demonstrated(WORLD, 20)
    assert not (np.asarray(said[..., 0]) == told.action.vocabulary.stop[0]).any()
    np.testing.assert_array_equal(transcript, tiny.demonstrated(Spoken(Maze(size=3, turns=8)), 20)[0])

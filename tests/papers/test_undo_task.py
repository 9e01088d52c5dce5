"""Undo task: an undone turn restores the state and the message, costs a turn and earns nothing."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.papers.agent_r.envs import UndoTask
from thespis.runtime.keys import seed_key
from thespis.training import demonstrations

MAZE = Maze(size=3, max_turns=6)
ENV = TextEnv(UndoTask(MAZE, extra_turns=2))
WORDS = ENV.spec.action_space.vocabulary.words
KEY = seed_key(1)


def play(env, *responses):
    """Plays ``responses``; returns the messages as words, the rewards, and whether the dialogue is over."""
    words = env.spec.action_space.vocabulary.words
    state, step = env.reset((), KEY)
    transcript, messages, rewards = step.observation, [], []
    messages.append([words[i] for i in transcript if i >= 0])
    for response in responses:
        tokens = [words.index(word) for word in response.split()]
        action = jnp.array(tokens + [-1] * (env.spec.action_space.max_length - len(tokens)))
        length = int((transcript >= 0).sum()) + len(tokens)
        state, step = env.step(state, action, KEY)
        transcript = step.observation
        messages.append([words[i] for i in transcript[length:] if i >= 0])
        rewards.append(float(step.reward))
    return messages, rewards, bool(step.terminated)


def open_directions(message):
    """Open directions as responses; none after the goal."""
    return [f"{direction} <end>" for direction in message[message.index("open") + 1 : -1]] if message else []


def two_steps():
    """Two steps from the start that do not reach the goal."""
    for first in open_directions(play(ENV)[0][0]):
        for second in open_directions(play(ENV, first)[0][1]):
            if play(ENV, first, second)[0][2]:
                return first, second
    raise AssertionError("the goal is too close: choose another key")


def test_undo_restores_state_and_message():
    first, second = two_steps()
    messages, rewards, over = play(ENV, first, "<end>", "<end>", first, second)
    direct = play(ENV, first, second)[0]
    assert messages[0] == messages[2] == messages[3] and messages[1] == messages[4] == direct[1]
    assert messages[0] != messages[1] and messages[5] == direct[2] and not over and sum(rewards) == 0


def test_undo_reverts_only_the_last_response():
    first, second = two_steps()
    messages, _, _ = play(ENV, first, second, "<end>", "<end>")
    assert messages[2] != messages[1] == messages[3] == messages[4]


def test_rewards_are_kept_and_undone_turns_count():
    echo = TextEnv(UndoTask(Echo(max_turns=2), extra_turns=2))
    word = play(echo)[0][0][0]
    messages, rewards, over = play(echo, f"{word} <end>", "<end>", f"{word} <end>", "<end>")
    assert rewards == [1.0, 0.0, 1.0, 0.0] and over
    assert messages[2] == messages[0]


def test_demonstrator_is_that_of_the_wrapped_task():
    spec = ENV.spec
    undo = (spec.action_space.vocabulary.eos_tokens,)
    action = TextEnv(MAZE).spec.action_space
    assert spec.time_limit == 8 and spec.action_space == dataclasses.replace(action, choices=action.choices + undo)
    transcript, _, responses, _ = demonstrations.sample_demonstrations(ENV, 20)
    assert not (np.asarray(responses[..., 0]) == spec.action_space.vocabulary.eos_tokens[0]).any()
    np.testing.assert_array_equal(
        transcript, demonstrations.sample_demonstrations(TextEnv(Maze(size=3, max_turns=8)), 20)[0]
    )

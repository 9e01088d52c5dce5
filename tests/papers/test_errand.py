"""Errand task: against rules in plain Python, its demonstrator's search, and the two splits of errands."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.embodied_planner_r1.envs import PLACES, THINGS, Errand, all_errands, split_of
from thespis.runtime.keys import seed_key

TASK = Errand(demonstrator_noise=0.0)
ENV = TextEnv(TASK)
SPEC: Any = ENV.spec
WORDS = SPEC.action_space.vocabulary.words
"""Words by token."""


def text(observation):
    return [WORDS[token] for token in np.asarray(observation) if token >= 0]


class PlainErrand:
    """The rules of the task, for one episode."""

    def __init__(self, thing, place, target):
        self.thing, self.where, self.target, self.agent = thing, place, target, None

    def reply(self, command):
        """The reply of the environment, ``None`` at the end."""
        if command in PLACES:
            self.agent = command
        elif command == "take" and self.agent is not None and self.where == self.agent:
            self.where = "hand"
            return "held"
        elif command == "drop" and self.agent is not None and self.where == "hand":
            self.where = self.agent
            if self.agent == self.target:
                return None
        else:
            return "nothing"
        return self.thing if self.where == self.agent else "empty"


def test_replies_and_rewards_are_those_of_the_rules():
    reset, step, rng = jax.jit(ENV.reset), jax.jit(ENV.step), np.random.default_rng(0)
    commands, replies = ["take", "drop", *PLACES], set()
    for episode in range(12):
        dialogue, timestep = reset((), seed_key(episode))
        opening, state = text(timestep.observation), dialogue.task_state
        assert [opening[i] for i in (0, 2, 4)] == ["put", "in", ">"]
        plain = PlainErrand(opening[1], PLACES[int(state.thing_place)], opening[3])
        assert plain.where != plain.target
        for turn in range(TASK.max_turns):
            before = text(timestep.observation)
            command = commands[int(rng.integers(len(commands)))]
            if episode % 2 and turn < 4:  # the way of someone who knows where the thing lies
                command = [PLACES[int(state.thing_place)], "take", opening[3], "drop"][turn]
            answer = jax.numpy.array([WORDS.index(command), WORDS.index("<end>")])
            dialogue, timestep = step(dialogue, answer, seed_key(turn))
            reply = plain.reply(command)
            replies.add(reply if reply not in THINGS else "thing")
            assert float(timestep.reward) == (reply is None)
            assert text(timestep.observation)[len(before) + 2 :] == ([] if reply is None else [reply, ">"])
            if reply is None:
                assert bool(timestep.terminated)
                break
    assert replies == {None, "held", "nothing", "empty", "thing"}


@pytest.mark.parametrize("answer", [["cup", "<end>"], ["shelf", "desk"], ["<end>", "<end>"]])
def test_other_words_are_no_commands(answer):
    dialogue, timestep = ENV.reset((), seed_key(1))
    response = jax.numpy.array([WORDS.index(word) for word in answer])
    after, timestep = ENV.step(dialogue, response, seed_key(2))
    assert text(timestep.observation)[-2:] == ["nothing", ">"]
    assert int(after.task_state.agent_place) == -1


def test_demonstrator_looks_into_one_place_after_another():
    reset, step, act = jax.jit(ENV.reset), jax.jit(ENV.step), jax.jit(ENV.demonstrator_action)
    for episode in range(8):
        dialogue, _ = reset((), seed_key(episode))
        place, target = int(dialogue.task_state.thing_place), int(dialogue.task_state.target)
        expected, commands, done = [*PLACES[: place + 1], "take", PLACES[target], "drop"], [], False
        while not done:
            action = act(dialogue, seed_key(0))
            commands.append(WORDS[int(action[0])])
            dialogue, timestep = step(dialogue, action, seed_key(0))
            done = bool(timestep.terminated)
        assert commands == expected and float(timestep.reward) == 1.0
    assert TASK.max_turns > len(PLACES) + 3


def test_errands_are_split_by_thing_place_and_target():
    triples = [(i, j, k) for i, j, k in itertools.product(range(6), range(5), range(5)) if j != k]
    assert all_errands() == triples
    unseen = {triple for triple in triples if sum(triple) % 3 == 0}
    assert {triple for triple in triples if split_of(*triple) == "unseen"} == unseen
    assert 0.3 < len(unseen) / len(triples) < 0.36
    for split, expected in (("unseen", unseen), ("seen", set(triples) - unseen)):
        env = TextEnv(Errand(split=split))
        keys = jax.random.split(jax.random.key(0), 2_000)
        states = jax.vmap(lambda key, env=env: env.reset((), key)[0].task_state)(keys)
        drawn = zip(np.asarray(states.thing), np.asarray(states.thing_place), np.asarray(states.target), strict=True)
        assert {tuple(map(int, triple)) for triple in drawn} == expected


def test_errand_follows_the_laws_of_environments():
    check_environment(ENV)

"""Order task: against rules in plain Python, what its demonstrator does, and which entries count as guesses."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.sweet_rl.envs import ATTRIBUTES, ORDER, Order, guessed_entries, wasted_turns
from thespis.runtime.keys import fold, seed_key

SPEC: Any = ORDER.spec
WORDS = SPEC.action_space.vocabulary.words
"""Words by token."""
NAMES = list(ATTRIBUTES)[:3]
OF_VALUE = {value: name for name in NAMES for value in ATTRIBUTES[name]}


def text(tokens):
    return [WORDS[token] for token in np.asarray(tokens) if token >= 0]


def tokens(*words):
    return np.array([WORDS.index(word) for word in words], "int32")


def test_questions_are_answered_and_the_share_of_right_entries_is_paid_at_the_end():
    reset, step = jax.jit(ORDER.reset), jax.jit(ORDER.step)
    rng, returns = np.random.default_rng(0), []
    says = [*NAMES, *OF_VALUE, "ok"]
    for episode in range(40):
        dialogue, timestep = reset((), seed_key(episode))
        assert text(timestep.observation) == ["order", ">"]
        wanted = {OF_VALUE[word]: word for word in text(timestep.privileged)[:3]}
        assert list(wanted) == NAMES
        entered, told = {}, {}
        for turn in range(6):
            word, end = str(rng.choice(says)), "<end>" if rng.random() < 0.9 else "red"
            if told and rng.random() < 0.6:
                word, end = told.popitem()[1], "<end>"
            before = text(timestep.observation)
            dialogue, timestep = step(dialogue, tokens(word, end), seed_key(turn))
            reply = "no"
            if end == "<end>" and word in NAMES:
                reply = told[word] = wanted[word]
            elif end == "<end>" and word in OF_VALUE and OF_VALUE[word] not in entered:
                entered[OF_VALUE[word]], reply = word, "ok"
            is_over = len(entered) == 3 or turn == 5
            cut = [] if end == "<end>" else ["<end>"]
            assert text(timestep.observation) == before + [word, end, *cut] + ([] if is_over else [reply, ">"])
            score = np.mean([entered.get(name) == wanted[name] for name in NAMES]) if is_over else 0.0
            assert float(timestep.reward) == pytest.approx(score)
            assert bool(timestep.terminated) == is_over
            if is_over:
                returns.append(score)
                break
    assert {0.0, 1.0} < {round(score, 6) for score in returns}


def demonstrator_plays(noise, num_episodes=400):
    """Responses ``[episode, turn, token]`` (-1 after the end) and returns of the demonstrator."""
    env = TextEnv(Order(demonstrator_noise=noise), use_privileged=True)

    def play(key):
        def turn(carry, index):
            dialogue, over = carry
            response = env.demonstrator_action(dialogue, fold(key, "say", index))
            dialogue, timestep = env.step(dialogue, response, fold(key, "step", index))
            shown = jax.numpy.where(over, -1, response), jax.numpy.where(over, 0.0, timestep.reward)
            return (dialogue, over | timestep.terminated), shown

        start = env.reset((), key)[0], jax.numpy.zeros((), bool)
        return jax.lax.scan(turn, start, jax.numpy.arange(6))[1]

    responses, rewards = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), num_episodes))
    return np.asarray(responses), np.asarray(rewards).sum(axis=1)


def test_demonstrator_without_noise_asks_before_it_enters_and_is_always_right():
    responses, returns = demonstrator_plays(0.0)
    assert (returns == 1).all()
    for episode in responses:
        said = [WORDS[response[0]] for response in episode]
        assert sorted(said[::2]) == sorted(NAMES) and [OF_VALUE[word] for word in said[1::2]] == said[::2]
        assert guessed_entries(ORDER.task, episode) == (0, 3)
    assert len({WORDS[episode[0][0]] for episode in responses}) == 3


def test_random_demonstrator_says_anything():
    responses, returns = demonstrator_plays(1.0)
    assert {WORDS[token] for token in responses[..., 0].reshape(-1) if token >= 0} == {*NAMES, *OF_VALUE}
    assert 0.1 < returns.mean() < 0.25


def test_guesses_are_first_entries_without_a_question():
    ends = [tokens(word, "<end>") for word in ("shape", "oval", "red", "blue", "ok")]
    responses = np.stack([*ends, tokens("tiny", "red")])
    assert guessed_entries(ORDER.task, responses) == (1, 2)
    assert guessed_entries(ORDER.task, np.concatenate([responses, tokens("size", "<end>")[None]])) == (1, 2)
    assert guessed_entries(ORDER.task, np.full((2, 2), -1)) == (0, 0)


def test_turns_are_wasted_by_guesses_repetitions_and_errors():
    wanted = ["red", "oval", "tiny"]
    useful = [tokens(word, "<end>") for word in ("shape", "oval", "colour", "red")]
    assert wasted_turns(ORDER.task, wanted, np.stack(useful)) == (0, 4)
    again = [tokens(word, "<end>") for word in ("shape", "oval", "blue")]
    assert wasted_turns(ORDER.task, wanted, np.stack([*useful, *again])) == (3, 7)
    guess, wrong = tokens("tiny", "<end>"), [tokens("colour", "<end>"), tokens("blue", "<end>")]
    assert wasted_turns(ORDER.task, wanted, np.stack([guess, tokens("size", "<end>"), *wrong])) == (3, 4)
    assert wasted_turns(ORDER.task, wanted, np.stack([tokens("shape", "red"), tokens("ok", "<end>")])) == (2, 2)


def test_order_follows_the_laws_of_environments():
    check_environment(ORDER)

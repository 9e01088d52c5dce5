"""Checked counting: against rules in plain Python, and what tests and hints are worth."""

from __future__ import annotations

import jax
import numpy as np

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.re_rest.envs import CheckedCounting
from thespis.runtime.keys import seed_key
from thespis.training.demonstrations import sample_demonstrations


def written(env, tokens):
    return " ".join(env.spec.action_space.vocabulary.words[token] for token in np.asarray(tokens) if token >= 0)


def encode(env, text):
    words, width = env.spec.action_space.vocabulary.words, env.task.num_digits + 1
    tokens = [words.index(word) for word in text.split()]
    return np.array((tokens + [-1] * width)[:width], "int32")


def test_the_environment_tells_what_passes():
    env = TextEnv(CheckedCounting(num_digits=3, base=5, second_reward=2.0))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for episode in range(3):
        start, timestep = reset((), seed_key(episode))
        prompt = written(env, timestep.observation)
        right = [("abcde".index(prompt.split()[0]) + 1 + i) % 5 for i in range(3)]
        solution = " ".join(map(str, right)) + " <end>"
        _, timestep = step(start, encode(env, solution), seed_key(1))
        assert float(timestep.reward) == 1.0 and timestep.terminated
        assert written(env, timestep.observation) == f"{prompt} {solution}"
        for wrong in ((0,), (1, 2), (0, 1, 2)):
            attempt = [(x + 1) % 5 if i in wrong else x for i, x in enumerate(right)]
            message = " ".join("?" if i in wrong else str(x) for i, x in enumerate(right))
            text = " ".join(map(str, attempt)) + " <end>"
            state, timestep = step(start, encode(env, text), seed_key(1))
            assert written(env, timestep.observation) == f"{prompt} {text} {message} >"
            assert float(timestep.reward) == 0 and not timestep.terminated
            for answer, reward in ((solution, 2.0), (text, 0.0)):
                _, timestep = step(state, encode(env, answer), seed_key(2))
                assert float(timestep.reward) == reward and timestep.terminated
        for malformed in (f"{right[0]} <end>", "<end>", " ".join(map(str, right))):
            _, timestep = step(start, encode(env, malformed), seed_key(1))
            assert float(timestep.reward) == 0 and not timestep.terminated


def test_what_the_environment_says_is_worth_to_a_demonstrator_that_keeps_it():
    """A digit is right with p = 1/4; what was told stays, and the rest is guessed again."""
    n, p = 3, 0.25
    right = p**n
    count = [n * p**2 * (1 - p), n * p * (1 - p) ** 2, (1 - p) ** n]  # one, two and three digits wrong
    known = right + sum(share * p**k for k, share in enumerate(count, 1))
    returns = np.asarray(sample_demonstrations(TextEnv(CheckedCounting(num_digits=n, base=4)), 4_000)[3]).sum(axis=0)
    np.testing.assert_allclose(returns.mean(), known, atol=0.02)


def test_the_task_keeps_the_laws_of_environments():
    check_environment(TextEnv(CheckedCounting(num_digits=2, base=3)))

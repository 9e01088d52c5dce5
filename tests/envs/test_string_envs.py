"""Text environments that use plain strings: tokens against texts, ends, failing environments, and training."""

from __future__ import annotations

import time

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.text_env import StringVectorEnv
from thespis.methods.language.grpo import GRPO


class Guess:
    """Guess a number below 4 in three turns."""

    words = "guess too high low right no 0 1 2 3"
    max_turns, max_message_tokens, max_response_tokens = 3, 4, 2

    def reset(self, rng):
        self.rng, self.number = rng, int(rng.integers(4))
        return "guess"

    def step(self, response):
        if response not in set("0123"):
            return "no guess", 0.0, False
        if int(response) == self.number:
            return "right", 1.0, True
        return ("too low" if int(response) < self.number else "too high"), 0.0, False

    def demonstrate(self):
        return str(self.rng.integers(4))


class Fragile(Guess):
    """Raises an error at the response 0 and hangs at the response 1."""

    def step(self, response):
        if response == "0":
            raise RuntimeError("zero")
        if response == "1":
            time.sleep(60)
        return super().step(response)


class Silent:
    """Lacks the attribute ``words``."""

    max_turns = 2

    def reset(self, rng):
        return ""

    def step(self, response):
        return "", 0.0, True


def encode(vector_env: StringVectorEnv, *texts: str) -> np.ndarray:
    """Responses as rows of tokens, padded with -1."""
    words = vector_env.spec.action_space.vocabulary.words
    rows = [[words.index(word) for word in text.split()] for text in texts]
    return np.array([[*row, *[-1] * (vector_env.spec.action_space.max_length - len(row))] for row in rows], "int32")


def decode(vector_env: StringVectorEnv, tokens: np.ndarray) -> str:
    """The text of a row of tokens."""
    return " ".join(vector_env.spec.action_space.vocabulary.words[i] for i in tokens if i >= 0)


def test_dialogue_tokens():
    vector_env = StringVectorEnv(Guess, 2, "guess")
    first = vector_env.reset([3, 3])
    assert [decode(vector_env, row) for row in first.observation] == ["guess >"] * 2
    number = int(np.random.default_rng(3).integers(4))
    step, view = vector_env.step(encode(vector_env, f"{number} <end>", "high low"))
    assert step.terminated.tolist() == [True, False] and step.reward.tolist() == [1.0, 0.0]
    assert decode(vector_env, step.observation[0]) == f"guess > {number} <end>", "no message after the end"
    assert decode(vector_env, view.observation[0]) == "guess >", "the next episode has started"
    assert decode(vector_env, step.observation[1]) == "guess > high low <end> no guess >", (
        "a truncated response gets its end token"
    )
    vector_env.step(encode(vector_env, "high <end>", "high <end>"))
    step, _ = vector_env.step(encode(vector_env, "high <end>", "high <end>"))
    assert step.terminated.tolist() == [False, True], "three turns are over for the second environment"
    vector_env.close()


def test_equal_seeds_give_equal_episodes():
    vector_env = StringVectorEnv(Guess, 8, "guess")
    vector_env.reset([0, 0, 1, 1, 2, 2, 3, 3])
    numbers = [thread.env.number for thread in vector_env._env_threads]
    assert numbers[::2] == numbers[1::2] and len(set(numbers)) > 1
    vector_env.close()


def test_failing_envs_are_replaced_and_reported():
    vector_env = StringVectorEnv(Fragile, 3, "fragile", timeout=0.5)
    vector_env.reset([0, 1, 2])
    step, view = vector_env.step(encode(vector_env, "0 <end>", "1 <end>", "high <end>"))
    assert step.truncated.tolist() == [True, True, False] and step.reward.tolist() == [0.0] * 3
    assert [decode(vector_env, row) for row in view.observation[:2]] == ["guess >"] * 2
    assert vector_env.pop_warnings() == [
        "1 episodes of fragile were cut: RuntimeError: zero",
        "1 episodes of fragile were cut: no answer in 0.5 s",
    ]
    assert vector_env.pop_warnings() == []
    step, _ = vector_env.step(encode(vector_env, "high <end>", "high <end>", "high <end>"))
    assert decode(vector_env, step.observation[1]) == "guess > high <end> no guess >", "a new environment continues"
    vector_env.close()


def test_missing_words_are_named():
    with pytest.raises(UserError, match="words"):
        registry.make_host(Silent, 1)
    with pytest.raises(UserError, match="language model"):
        thespis.train("ppo", Guess, steps=10)


def test_demonstrator_must_use_words_of_the_vocabulary():
    class Loud(Guess):
        def demonstrate(self):
            return "SEVEN"

    vector_env = StringVectorEnv(Loud, 1, "loud")
    vector_env.reset([0])
    with pytest.raises(UserError, match="says 'SEVEN', which is none of its words"):
        vector_env.demonstrator_action()
    vector_env.close()


class Echo(Guess):
    """Shows a number, which the response must repeat; the demonstrator answers at random."""

    max_turns = 1

    def reset(self, rng):
        super().reset(rng)
        return f"guess {self.number}"


@pytest.mark.slow
def test_tiny_model_is_pretrained_and_trained(tmp_path, monkeypatch):
    """The pretrained model is right one time in four; from rewards it learns to repeat the number."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    method = GRPO(num_layers=2, hidden_size=64, learning_rate=1e-3)
    short_run = thespis.train(method, Echo, steps=64, episodes=200, out=tmp_path / "short")
    assert len(list((tmp_path / "thespis" / "tiny").iterdir())) == 1
    assert short_run.final_scores["sampled"]["iqm"] < 0.45
    run = thespis.train(method, Echo, steps=64 * 150, episodes=200, out=tmp_path / "run")
    assert len(list((tmp_path / "thespis" / "tiny").iterdir())) == 1, "pretrained once"
    assert run.final_scores["sampled"]["iqm"] > 0.8

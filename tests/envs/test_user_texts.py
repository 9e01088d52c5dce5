"""Text worlds in plain strings: ids and back, ends, failures that are survived, and training in one."""

from __future__ import annotations

import time

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.texts import Texts
from thespis.methods.language.grpo import GRPO


class Guess:
    """Guess a number below 4 in three turns."""

    words = "guess too high low right no 0 1 2 3"
    turns, message, utterance = 3, 4, 2

    def reset(self, rng):
        self.rng, self.number = rng, int(rng.integers(4))
        return "guess"

    def step(self, said):
        if said not in set("0123"):
            return "no guess", 0.0, False
        if int(said) == self.number:
            return "right", 1.0, True
        return ("too low" if int(said) < self.number else "too high"), 0.0, False

    def demonstrate(self):
        return str(self.rng.integers(4))


class Fragile(Guess):
    """Breaks when it hears 0 and falls asleep when it hears 1."""

    def step(self, said):
        if said == "0":
            raise RuntimeError("zero")
        if said == "1":
            time.sleep(60)
        return super().step(said)


class Silent:
    """Has no words."""

    turns = 2

    def reset(self, rng):
        return ""

    def step(self, said):
        return "", 0.0, True


def says(worlds: Texts, *texts: str) -> np.ndarray:
    known = worlds.spec.action.vocabulary.words
    rows = [[known.index(word) for word in text.split()] for text in texts]
    return np.array([[*row, *[-1] * (worlds.spec.action.length - len(row))] for row in rows], "int32")


def told(worlds: Texts, ids: np.ndarray) -> str:
    return " ".join(worlds.spec.action.vocabulary.words[i] for i in ids if i >= 0)


def test_a_conversation_is_kept_id_by_id():
    worlds = Texts(Guess, 2, "guess")
    begun = worlds.start([3, 3])
    assert [told(worlds, row) for row in begun.observation] == ["guess >"] * 2
    number = int(np.random.default_rng(3).integers(4))
    step, view = worlds.step(says(worlds, f"{number} <end>", "high low"))
    assert step.terminated.tolist() == [True, False] and step.reward.tolist() == [1.0, 0.0]
    assert told(worlds, step.observation[0]) == f"guess > {number} <end>", "nothing is said when all is over"
    assert told(worlds, view.observation[0]) == "guess >", "the next one has begun"
    assert told(worlds, step.observation[1]) == "guess > high low <end> no guess >", "what was cut is ended"
    worlds.step(says(worlds, "high <end>", "high <end>"))
    step, _ = worlds.step(says(worlds, "high <end>", "high <end>"))
    assert step.terminated.tolist() == [False, True], "three turns are over for the second"
    worlds.close()


def test_equal_seeds_begin_alike():
    worlds = Texts(Guess, 8, "guess")
    worlds.start([0, 0, 1, 1, 2, 2, 3, 3])
    numbers = [partner.world.number for partner in worlds._partners]
    assert numbers[::2] == numbers[1::2] and len(set(numbers)) > 1
    worlds.close()


def test_worlds_that_fail_are_survived_and_told_of():
    worlds = Texts(Fragile, 3, "fragile", patience=0.5)
    worlds.start([0, 1, 2])
    step, view = worlds.step(says(worlds, "0 <end>", "1 <end>", "high <end>"))
    assert step.truncated.tolist() == [True, True, False] and step.reward.tolist() == [0.0] * 3
    assert [told(worlds, row) for row in view.observation[:2]] == ["guess >"] * 2
    assert worlds.news() == [
        "1 episodes of fragile were cut: RuntimeError: zero", "1 episodes of fragile were cut: no answer in 0.5 s",
    ]  # fmt: skip
    assert worlds.news() == []
    step, _ = worlds.step(says(worlds, "high <end>", "high <end>", "high <end>"))
    assert told(worlds, step.observation[1]) == "guess > high <end> no guess >", "a fresh world goes on"
    worlds.close()


def test_a_world_without_words_says_what_is_missing():
    with pytest.raises(UserError, match="words"):
        registry.host(Silent, 1)
    with pytest.raises(UserError, match="language model"):
        thespis.train("ppo", Guess, steps=10)


def test_a_demonstrator_speaks_its_world_s_words():
    class Loud(Guess):
        def demonstrate(self):
            return "SEVEN"

    worlds = Texts(Loud, 1, "loud")
    worlds.start([0])
    with pytest.raises(UserError, match="says 'SEVEN', which is none of its words"):
        worlds.demonstrated()
    worlds.close()


class Echo(Guess):
    """Says a number, which is to be said again; whoever demonstrates it says any."""

    turns = 1

    def reset(self, rng):
        super().reset(rng)
        return f"guess {self.number}"


@pytest.mark.slow
def test_a_tiny_model_is_taught_and_trained_in_it(tmp_path, monkeypatch):
    """What it was taught is right one time in four; what it learns from rewards is to listen."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    method = GRPO(layers=2, width=64, learning_rate=1e-3)
    begun = thespis.train(method, Echo, steps=64, episodes=200, out=tmp_path / "begun")
    assert len(list((tmp_path / "thespis" / "tiny").iterdir())) == 1
    assert begun.final["sampled"]["iqm"] < 0.45
    run = thespis.train(method, Echo, steps=64 * 150, episodes=200, out=tmp_path / "run")
    assert len(list((tmp_path / "thespis" / "tiny").iterdir())) == 1, "taught once"
    assert run.final["sampled"]["iqm"] > 0.8

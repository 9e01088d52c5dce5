"""The maze against its rules written again in plain Python, on strings."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis import tiny
from thespis.core.conformance_worlds import check_environment
from thespis.core.keys import fold, key_of
from thespis.envs import registry
from thespis.envs.text.maze import WAYS, Maze, layout
from thespis.envs.text.task import Spoken
from thespis.language.tokens import words

STEPS = {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}


class Plain:
    """The maze, told again."""

    def __init__(self, at: int, goal: int, size: int, turns: int):
        self.at, self.goal, self.size, self.turns, self.turn = at, goal, size, turns, 0
        self.text = self._where()

    def _ways(self) -> list[str]:
        open_, _ = layout(self.size)
        return [way for i, way in enumerate(WAYS) if open_[self.at, i]]

    def _where(self) -> str:
        goal, at = (f"{'abcde'[cell % self.size]}{cell // self.size + 1}" for cell in (self.goal, self.at))
        return f"goal {goal} at {at} open {' '.join(self._ways())} >"

    def say(self, said: str) -> tuple[float, bool]:
        self.turn += 1
        self.text += f" {said}" + ("" if "<end>" in said.split() else " <end>")
        spoken = said.split()
        if spoken[0] in self._ways() and spoken[1:] == ["<end>"]:
            x, y = STEPS[spoken[0]]
            self.at += x + y * self.size
        if self.at == self.goal:
            return 1.0, True
        self.text += " " + self._where()
        return 0.0, False


def test_the_compiled_maze_does_what_the_plain_one_does():
    world, rng = Spoken(Maze()), np.random.default_rng(0)
    tokenizer, known = words(world.spec.action.vocabulary.words), world.spec.action.vocabulary.words
    reset, step = jax.jit(world.reset), jax.jit(world.step)
    shown = jax.jit(lambda talk, key, turn: world.demonstrated(talk, fold(key, "say", turn)))
    ends = set()
    for episode in range(30):
        talk, seen = reset((), key_of(episode))
        plain = Plain(int(talk.task.at), int(talk.task.goal), 5, 12)
        for turn in range(12):
            ids = [int(i) for i in np.asarray(seen.observation) if i >= 0]
            assert tokenizer.encode(plain.text) == ids and tokenizer.decode(ids) == plain.text
            if episode % 3 == 0:
                said = rng.integers(0, len(known), 2)
            else:
                said = np.asarray(shown(talk, key_of(episode), turn))
            talk, seen = step(talk, said.astype("int32"), key_of(turn))
            reward, over = plain.say(" ".join(known[i] for i in said))
            assert (float(seen.reward), bool(seen.terminated)) == (reward, over or turn == 11)
            assert not seen.truncated
            ends.add((over, bool(seen.terminated)))
            if over:
                break
    assert ends == {(False, False), (True, True), (False, True)}


def test_every_cell_can_be_reached_and_shortest_ways_are_shortest():
    open_, ahead = layout(5)
    for goal in range(25):
        far = {goal: 0}
        queue = [goal]
        for cell in queue:
            for i, (x, y) in enumerate(STEPS.values()):
                if open_[cell, i] and cell + x + 5 * y not in far:
                    far[cell + x + 5 * y] = far[cell] + 1
                    queue.append(cell + x + 5 * y)
        assert len(far) == 25
        for cell in set(range(25)) - {goal}:
            x, y = list(STEPS.values())[ahead[goal, cell]]
            assert open_[cell, ahead[goal, cell]] and far[cell + x + 5 * y] == far[cell] - 1


def test_demonstrators():
    """Who is lost nowhere always arrives; lost in three cells of five, two times of five: imitation leaves room."""
    assert arriving(Maze(lost=0.0)) == 1.0
    assert 0.3 < arriving(Maze()) < 0.5


@pytest.mark.slow
def test_demonstrators_that_do_not_know_the_way():
    assert arriving(Maze(lost=1.0)) < 0.3
    assert arriving(Maze(lost=0.0, wandering=1.0)) < 0.3


def arriving(maze: Maze) -> float:
    """How often a demonstrator of this maze comes to its goal."""
    return np.asarray(tiny.demonstrated(Spoken(maze), 2_000)[3]).sum(axis=0).mean()


@pytest.mark.slow
def test_contract():
    check_environment(registry.compiled("text:maze"))

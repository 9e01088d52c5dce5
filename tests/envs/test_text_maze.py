"""Text maze, against a reference implementation on strings."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs import registry
from thespis.envs.text.maze import DIRECTIONS, Maze, maze_layout
from thespis.envs.text.task import TextEnv
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import fold, seed_key
from thespis.training import demonstrations

STEPS = {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}


class ReferenceMaze:
    """The maze in plain Python, on strings."""

    def __init__(self, at: int, goal: int, size: int, turns: int):
        self.at, self.goal, self.size, self.turns, self.turn = at, goal, size, turns, 0
        self.text = self._describe()

    def _open_directions(self) -> list[str]:
        open_, _ = maze_layout(self.size)
        return [direction for i, direction in enumerate(DIRECTIONS) if open_[self.at, i]]

    def _describe(self) -> str:
        goal, at = (f"{'abcde'[cell % self.size]}{cell // self.size + 1}" for cell in (self.goal, self.at))
        return f"goal {goal} at {at} open {' '.join(self._open_directions())} >"

    def step(self, response: str) -> tuple[float, bool]:
        self.turn += 1
        self.text += f" {response}" + ("" if "<end>" in response.split() else " <end>")
        words = response.split()
        if words[0] in self._open_directions() and words[1:] == ["<end>"]:
            x, y = STEPS[words[0]]
            self.at += x + y * self.size
        if self.at == self.goal:
            return 1.0, True
        self.text += " " + self._describe()
        return 0.0, False


@pytest.mark.long
def test_maze_matches_the_reference():
    env, rng = TextEnv(Maze()), np.random.default_rng(0)
    tokenizer, words = (
        word_tokenizer(env.spec.action_space.vocabulary.words),
        env.spec.action_space.vocabulary.words,
    )
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    demonstrate = jax.jit(lambda dialogue, key, turn: env.demonstrator_action(dialogue, fold(key, "say", turn)))
    ends = set()
    for episode in range(30):
        dialogue, timestep = reset((), seed_key(episode))
        reference = ReferenceMaze(int(dialogue.task_state.position), int(dialogue.task_state.goal), 5, 12)
        for turn in range(12):
            tokens = [int(i) for i in np.asarray(timestep.observation) if i >= 0]
            assert tokenizer.encode(reference.text) == tokens and tokenizer.decode(tokens) == reference.text
            if episode % 3 == 0:
                response = rng.integers(0, len(words), 2)
            else:
                response = np.asarray(demonstrate(dialogue, seed_key(episode), turn))
            dialogue, timestep = step(dialogue, response.astype("int32"), seed_key(turn))
            reward, over = reference.step(" ".join(words[i] for i in response))
            assert (float(timestep.reward), bool(timestep.terminated)) == (reward, over or turn == 11)
            assert not timestep.truncated
            ends.add((over, bool(timestep.terminated)))
            if over:
                break
    assert ends == {(False, False), (True, True), (False, True)}


def test_every_cell_is_reachable_and_directions_are_shortest_paths():
    open_, best_direction = maze_layout(5)
    for goal in range(25):
        distance = {goal: 0}
        queue = [goal]
        for cell in queue:
            for i, (x, y) in enumerate(STEPS.values()):
                if open_[cell, i] and cell + x + 5 * y not in distance:
                    distance[cell + x + 5 * y] = distance[cell] + 1
                    queue.append(cell + x + 5 * y)
        assert len(distance) == 25
        for cell in set(range(25)) - {goal}:
            x, y = list(STEPS.values())[best_direction[goal, cell]]
            assert open_[cell, best_direction[goal, cell]] and distance[cell + x + 5 * y] == distance[cell] - 1


@pytest.mark.long
def test_success_rate_of_demonstrators():
    """Without random cells it is 1; with three random cells of five about 0.4, which leaves room above imitation."""
    assert success_rate(Maze(demonstrator_random_cells=0.0)) == 1.0
    assert 0.3 < success_rate(Maze()) < 0.5


@pytest.mark.slow
def test_success_rate_of_random_demonstrators():
    assert success_rate(Maze(demonstrator_random_cells=1.0)) < 0.3
    assert success_rate(Maze(demonstrator_random_cells=0.0, demonstrator_noise=1.0)) < 0.3


def success_rate(maze: Maze) -> float:
    """The share of episodes in which the demonstrator of this maze reaches the goal."""
    return np.asarray(demonstrations.sample_demonstrations(TextEnv(maze), 2_000)[3]).sum(axis=0).mean()


@pytest.mark.slow
def test_contract():
    check_environment(registry.make_compiled("text:maze"))

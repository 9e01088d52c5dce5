"""Goal relabeling of text dialogues, against dialogues played again with the new goal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.spaces import END
from thespis.envs import registry
from thespis.envs.text.maze import DIRECTIONS, Maze, MazeState
from thespis.envs.text.task import TextEnv
from thespis.papers.agent_r.envs import UndoTask
from thespis.runtime.keys import seed_key

ENV = TextEnv(Maze(size=3, max_turns=8))
RESPONSES = np.array(ENV.spec.action_space.choices, "int32")
STEP = jax.jit(ENV.step)


@jax.jit
def init_state(at, goal):
    """The initial state of a dialogue from cell ``at`` to cell ``goal``."""
    dialogue, _ = ENV.reset((), seed_key(0))
    maze_state = MazeState(at, goal)
    opening = ENV.task._describe(maze_state)
    transcript = jnp.full(ENV.spec.observation_space.max_length, -1, "int32").at[: opening.shape[0]].set(opening)
    return type(dialogue)(maze_state, transcript, dialogue.turn)


def encode(*texts: str) -> tuple[tuple[int, ...], ...]:
    """Responses as tuples of tokens."""
    words = ENV.spec.action_space.vocabulary.words
    return tuple(tuple(words.index(word) for word in text.split()) for text in texts)


def rollout(at: int, goal: int, directions: list[int]) -> tuple[list[np.ndarray], bool]:
    """Observations before and after every step from a cell until the end, and whether the goal was reached."""
    dialogue = init_state(np.int32(at), np.int32(goal))
    observations = [np.asarray(dialogue.transcript)]
    for direction in directions:
        dialogue, timestep = STEP(dialogue, RESPONSES[direction], seed_key(0))
        observations.append(np.asarray(timestep.observation))
        if timestep.reward > 0:
            return observations, True
    return observations, False


@pytest.mark.long
def test_relabeled_dialogue_matches_one_played_with_the_new_goal():
    goals, rng, outcomes = ENV.spec.goal_relabeler, np.random.default_rng(0), set()
    relabel, achieved, first = (
        jax.jit(goals.relabel),
        jax.jit(goals.achieved_goal),
        ENV.task.task_spec.encode_word("a1"),
    )
    for _ in range(25):
        at, goal = (int(x) for x in rng.choice(9, 2, replace=False))
        directions = [int(direction) for direction in rng.integers(0, 4, 7)]
        observations, goal_reached = rollout(at, goal, directions)
        if goal_reached:
            assert int(achieved(observations[-1])) == first + goal
            observations = observations[:-1]  # how the dialogue would have continued is unknown
        for other in range(9):
            if other == at:
                continue
            expected, reached = rollout(at, other, directions[: len(observations) - 1])
            for turn, transcript in enumerate(observations):
                relabeled, relabeled_reached = relabel(transcript, first + other)
                np.testing.assert_array_equal(relabeled, expected[min(turn, len(expected) - 1)])
                assert bool(relabeled_reached) == (reached and turn >= len(expected) - 1)
                outcomes.add(bool(relabeled_reached))
    assert outcomes == {False, True}


def test_achieved_goal_is_the_current_position():
    achieved, first = jax.jit(ENV.spec.goal_relabeler.achieved_goal), ENV.task.task_spec.encode_word("a1")
    dialogue, timestep = jax.jit(ENV.reset)((), seed_key(3))
    for turn in range(8):
        assert int(achieved(timestep.observation)) == first + int(dialogue.task_state.position)
        dialogue, timestep = STEP(dialogue, RESPONSES[turn % 4], seed_key(turn))
        if timestep.terminated:
            break
    assert int(achieved(timestep.observation)) == first + int(dialogue.task_state.position)


def test_action_space_lists_all_choices():
    assert ENV.spec.action_space.choices == encode(*(f"{direction} {END}" for direction in DIRECTIONS))
    assert TextEnv(UndoTask(Maze(size=3, max_turns=8))).spec.action_space.choices == encode(
        *(f"{w} {END}" for w in DIRECTIONS), END
    )
    assert [
        len(registry.make_compiled(f"text:{name}").spec.action_space.choices) for name in ("kuhn", "tictactoe")
    ] == [2, 9]
    assert TextEnv(UndoTask(Maze())).spec.goal_relabeler is None

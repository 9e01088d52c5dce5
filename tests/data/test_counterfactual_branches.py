"""Counterfactual branches of demonstrations: same prefix, another response, and the environment's answer to it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.envs.text.maze import Maze, maze_layout
from thespis.envs.text.task import TextEnv
from thespis.methods.language.sft import SFT
from thespis.training import demonstrations
from thespis.training.counterfactual_branches import branch_dataset, sample_branches
from thespis.training.data_sources import build_dataset

SIZE, COUNT, EACH = 3, 5, 6
ENV = TextEnv(Maze(size=SIZE, max_turns=6, demonstrator_random_cells=0.0))
WORDS = ENV.spec.action_space.vocabulary.words
STEP = {"up": -SIZE, "right": 1, "down": SIZE, "left": -1}


def words(tokens):
    return [WORDS[i] for i in tokens if i >= 0]


def arrays(tree):
    return tuple(np.asarray(x) for x in tree)


def next_message(message, move):
    """The maze's message after a move, in words; empty if the goal is reached."""
    open_, _ = maze_layout(SIZE)
    goal, position = message[message.index("goal") + 1], message[message.index("at") + 1]
    cell = (ord(position[0]) - ord("a")) + SIZE * (int(position[1]) - 1)
    moves = [move for i, move in enumerate(STEP) if open_[cell, i]]
    assert message[message.index("open") + 1 : -1] == moves
    next_cell = cell + STEP[move] if move in moves else cell
    name = f"{'abc'[next_cell % SIZE]}{next_cell // SIZE + 1}"
    if name == goal:
        return []
    return ["goal", goal, "at", name, "open", *(move for i, move in enumerate(STEP) if open_[next_cell, i]), ">"]


@pytest.mark.long
def test_branches_share_a_prefix_and_follow_the_environment():
    demo_transcript, demo_starts, demo_responses, _ = arrays(demonstrations.sample_demonstrations(ENV, COUNT))
    transcript, starts, responses, reward = arrays(sample_branches(ENV, COUNT, EACH))
    changed = 0
    for row in range(COUNT * EACH):
        demo = row // EACH
        last = int((responses[:, row] >= 0).any(axis=1).sum()) - 1
        start = starts[last, row]
        assert start == demo_starts[last, demo] and (transcript[row, :start] == demo_transcript[demo, :start]).all()
        assert (responses[:last, row] == demo_responses[:last, demo]).all() and (responses[last + 1 :, row] == -1).all()
        before, (move, end), after = (
            words(demo_transcript[demo, :start]),
            words(responses[last, row]),
            words(transcript[row, start + 2 :]),
        )
        message = before[len(before) - before[::-1].index("goal") - 1 :]
        assert end == "<end>" and after == next_message(message, move)
        assert reward[:, row].sum() == (not after)
        changed += bool((responses[last, row] != demo_responses[last, demo]).any())
    assert changed > COUNT, "most responses equal the demonstration"


@pytest.mark.long
def test_branch_turns_are_uniform():
    each = 2000
    turns = (np.asarray(demonstrations.sample_demonstrations(ENV, COUNT)[2]) >= 0).any(axis=2).sum(axis=0)
    responses = np.asarray(sample_branches(ENV, COUNT, each)[2])
    last = (responses >= 0).any(axis=2).sum(axis=0).reshape(COUNT, each)
    assert turns.max() > 1
    for num_turns, turns_of_branches in zip(turns, last, strict=True):
        counts = Counter(turns_of_branches.tolist())
        assert set(counts) == set(range(1, num_turns + 1))
        assert all(count / each == pytest.approx(1 / num_turns, abs=0.04) for count in counts.values())


def test_dataset_has_equal_shares_and_truncated_branches():
    data = branch_dataset(ENV, COUNT, EACH)
    demonstrations_only = build_dataset(f"demonstrations:{COUNT}", ENV, SFT()).steps
    first = np.flatnonzero(data.steps.is_first)
    assert data.num_episodes == 2 * COUNT * EACH
    middle = first[COUNT * EACH]
    assert not data.steps.truncated[:middle].any() and not data.steps.terminated[middle:].any()
    assert data.steps.truncated.sum() == data.steps.terminated.sum() == COUNT * EACH
    length = np.flatnonzero(demonstrations_only.terminated)[0] + 1
    for copy in range(EACH):
        start = first[copy]
        np.testing.assert_array_equal(data.steps.action[start : start + length], demonstrations_only.action[:length])
        np.testing.assert_array_equal(
            data.steps.next_view.observation[start : start + length], demonstrations_only.next_view.observation[:length]
        )


@pytest.mark.slow
def test_dataset_names():
    assert build_dataset("branches:3x2", "text:echo", SFT()).num_episodes == 12
    assert build_dataset("branches:2", "text:echo", SFT()).num_episodes == 32
    for data, env, message in [
        ("branches:3x2", None, "--env NAME"),
        ("branches:3x", "text:echo", "branches:NxK"),
        ("branches:3x2", "probe:late", "demonstrator has noise"),
        ("branches:3x2", "text:kuhn-duel", "demonstrator has noise"),
    ]:
        with pytest.raises(UserError, match=message):
            build_dataset(data, env, SFT())

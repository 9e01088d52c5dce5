"""Branches of a demonstrator's conversations: the same up to a turn, then another thing, and the answer to it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from thespis import tiny
from thespis.branches import branched, branches_in
from thespis.core.errors import UserError
from thespis.envs.text.maze import Maze, layout
from thespis.envs.text.task import Spoken
from thespis.methods.language.sft import SFT
from thespis.sources import dataset_of

SIZE, COUNT, EACH = 3, 5, 6
WORLD = Spoken(Maze(size=SIZE, turns=6, lost=0.0))
WORDS = WORLD.spec.action.vocabulary.words
STEP = {"up": -SIZE, "right": 1, "down": SIZE, "left": -1}


def words(ids):
    return [WORDS[i] for i in ids if i >= 0]


def arrays(given):
    return tuple(np.asarray(x) for x in given)


def answer_to(message, way):
    """By the rules of the maze, in words; nothing where the goal is reached."""
    open_, _ = layout(SIZE)
    goal, at = message[message.index("goal") + 1], message[message.index("at") + 1]
    cell = (ord(at[0]) - ord("a")) + SIZE * (int(at[1]) - 1)
    ways = [way for i, way in enumerate(STEP) if open_[cell, i]]
    assert message[message.index("open") + 1 : -1] == ways
    there = cell + STEP[way] if way in ways else cell
    name = f"{'abc'[there % SIZE]}{there // SIZE + 1}"
    if name == goal:
        return []
    return ["goal", goal, "at", name, "open", *(way for i, way in enumerate(STEP) if open_[there, i]), ">"]


def test_a_branch_is_its_conversation_up_to_a_turn_and_then_what_follows_on_another_word():
    whole, starts, known, _ = arrays(tiny.demonstrated(WORLD, COUNT))
    transcript, begin, said, reward = arrays(branched(WORLD, COUNT, EACH))
    changed = 0
    for row in range(COUNT * EACH):
        one = row // EACH
        last = int((said[:, row] >= 0).any(axis=1).sum()) - 1
        at = begin[last, row]
        assert at == starts[last, one] and (transcript[row, :at] == whole[one, :at]).all()
        assert (said[:last, row] == known[:last, one]).all() and (said[last + 1 :, row] == -1).all()
        before, (way, end), after = words(whole[one, :at]), words(said[last, row]), words(transcript[row, at + 2 :])
        message = before[len(before) - before[::-1].index("goal") - 1 :]
        assert end == "<end>" and after == answer_to(message, way)
        assert reward[:, row].sum() == (not after)
        changed += bool((said[last, row] != known[last, one]).any())
    assert changed > COUNT, "most of what is tried is something else"


def test_turns_of_branches_are_drawn_uniformly():
    each = 2000
    turns = (np.asarray(tiny.demonstrated(WORLD, COUNT)[2]) >= 0).any(axis=2).sum(axis=0)
    said = np.asarray(branched(WORLD, COUNT, each)[2])
    last = (said >= 0).any(axis=2).sum(axis=0).reshape(COUNT, each)
    assert turns.max() > 1
    for many, found in zip(turns, last, strict=True):
        counted = Counter(found.tolist())
        assert set(counted) == set(range(1, many + 1))
        assert all(count / each == pytest.approx(1 / many, abs=0.04) for count in counted.values())


def test_the_dataset_holds_as_many_of_both_and_branches_are_cut():
    data = branches_in(WORLD, COUNT, EACH)
    shown = dataset_of(f"demonstrations:{COUNT}", WORLD, SFT()).steps
    first = np.flatnonzero(data.steps.first)
    assert data.episodes == 2 * COUNT * EACH
    middle = first[COUNT * EACH]
    assert not data.steps.truncated[:middle].any() and not data.steps.terminated[middle:].any()
    assert data.steps.truncated.sum() == data.steps.terminated.sum() == COUNT * EACH
    ends = np.flatnonzero(shown.terminated)[0] + 1
    for copy in range(EACH):
        at = first[copy]
        np.testing.assert_array_equal(data.steps.action[at : at + ends], shown.action[:ends])
        np.testing.assert_array_equal(
            data.steps.next_view.observation[at : at + ends], shown.next_view.observation[:ends]
        )


@pytest.mark.slow
def test_it_has_a_name_or_is_refused():
    assert dataset_of("branches:3x2", "text:echo", SFT()).episodes == 12
    assert dataset_of("branches:2", "text:echo", SFT()).episodes == 32
    for data, env, told in [
        ("branches:3x2", None, "--env NAME"),
        ("branches:3x", "text:echo", "branches:NxK"),
        ("branches:3x2", "probe:late", "can wander"),
        ("branches:3x2", "text:kuhn-duel", "can wander"),
    ]:
        with pytest.raises(UserError, match=told):
            dataset_of(data, env, SFT())

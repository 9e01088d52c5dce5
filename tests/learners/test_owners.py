"""Whose each id of a transcript is, and in which order they lie, for conversations that are written out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from thespis.learners.transcripts import Told, by_row, onwards

TRANSCRIPT = "wwAAAwwAAw--"
"""Two turns, an id a letter. ``A``: said by the actor, ``w``: by the world."""


def told():
    ids = np.array([[-1 if who == "-" else place for place, who in enumerate(TRANSCRIPT)]])
    starts = np.array([[2], [7], [10]])
    said = np.array([[[2, 3, 4]], [[7, 8, -1]]])
    yes = np.ones((2, 1), bool)
    return Told(*(jnp.asarray(x) for x in (ids, starts, said, yes, np.zeros((2, 1), "float32"), np.zeros(1, bool))))


def places(found):
    return np.flatnonzero(np.asarray(found[0])).tolist()


def test_utterances_end_where_the_world_answers():
    every, first, last = (jnp.array([[a], [b]]) for a, b in ((True, True), (True, False), (False, True)))
    assert places(told().spoken(every)) == [2, 3, 4, 7, 8] == [i for i, x in enumerate(TRANSCRIPT) if x == "A"]
    assert places(told().spoken(first)) == [2, 3, 4] and places(told().spoken(last)) == [7, 8]
    assert places(told().replied(first)) == [5, 6] and places(told().replied(last)) == [9]


def test_rows_are_conversations_from_their_first_id_to_their_last():
    time, rows, width = 3, 2, 4
    numbers = np.arange(time * rows * width, dtype="float32").reshape(time, rows, width)
    wanted = [np.concatenate([numbers[t, row] for t in range(time)]) for row in range(rows)]
    np.testing.assert_array_equal(by_row(jnp.asarray(numbers)), wanted)
    later = [np.cumsum(each[::-1])[::-1] for each in wanted]
    found = onwards(jnp.asarray(numbers), jnp.ones(numbers.shape, bool))
    np.testing.assert_array_equal(by_row(found), later)

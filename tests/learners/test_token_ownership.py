"""Token masks and token order of dialogues, against a hand-written transcript."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from thespis.learners.language.dialogues import Dialogues, flatten_turns, sum_from_token

TRANSCRIPT = "wwAAAwwAAw--"
"""Two turns, one letter per token. ``A``: token of a response, ``w``: of the environment, ``-``: padding."""


def make_dialogues():
    tokens = np.array([[-1 if owner == "-" else position for position, owner in enumerate(TRANSCRIPT)]])
    starts = np.array([[2], [7], [10]])
    responses = np.array([[[2, 3, 4]], [[7, 8, -1]]])
    alive = np.ones((2, 1), bool)
    return Dialogues(
        *(jnp.asarray(x) for x in (tokens, starts, responses, alive, np.zeros((2, 1), "float32"), np.zeros(1, bool)))
    )


def positions(mask):
    return np.flatnonzero(np.asarray(mask[0])).tolist()


def test_masks_separate_response_and_environment_tokens():
    every, first, last = (jnp.array([[a], [b]]) for a, b in ((True, True), (True, False), (False, True)))
    assert (
        positions(make_dialogues().response_token_mask(every))
        == [2, 3, 4, 7, 8]
        == [i for i, x in enumerate(TRANSCRIPT) if x == "A"]
    )
    assert positions(make_dialogues().response_token_mask(first)) == [2, 3, 4] and positions(
        make_dialogues().response_token_mask(last)
    ) == [7, 8]
    assert positions(make_dialogues().env_token_mask(first)) == [5, 6] and positions(
        make_dialogues().env_token_mask(last)
    ) == [9]


def test_flatten_turns_orders_tokens_by_dialogue():
    time, rows, width = 3, 2, 4
    numbers = np.arange(time * rows * width, dtype="float32").reshape(time, rows, width)
    expected = [np.concatenate([numbers[t, row] for t in range(time)]) for row in range(rows)]
    np.testing.assert_array_equal(flatten_turns(jnp.asarray(numbers)), expected)
    sums_from = [np.cumsum(row_tokens[::-1])[::-1] for row_tokens in expected]
    result = sum_from_token(jnp.asarray(numbers), jnp.ones(numbers.shape, bool))
    np.testing.assert_array_equal(flatten_turns(result), sums_from)


def test_own_turns_alone_are_the_same_dialogues():
    """In the rows speak: this seat twice and another one after each; the other one first; this seat once; nobody."""
    alive = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], bool)
    starts = np.array([[2, 1, 3, 9], [4, 1, 5, 9], [6, 3, 5, 9], [8, 3, 5, 9], [9, 7, 5, 9]])
    responses = np.where(alive[..., None], np.arange(32).reshape(4, 4, 2), -1)
    reward = np.where(alive, np.arange(16.0).reshape(4, 4), 0.0).astype("float32")
    transcript = np.where(np.arange(12) < starts[-1][:, None], 0, -1)
    fields = (transcript, starts, responses, alive, reward, np.array([True, False, True, False]))
    everything = Dialogues(*(jnp.asarray(x) for x in fields))
    own = everything.own_turns(2)
    np.testing.assert_array_equal(own.alive, [[1, 1, 1, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(own.response_starts, [[2, 1, 3, 9], [6, 3, 5, 9], [9, 7, 5, 9]])
    np.testing.assert_array_equal(own.responses[:, 0], responses[[0, 2], 0])
    np.testing.assert_array_equal(own.responses[:, 1], responses[[1, 3], 1])
    np.testing.assert_array_equal(own.responses[0, 2], responses[0, 2])
    np.testing.assert_array_equal(own.reward[:, :2], [[0, 5], [8, 13]])
    np.testing.assert_array_equal(own.returns, everything.returns)
    np.testing.assert_array_equal(
        own.response_token_mask(own.alive), everything.response_token_mask(jnp.asarray(alive))
    )
    reply = np.asarray(own.env_token_mask(own.alive & ~own.is_last_turn))
    np.testing.assert_array_equal(np.flatnonzero(reply[0]), [4, 5])  # between both responses, whoever spoke
    unchanged = everything.own_turns(4)
    for field in dataclasses.fields(everything):
        np.testing.assert_array_equal(getattr(unchanged, field.name), getattr(everything, field.name))

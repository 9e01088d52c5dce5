"""A process reward model: whose outcomes it averages, where it looks, and what it pays where success is known."""

from __future__ import annotations

import collections
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reading import features_of

from thespis.actors.language import Talking
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.learners.conversations import Conversations
from thespis.learners.process import shares
from thespis.learners.process_reward import ProcessReward, meant, missed
from thespis.learners.talker import Mind
from thespis.nets.decoder import Shape, decoder

TIME, WIDTH, LENGTH = 3, 2, 12
TALKING = Talking(LENGTH, 3, WIDTH, TIME, (0,))
MODEL, KEY = jax.jit(lambda key: decoder(Shape(9, 32, 1, 1, 1, 32, 96), key))(key_of(0)), key_of(1)


@functools.cache
def nothing_of(rows: int) -> Conversations:
    return jax.jit(lambda: Conversations.none(rows, TALKING, TIME))()


shares_of = jax.jit(shares)
missed_by = jax.jit(missed)


def held(first: list[int], later: list[int], won: list[float]) -> Conversations:
    """Conversations that begin with two ids and have two turns, each of one id or two, with an answer between.

    An utterance is one id where it is even, else it has a second. What was won is earned in the second turn.
    """
    talks = nothing_of(len(first))
    transcript, said, starts = np.array(talks.transcript), np.array(talks.said), np.array(talks.starts)
    for row, words in enumerate(zip(first, later, strict=True)):
        ids = [1, 1]
        for t, word in enumerate(words):
            starts[t, row] = len(ids)
            utterance = [word] if word % 2 == 0 else [word, 2]
            said[t, row, : len(utterance)] = utterance
            ids += [*utterance, 4] if t == 0 else utterance
        transcript[row, : len(ids)] = ids
        starts[2:, row] = len(ids)
    alive = np.repeat(np.array([[True], [True], [False]]), len(first), axis=1)
    reward = np.zeros((TIME, len(first)), "float32")
    reward[1], reward[2] = won, 7.0  # behind the end nothing counts
    given = {"transcript": transcript, "starts": starts, "said": said, "alive": alive, "reward": reward}
    return dataclasses.replace(talks, **{name: jnp.asarray(x) for name, x in given.items()})


def by_hand(talks: Conversations, discount: float) -> np.ndarray:
    """Means by a dictionary of what had been said by then."""
    talks = jax.tree.map(np.asarray, talks)
    found, shape = collections.defaultdict(list), (2, *talks.alive.shape)
    keys = np.empty(shape, object)
    for t, row in zip(*np.nonzero(np.asarray(talks.alive)), strict=True):
        last = max(s for s in range(TIME) if talks.alive[s, row])
        earned = sum(discount ** (s - t) * float(talks.reward[s, row]) for s in range(t, last + 1))
        start, count = int(talks.starts[t, row]), int((np.asarray(talks.said[t, row]) >= 0).sum())
        for place, end in enumerate((start, start + count)):
            keys[place, t, row] = tuple(np.asarray(talks.transcript[row, :end]).tolist())
            found[keys[place, t, row], place].append(earned)
    success = np.zeros(shape)
    for place, t, row in np.ndindex(*shape):
        if keys[place, t, row] is not None:
            success[place, t, row] = np.mean(found[keys[place, t, row], place])
    return success


def goals_of(part: ProcessReward, talks: Conversations) -> np.ndarray:
    return np.asarray(GOALS(part, talks))


GOALS = jax.jit(lambda part, talks: part.goals(talks))


def some() -> Conversations:
    rng = np.random.default_rng(0)
    first, later = (rng.choice([3, 5, 6], 24).tolist() for _ in range(2))
    return held(first, later, rng.integers(0, 2, 24).astype(float).tolist())


def test_outcomes_are_averaged_over_what_was_said_in_the_same_place():
    talks = some()
    found, wanted = goals_of(ProcessReward(discount=0.9), talks), by_hand(talks, 0.9)[1]
    np.testing.assert_allclose(np.where(talks.alive, found, 0.0), wanted, atol=1e-6)
    assert len(np.unique(wanted.round(5))) > 8
    half = dataclasses.replace(talks, reward=jnp.asarray(np.asarray(talks.reward) / 2))
    np.testing.assert_allclose(goals_of(ProcessReward(discount=0.9, most=0.5), half), found, atol=1e-6)


def test_no_conversation_stands_in_an_empty_slot():
    nothing = nothing_of(4)
    assert not np.any(goals_of(ProcessReward(), nothing))
    judge = Mind(MODEL, jnp.asarray(np.ones(32, "float32")), jnp.float32(1.0))
    assert missed_by(judge, nothing, np.zeros((TIME, 4), "float32"))[0] == 0


def test_it_looks_behind_utterances_and_at_no_answer():
    rng = np.random.default_rng(1)
    judge = Mind(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.float32(0.2))
    talks = held([3, 6], [5, 5], [1.0, 0.0])
    logit = np.asarray(shares_of(judge, talks))
    for row, ends in enumerate([[4, 7], [3, 6]]):
        for t, end in enumerate(ends):
            features = np.asarray(features_of(MODEL, np.asarray(talks.transcript)[row, :end]))[-1]
            wanted = float(features @ np.asarray(judge.weight)) / 32**0.5 + 0.2
            assert logit[t, row] == pytest.approx(wanted, abs=1e-4)


def test_what_is_lost_is_the_cross_entropy_of_all_utterances():
    rng = np.random.default_rng(2)
    judge = Mind(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.float32(0.2))
    talks = some()
    p, goals = 1 / (1 + np.exp(-np.asarray(shares_of(judge, talks), float))), by_hand(talks, 0.95)[1]
    lost = [
        -goals[t, row] * np.log(p[t, row]) - (1 - goals[t, row]) * np.log(1 - p[t, row])
        for t, row in np.argwhere(np.asarray(talks.alive))
    ]
    assert float(missed_by(judge, talks, goals.astype("float32"))[0]) == pytest.approx(np.mean(lost), rel=1e-4)


def test_utterances_are_compared_with_those_in_the_same_place():
    """Means of anything over what stands before utterances; one whose place is its own is worth its own."""
    talks, alone = some(), 0
    x = np.random.default_rng(4).normal(size=talks.alive.shape).astype("float32")
    found = np.asarray(jax.jit(lambda talks, x: meant(talks, talks.starts[:-1], x))(talks, x))
    talks = jax.tree.map(np.asarray, talks)
    texts = np.asarray(talks.transcript)
    for t, row in np.argwhere(np.asarray(talks.alive)):
        end = int(talks.starts[t, row])
        there = [
            i for i in range(24) if talks.starts[t, i] == end and (texts[i, :end] == texts[row, :end]).all()
        ]  # fmt: skip
        assert float(found[t, row]) == pytest.approx(np.mean([float(x[t, i]) for i in there]), abs=1e-5)
        alone += len(there) < 24
    assert alone


def test_utterances_are_paid_what_they_add_to_success():
    """Who says 5 first wins, a turn later; three of four do not. What comes later changes nothing any more."""
    part = ProcessReward(slots=32, steps=30, batch=16, learning_rate=3e-3, discount=0.8, warmup=1)
    talks = held([5, 3, 6, 7] * 4, [3, 5, 6, 7] * 2 + [7, 6, 5, 3] * 2, [1.0, 0.0, 0.0, 0.0] * 4)
    step = jax.jit(lambda kept, key: part(kept, talks, 1, key))
    kept = jax.jit(lambda key: part.init(MODEL, TALKING, TIME, key))(KEY)
    for i in range(12):
        kept, paid, told = step(kept, key_of(i))
        if i == 0:
            np.testing.assert_array_equal(paid.reward, np.where(talks.alive, talks.reward, 0.0))
    won = np.arange(16) % 4 == 0
    reward = np.asarray(paid.reward)
    # of four first utterances one wins: 0.8 behind it and 0 behind the others, 0.2 on average
    np.testing.assert_allclose(reward[0], np.where(won, 0.6, -0.2), atol=0.12)
    np.testing.assert_allclose(reward[1], 0.0, atol=0.15)
    np.testing.assert_array_equal(reward[2], 0.0)
    assert told["process_loss"] < 0.6


def test_the_latest_conversations_are_kept():
    part = ProcessReward(slots=5, steps=1, batch=2)
    kept = jax.jit(lambda key: part.init(MODEL, TALKING, TIME, key))(KEY)
    rounds = [held([3, 5], [n + 3, n + 4], [0.0, 1.0]) for n in range(4)]
    step = jax.jit(lambda kept, talks: part(kept, talks, 1, KEY))
    for talks in rounds:
        kept, _, _ = step(kept, talks)
    for slot, n in enumerate((5, 6, 7, 3, 4)):  # conversation n lies in slot n % 5
        wanted = np.asarray(rounds[n // 2].transcript)[n % 2]
        np.testing.assert_array_equal(np.asarray(kept.replay.transcript)[slot], wanted)
    with pytest.raises(UserError, match=r"experience\.slots=5 holds less than the 6 conversations"):
        part(kept, held([3] * 6, [3] * 6, [0.0] * 6), 1, KEY)

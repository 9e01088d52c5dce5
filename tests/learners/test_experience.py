"""What is made of conversations before they are credited: remembered successes, a moving mean, shared ratios."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree
from made_up import quick_key

from thespis.actors.language import Talking
from thespis.learners.conversations import Conversations
from thespis.learners.experience import BySeat, MovingMean, Progress, Successes
from thespis.learners.process import Attribution, shares
from thespis.learners.talker import Mind
from thespis.learners.utterances import Clipped, EachId, EachTalk, EachTurn, HeldFirst
from thespis.nets.decoder import Shape, decoder

TIME, GROUP, LENGTH, WIDTH = 3, 2, 12, 2
TALKING = Talking(LENGTH, 3, WIDTH, TIME, (0,))
KEY = quick_key(7)
MODEL = jax.jit(decoder, static_argnums=0)(Shape(9, 32, 1, 1, 1, 32, 96), quick_key(0))


def played(seed: int, questions: list[int], earned: list[float]) -> Conversations:
    """Groups of two that begin with the same two ids, and earn at the end of two turns."""
    rng, rows = np.random.default_rng(seed), GROUP * len(questions)
    begin = np.repeat(np.array(questions), GROUP)
    transcript = rng.integers(0, 9, (rows, LENGTH))
    transcript[:, 0], transcript[:, 1], transcript[:, 9:] = begin, 7, -1
    starts = np.repeat(np.array([2, 5, 8, 9])[:, None], rows, axis=1)
    alive = np.repeat(np.array([True, True, False])[:, None], rows, axis=1)
    reward = np.zeros((TIME, rows))
    reward[1], reward[2] = earned, 5.0  # behind the end nothing counts
    said = rng.integers(0, 9, (TIME, rows, WIDTH))
    logs = rng.normal(size=said.shape)
    given = transcript, starts, said, alive, reward, np.zeros(rows, bool), logs
    kinds = {"f": "float32", "i": "int32", "b": "bool"}
    return Conversations(*jax.device_put(tuple(x.astype(kinds[x.dtype.kind]) for x in given)))


def taken(part: Any) -> tuple[PyTree, Callable[..., Any]]:
    """What a part begins with, and what it does with conversations, compiled."""
    kept = jax.jit(lambda: part.init(MODEL, TALKING, TIME, KEY))()
    return kept, jax.jit(lambda kept, talks: part(kept, talks, GROUP, KEY))


def returns_of(talks: Conversations) -> np.ndarray:
    """What each conversation earned."""
    return np.where(talks.alive, talks.reward, 0.0).sum(axis=0)


def same(one: Conversations, row: int, other: Conversations, at: int) -> bool:
    one, other = jax.tree.map(np.asarray, (one, other))
    by_row = [(one.transcript[row], other.transcript[at]), (one.starts[:, row], other.starts[:, at])]
    by_row += [(one.said[:, row], other.said[:, at]), (one.log_probs[:, row], other.log_probs[:, at])]
    by_row += [(one.reward[:, row], other.reward[:, at]), (one.alive[:, row], other.alive[:, at])]
    return all((a == b).all() for a, b in by_row)


def test_a_group_that_failed_gets_the_latest_success_of_its_beginning():
    start, step = taken(Successes(slots=64))
    first = played(0, [3, 4, 5], [1, 0, 0, 0, 1, 1])
    kept, learnt, told = step(start, first)
    assert all(same(learnt, row, first, row) for row in range(6)) and told["recalled"] == 0
    second = played(1, [3, 4, 5], [0, 0, 0, 0, 0, 1])
    kept, learnt, told = step(kept, second)
    assert same(learnt, 0, first, 0), "question 3 has failed, and was solved by row 0"
    assert all(same(learnt, row, second, row) for row in range(1, 6)), "4 was never solved, 5 was now"
    assert told["recalled"] == pytest.approx(1 / 3)
    third = played(2, [5, 6, 3], [0, 0, 0, 0, 0, 0])
    _, learnt, _ = step(kept, third)
    assert same(learnt, 0, second, 5) and same(learnt, 4, first, 0)
    assert all(same(learnt, row, third, row) for row in (1, 2, 3, 5))
    for name, leaf in vars(start.talks).items():
        assert getattr(kept.talks, name).shape == leaf.shape and getattr(kept.talks, name).dtype == leaf.dtype


def test_beginnings_in_one_slot_are_never_taken_for_each_other():
    kept, step = taken(Successes(slots=1))
    kept, _, _ = step(kept, played(0, [3, 4], [1, 0, 0, 0]))
    later = played(1, [4, 3], [0, 0, 0, 0])
    _, learnt, _ = step(kept, later)
    assert same(learnt, 0, later, 0) and same(learnt, 2, played(0, [3, 4], [1, 0, 0, 0]), 0)


def test_the_mean_of_earlier_batches_is_subtracted_once():
    returns = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    kept, step = taken(MovingMean())
    for number, earned in enumerate(returns):
        talks = played(number, [3, 4], earned)
        kept, learnt, _ = step(kept, talks)
        before = np.mean([np.mean(r) for r in returns[:number]]) if number else 0.0
        np.testing.assert_allclose(returns_of(learnt), np.array(earned) - before, rtol=1e-6)
        np.testing.assert_allclose(learnt.reward[0], 0.0)


def ratios(shared, log_ratio):
    """By loops: every id's, its utterance's, or its conversation's product."""
    found = np.zeros_like(log_ratio)
    for t, r, i in itertools.product(*map(range, log_ratio.shape)):
        ids = {EachId: log_ratio[t, r, i], EachTurn: log_ratio[t, r].sum(), EachTalk: log_ratio[:, r].sum()}
        found[t, r, i] = np.exp(ids[type(shared)])
    return found


@pytest.mark.parametrize("shared", [EachId(), EachTurn(), EachTalk()], ids=lambda x: type(x).__name__)
def test_ids_that_are_one_action_are_clipped_together(shared):
    rng = np.random.default_rng(3)
    log_ratio = rng.normal(size=(3, 4, 2)) * 0.1
    advantage = np.broadcast_to(rng.normal(size=(1, 4, 1)), log_ratio.shape)
    objective = Clipped(0.1, 0.1, shared)

    def loss(x, advantage):
        return objective(x, x, advantage).sum()

    slope = jax.jit(jax.grad(loss))(log_ratio.astype("float32"), advantage.astype("float32"))
    ratio = ratios(shared, log_ratio)
    free = np.where(advantage > 0, ratio < 1.1, ratio > 0.9)
    assert free.any() and not free.all()
    np.testing.assert_allclose(slope, np.where(free, -ratio * advantage, 0.0), rtol=1e-4, atol=1e-6)


def test_progress_is_paid_in_the_second_stage():
    kept, step = taken(Progress(until=1, bonus=10.0))
    talks = played(0, [3, 4], [1, 0, 1, 0])
    reward = np.concatenate([np.array([[1.0, 1.0, 0.0, 0.0]], "float32"), np.asarray(talks.reward)[1:]])
    talks = dataclasses.replace(talks, reward=jax.device_put(reward))
    kept, first, _ = step(kept, talks)
    np.testing.assert_array_equal(np.asarray(first.reward)[:2], [[0, 0, 0, 0], [1, 0, 1, 0]])
    _, second, _ = step(kept, talks)
    np.testing.assert_array_equal(np.asarray(second.reward)[:2], [[1, 1, 0, 0], [1, -10, 11, 0]])


def test_first_utterances_are_held_by_more_in_the_first_stage():
    rng = np.random.default_rng(0)
    now, tether = rng.normal(size=(2, 2, 3, 2)).astype("float32")
    reference = HeldFirst(0.01, 0.2, until=5)
    held = jax.jit(lambda batch: reference(jnp.asarray(now), jnp.zeros(now.shape), jnp.asarray(tether), batch))
    early, late = (np.asarray(held(np.int32(i))) for i in (4, 5))
    np.testing.assert_allclose(late, 0.01 * (now - tether), rtol=1e-5)
    np.testing.assert_allclose(early[0], 0.2 * (now - tether)[0], rtol=1e-5)
    np.testing.assert_array_equal(early[1], late[1])


def test_an_estimator_looks_at_each_utterance_and_at_nothing_behind_it():
    talks = played(0, [3, 4], [1, 0, 0, 0])
    said = np.array(talks.said)
    said[0, :, 1] = -1  # of one id
    talks = dataclasses.replace(talks, said=jax.device_put(said))
    weight = np.random.default_rng(1).normal(size=32).astype("float32")
    estimator = Mind(MODEL, *jax.device_put((weight, np.float32(0))))
    ends = [int(np.asarray(talks.starts)[turn, 0]) + count for turn, count in ((0, 1), (1, 2))]

    @jax.jit
    def both(estimator, talks):
        ids = jnp.maximum(talks.transcript[0], 0)
        return shares(estimator, talks), [estimator.model(ids[:end], jnp.arange(end))[-1] for end in ends]

    after, read = jax.tree.map(np.asarray, both(estimator, talks))
    for turn, features in enumerate(read):
        assert after[turn, 0] == pytest.approx(float(features @ weight) / 32**0.5, abs=1e-4)


def test_turns_are_paid_what_an_estimator_has_learnt():
    """Who says 8 first earns 1: its first utterance is paid more than that of who does not, and sums are outcomes."""
    part = Attribution(warmup=1, steps=40)
    talks = played(0, [3, 3, 4, 4], [1, 0, 1, 0, 1, 0, 0, 1])
    returns, transcript = returns_of(talks), np.array(talks.transcript)
    right = returns > 0
    transcript[:, 2:5], transcript[:, 5:9] = np.where(right, 8, 2)[:, None], 1
    talks = dataclasses.replace(talks, transcript=jax.device_put(transcript))
    kept, step = taken(part)
    kept, first, _ = step(kept, talks)
    np.testing.assert_array_equal(first.reward, talks.reward)
    for _ in range(12):
        kept, learnt, _ = step(kept, talks)
    np.testing.assert_allclose(returns_of(learnt), returns, atol=1e-5)
    found, paid = np.asarray(jax.jit(shares)(kept.estimator, talks)), np.asarray(learnt.reward)[0]
    np.testing.assert_allclose(found.sum(axis=0), returns, atol=0.15)
    np.testing.assert_allclose(paid, found[0], atol=0.1)
    assert paid[right].min() > 0.2 + paid[~right].max()


def test_seats_have_means_of_their_own():
    """Two rows of three seats, the last of whom never spoke in one; the mean is lowered where each spoke last."""
    talking = dataclasses.replace(TALKING, roles=3)
    alive = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)
    returns = np.array([[1.0, -2.0, 0.0], [3.0, 0.5, 7.0]], "float32")
    said = np.where(alive[..., None], 3, -1).astype("int32")
    last = np.array([[0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)
    reward = np.where(last, returns.reshape(-1), 0.0).astype("float32")
    ids, starts, no = np.zeros((6, 8), "int32"), np.zeros((4, 6), "int32"), np.zeros(6, bool)
    played = Conversations(*jax.device_put((ids, starts, said, alive, reward, no, np.zeros(said.shape, "float32"))))
    count = np.array([2, 2, 1])
    for apart in (True, False):
        part = BySeat(0.9, apart)
        begun = lambda part=part: part.init(MODEL, talking, 3, KEY) + 1.0  # noqa: E731
        kept, learnt, _ = jax.jit(lambda part=part, begun=begun: part(begun(), played, 1, KEY))()
        times = count if apart else count.sum()
        total = returns.sum(axis=0) if apart else returns.sum()
        wanted = 0.9**times + (1 - 0.9**times) * total / times
        np.testing.assert_allclose(kept, np.broadcast_to(wanted, 3), rtol=1e-5)
        np.testing.assert_allclose(
            learnt.reward, np.where(last, returns.reshape(-1) - np.tile(kept, 2), 0.0), rtol=1e-5, atol=1e-6
        )

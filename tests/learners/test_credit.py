"""Credit against enumeration, and what must not change it: later rewards, padding, what the world says."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.baselines import Alone, Mean, Others, Scaled
from thespis.learners.credit import ToGo, TokenCritic, TurnCritic, Turns, Whole

TIME, ROWS, WIDTH = 5, 4, 3


@functools.cache
def compiled(credit):
    return jax.jit(lambda given, value: credit(given, value))


def told_by(credit, given, value):
    """What is credited, on the host."""
    value = None if value is None else jnp.asarray(value)
    return jax.tree.map(np.asarray, compiled(credit)(given, value))


def given_turns(reward, alive, cut, real, *counts: int) -> Turns:
    return Turns(*map(jnp.asarray, (reward, alive, cut, real)), *counts)


def turns(seed: int = 0, group: int = 2) -> Turns:
    """Conversations of 2 to 5 turns, utterances of 1 to 3 ids; the last row is cut by its limit."""
    rng = np.random.default_rng(seed)
    length = np.array([2, 5, 3, 5])
    alive = np.arange(TIME)[:, None] < length
    count = rng.integers(1, WIDTH + 1, (TIME, ROWS))
    real = (np.arange(WIDTH) < count[..., None]) & alive[..., None]
    reward = rng.normal(size=(TIME, ROWS)).astype("float32")
    cut = np.array([False, False, False, True])
    return given_turns(reward, alive, cut, real, group)


def values(seed: int = 1):
    return np.random.default_rng(seed).normal(size=(TIME + 1, ROWS, WIDTH)).astype("float32")


CREDITS = {
    "whole": Whole(Others()), "to go": ToGo(Others(), 0.9), "turn critic": TurnCritic(0.8, 0.9),
    "token critic": TokenCritic(0.8, 0.97),
}  # fmt: skip


def plain(given: Turns, row: int, value: np.ndarray, discount: float, trace: float, token: bool) -> list:
    """Generalised advantages of one row, summed term by term over its turns or its ids."""
    reward, real = np.asarray(given.reward)[:, row], np.asarray(given.real)[:, row]
    places = [(t, i) for t in range(TIME) for i in range(WIDTH) if real[t, i] and (token or i == 0)]
    earned = [reward[t] if not token or not real[t, i + 1 :].any() else 0.0 for t, i in places]
    seen = [float(value[t, row, i]) for t, i in places]
    seen.append(float(value[-1, row, 0]) if bool(np.asarray(given.cut)[row]) else 0.0)
    found = []
    for k in range(len(places)):
        total = 0.0
        for j in range(k, len(places)):
            total += (discount * trace) ** (j - k) * (earned[j] + discount * seen[j + 1] - seen[j])
        found.append((places[k], total))
    return found


@pytest.mark.parametrize("name", ["turn critic", "token critic"])
def test_critics_credit_what_the_sum_says(name):
    given, value = turns(), values()
    credit = CREDITS[name]
    told = told_by(credit, given, value)
    for row in range(ROWS):
        wanted = plain(given, row, np.asarray(value), credit.discount, credit.trace, name == "token critic")
        for (t, i), advantage in wanted:
            np.testing.assert_allclose(told.advantage[t, row, i], advantage, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(told.target[t, row, i], advantage + value[t, row, i], rtol=1e-4, atol=1e-5)
            assert bool(told.valued[t, row, i])
    assert not told.valued[~np.asarray(given.real)].any()


@pytest.mark.parametrize(("baseline", "wanted"), [
    (Alone(), lambda own, other: own),
    (Mean(), lambda own, other: own - (own + other) / 2),
    (Others(), lambda own, other: own - other),
    (Scaled(), lambda own, other: (own - other) / 2 / (abs(own - other) / 2**0.5 + 1e-4)),
], ids=lambda x: type(x).__name__)  # fmt: skip
def test_groups_are_each_others_baseline(baseline, wanted):
    given = turns()
    reward = np.where(given.alive, given.reward, 0.0)
    told = told_by(Whole(baseline), given, None).advantage
    later = told_by(ToGo(baseline, 0.9), given, None).advantage
    for row in range(ROWS):
        beside = row ^ 1
        for t in range(TIME):
            said = np.asarray(given.real)[t, row]
            np.testing.assert_allclose(
                told[t, row, said], wanted(reward[:, row].sum(), reward[:, beside].sum()), rtol=1e-4
            )
            weight = 0.9 ** np.arange(TIME - t)
            own, other = ((weight * reward[t:, r]).sum() for r in (row, beside))
            np.testing.assert_allclose(later[t, row, said], wanted(own, other), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["to go", "turn critic", "token critic"])
def test_a_reward_reaches_its_turn_and_those_before_and_no_later_one(name):
    given, value, row, turn = turns(), values(), 1, 2
    before, reward = told_by(CREDITS[name], given, value).advantage, np.array(given.reward)
    reward[turn, row] += 1.0
    more = dataclasses.replace(given, reward=jnp.asarray(reward))
    moved = told_by(CREDITS[name], more, value).advantage != before
    said = np.asarray(given.real)
    assert moved[: turn + 1, row][said[: turn + 1, row]].all()
    assert not moved[turn + 1 :, row].any()
    assert name == "to go" or not np.delete(moved, row, axis=1).any()


@pytest.mark.parametrize("name", CREDITS)
def test_what_lies_behind_the_end_changes_nothing(name):
    given, value = turns(), values()
    told = told_by(CREDITS[name], given, value)
    reward = np.where(given.alive, given.reward, np.float32(1e6))
    other = np.where(given.real, value[:-1], np.float32(-1e6))
    again = told_by(
        CREDITS[name], dataclasses.replace(given, reward=jnp.asarray(reward)), np.concatenate([other, value[-1:]])
    )
    for name_ in ("advantage", "target"):
        one, two = (np.asarray(getattr(x, name_))[told.valued | np.asarray(given.real)] for x in (told, again))
        if name_ == "target":
            one, two = (np.asarray(getattr(x, name_))[np.asarray(told.valued)] for x in (told, again))
        assert one.tobytes() == two.tobytes()


def test_baselines_of_others_leave_the_gradient_unbiased():
    """Enumerated: two answers a and b, drawn with p; E[grad log p * (r - r of the other)] is the true gradient."""
    reward = np.array([1.0, 3.0])
    logit = 0.3

    def expected(credit):
        p = 1 / (1 + np.exp(-logit))
        chance, slope = np.array([p, 1 - p]), np.array([1 - p, -p])
        total = 0.0
        for a in range(2):
            for b in range(2):
                earned = np.asarray([[reward[a], reward[b]]], "float32")
                real = np.ones((1, 2, 1), bool)
                given = given_turns(earned, np.ones((1, 2), bool), np.zeros(2, bool), real, 2)
                told = told_by(credit, given, None).advantage
                total += chance[a] * chance[b] * 0.5 * float(slope[a] * told[0, 0, 0] + slope[b] * told[0, 1, 0])
        return total

    p = 1 / (1 + np.exp(-logit))
    truth = p * (1 - p) * (reward[0] - reward[1])
    for baseline in (Alone(), Others()):
        np.testing.assert_allclose(expected(Whole(baseline)), truth, rtol=1e-5)
    np.testing.assert_allclose(expected(Whole(Mean())), truth / 2, rtol=1e-5)


def test_seats_are_compared_with_their_own():
    """Rows are conversations of two groups of two, each from three seats."""
    rng = np.random.default_rng(3)
    returns = rng.normal(size=(4, 3)).astype("float32")
    reward = returns.reshape(1, -1)
    shape = (1, 12)
    given = given_turns(reward, np.ones(shape, bool), np.zeros(12, bool), np.ones((*shape, 2), bool), 2, 3)
    told = told_by(Whole(Mean()), given, None).advantage[0, :, 0].reshape(2, 2, 3)
    grouped = returns.reshape(2, 2, 3)
    np.testing.assert_allclose(told, grouped - grouped.mean(axis=1, keepdims=True), atol=1e-6)


def test_waits_are_passed_over():
    """Where others speak between two turns, credit is what it is without them."""
    rng = np.random.default_rng(4)
    reward, value = rng.normal(size=(3, 2)).astype("float32"), rng.normal(size=(4, 2, 1)).astype("float32")
    dense = given_turns(reward, np.ones((3, 2), bool), np.zeros(2, bool), np.ones((3, 2, 1), bool), 2)
    alive = np.array([True, False, True, False, True, False])
    wide_reward, wide_value = np.zeros((6, 2), "float32"), rng.normal(size=(7, 2, 1)).astype("float32")
    wide_reward[alive], wide_value[:-1][alive] = reward, value[:-1]
    there = np.broadcast_to(alive[:, None], (6, 2))
    wide = given_turns(wide_reward, there, np.zeros(2, bool), there[..., None], 2)
    for credit in (ToGo(Mean(), 0.8), TurnCritic(0.8, 0.9)):
        np.testing.assert_allclose(
            told_by(credit, wide, wide_value).advantage[alive], told_by(credit, dense, value).advantage, rtol=1e-5
        )  # fmt: skip

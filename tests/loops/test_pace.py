"""How far acting falls behind learning, and what timing may change."""

from __future__ import annotations

import collections
from concurrent.futures import Future

import numpy as np
import pytest
from cases import CASES
from worlds import AsHost

from thespis.core.errors import UserError
from thespis.core.laws import as_numpy, same_bits
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.host import HostLoop
from thespis.loops.pace import FixedLag, NewestWithin, Pace, pace, settled
from thespis.loops.parts import Parts

SEEDS, ENVS, BLOCKS = [0, 3], 3, 12


def learnt(pace: Pace, jitter: float = 0.0, name: str = "ppo"):
    parts = Parts(CASES[name].method, EnvironmentReward(), Fixed())
    loop = HostLoop(parts, AsHost(CASES[name].world, ENVS, SEEDS), ENVS, SEEDS, 1000, pace, jitter)
    carry = loop.advance(loop.advance(loop.init(), BLOCKS // 2), BLOCKS // 2)
    return as_numpy((loop.learner(carry), carry.tally, carry.policies))


@pytest.mark.parametrize("lag", [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_fixed_lag_gives_the_same_bits_however_slow_anybody_is(lag):
    same_bits(learnt(FixedLag(lag)), learnt(FixedLag(lag), jitter=0.02), "jitter changes nothing")


@pytest.mark.slow
def test_acting_by_the_newest_policy_depends_on_timing():
    """Without delays learning is done before the next block; delayed, it sometimes is not."""
    ends = [learnt(NewestWithin(3), jitter)[0].method for jitter in (0.0, 0.05, 0.05)]
    with pytest.raises(Exception, match="differs"):
        same_bits(ends[0], ends[1], "timing shows")
        same_bits(ends[1], ends[2], "timing shows")


def made(value):
    done = Future()
    done.set_result(value)
    return done


def test_a_fixed_lag_takes_the_oldest_of_all():
    policies = collections.deque(["a", made("b"), Future()])
    assert [FixedLag(2).take(policies) for _ in range(2)] == ["a", "b"] and len(policies) == 1


def test_the_newest_that_is_ready_is_taken_and_stays():
    waiting = Future()
    policies = collections.deque(["a", made("b"), waiting, Future()])
    newest = NewestWithin(2)
    assert newest.take(policies) == "b" and newest.take(policies) == "b" and len(policies) == 3
    policies.append(Future())
    waiting.set_result("c")  # too far behind: b must go, and c is what there is
    assert newest.take(policies) == "c" and len(policies) == 3


def test_what_is_kept_has_always_the_same_length():
    assert settled(collections.deque([made(1), 2]), 3) == (1, 1, 1, 2)
    assert settled(collections.deque([1, made(2), 3]), 1) == (2, 3)


def test_options_that_contradict_each_other_are_refused():
    assert pace(2, newest=True) == NewestWithin(2) and pace(0, newest=False) == FixedLag(0)
    with pytest.raises(UserError, match="room to fall behind"):
        pace(0, newest=True)


def test_an_error_in_learning_is_not_lost(monkeypatch):
    parts = Parts(CASES["ppo"].method, EnvironmentReward(), Fixed())
    loop = HostLoop(parts, AsHost(CASES["ppo"].world, ENVS, SEEDS), ENVS, SEEDS, 1000, FixedLag(1))
    carry = loop.init()
    monkeypatch.setattr("thespis.loops.host._stack", lambda rows: np.zeros(0).item())
    with pytest.raises(ValueError, match="size 1"):
        loop.advance(carry, 4)
